package session

import (
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

func TestCallRuns(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{Name: "one", Env: map[string]string{"A": "b"}})
	if s.State != client.SessionReady || s.Worktree.IDMap != "idmapped" || len(s.Notes) != 2 || s.Token != "" {
		t.Errorf("session %+v", s)
	}
	c := h.call("one", bashCall("echo hello; env; exit 3"))
	if c.Status != client.CallCompleted || !c.IsError || !strings.HasPrefix(c.Output, "hello\nA=b\n") || !strings.HasSuffix(c.Output, "\nexit code 3") {
		t.Errorf("call %+v", c)
	}
	if c.Usage.CPUMillis != 2 || c.Metadata["exit_code"] != int64(3) || c.Metadata["truncated"] != false {
		t.Errorf("usage %+v, metadata %v", c.Usage, c.Metadata)
	}
	if c.Time.Started == nil || c.Time.Ended == nil || c.Permission.Verdict != "allow" {
		t.Errorf("time %+v, permission %+v", c.Time, c.Permission)
	}
	if out := h.output(c.ID); !strings.Contains(out, "\nUSER=tool\n") || strings.Contains(out, "exit code") {
		t.Errorf("output %q", out)
	}
	stored, err := h.m.calls.GetCall(t.Context(), alice, c.ID)
	if err != nil || stored.Output != c.Output || stored.Title != c.Title {
		t.Errorf("stored %+v, %v", stored, err)
	}
	box := h.host.box(s.ID)
	testrig.Eventually(t, "the agent forgot the call", func() bool {
		box.mu.Lock()
		defer box.mu.Unlock()
		return len(box.forgot) == 1 && len(box.calls) == 0
	})
}
