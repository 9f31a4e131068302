package session

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
)

// agrees checks that what a call says to a model agrees with how it ended: in what
// its caller got, in its record, and after the record was read from the store.
func (h *house) agrees(c *client.Call, code client.Code) {
	h.t.Helper()
	if code == "" != (c.Error == nil) || c.Error != nil && c.Error.Code != code {
		h.t.Fatalf("%s: %+v, want %q", c.Status, c.Error, code)
	}
	if c.Error != nil && (!c.IsError || !strings.HasSuffix(c.Output, c.Error.Text()) || strings.Count(c.Output, c.Error.Message) != 1) {
		h.t.Errorf("is_error %t with the output %q of the error %+v", c.IsError, c.Output, c.Error)
	}
	if c.IsError && strings.TrimSpace(c.Output) == "" {
		h.t.Errorf("a failure without a text: %+v", c)
	}
	stored, err := h.store.Call(h.t.Context(), c.ID)
	if err != nil || stored.IsError != c.IsError || stored.Call.Output != c.Output {
		h.t.Errorf("the record says is_error %t, %q (%v), the caller was told %t, %q", stored.IsError, stored.Call.Output, err, c.IsError, c.Output)
	}
	events, err := h.m.Events.Events(h.t.Context(), alice, event.Filter{Session: c.SessionID, Type: "call." + string(c.Status), Stored: true})
	if err != nil {
		h.t.Fatal(err)
	}
	for e := range events {
		if said := strings.Contains(string(e.Data), `"is_error":true`); e.Call == c.ID && said != c.IsError {
			h.t.Errorf("the event %s says %s of a call with is_error %t", e.Type, e.Data, c.IsError)
		}
	}
}

// TestAnswersAgree: is_error and output alone tell a model how a call ended.
func TestAnswersAgree(t *testing.T) {
	made := func(t *testing.T, rule string) (*house, string) {
		h := newHouse(t)
		h.set.Loop = policy.LoopConfig{Threshold: 3, PollingThreshold: 6, MaxPeriod: 4, HardLimit: 8}
		if rule != "" {
			h.set.Policy = rules(t, rule)
		}
		h.open()
		return h, h.create(alice, client.SessionCreate{}).ID
	}
	const ask = "[permission.bash]\n\"*\" = \"ask\"\n"
	agentSays := func(code run.Code) func(*house, string) *client.Call {
		return func(h *house, s string) *client.Call {
			h.host.fail("prepare", run.Errorf(code, "file.txt is not what it was"))
			return h.call(s, readCall("file.txt"))
		}
	}
	for _, tt := range []struct {
		name string
		rule string
		code client.Code
		says string
		call func(h *house, s string) *client.Call
	}{
		{"completed", "", "", "x\n", func(h *house, s string) *client.Call { return h.call(s, bashCall("echo x")) }},
		{"failed", "", "", "exit code 3", func(h *house, s string) *client.Call { return h.call(s, bashCall("exit 3")) }},
		{"failed without a word", "", "", "gave no text", func(h *house, s string) *client.Call {
			h.host.box(s).prepared = &run.Prepared{
				Targets: []run.Target{{Asked: "x", Path: "/workspace/x"}}, Result: &run.Result{IsError: true},
			}
			return h.call(s, readCall("x"))
		}},
		{"denied", "permission = { bash = \"deny\" }", client.CodeDenied, `denied: bash "echo x"`, func(h *house, s string) *client.Call {
			return h.call(s, bashCall("echo x"))
		}},
		{"rejected", ask, client.CodeDenied, "rejected", func(h *house, s string) *client.Call {
			c, a := h.waiting(s, "echo x")
			h.answer(a, reject)
			return h.finished(c.ID)
		}},
		{"approval timeout", ask, client.CodeApprovalTimeout, "nobody answered", func(h *house, s string) *client.Call {
			h.reload(func(set *Settings) { set.Approvals.Timeout = time.Millisecond })
			return h.call(s, bashCall("echo x"))
		}},
		{"doom loop", loopsDenied, client.CodeDoomLoop, "call 3 in a row", func(h *house, s string) *client.Call {
			h.call(s, bashCall("echo x"))
			h.call(s, bashCall("echo x"))
			return h.call(s, bashCall("echo x"))
		}},
		{"aborted before it ran", ask, client.CodeAborted, "aborted before it ran", func(h *house, s string) *client.Call {
			c, _ := h.waiting(s, "echo x")
			if _, err := h.m.calls.AbortCall(h.t.Context(), alice, c.ID); err != nil {
				h.t.Fatal(err)
			}
			return h.finished(c.ID)
		}},
		{"aborted", "", "", "x\naborted", func(h *house, s string) *client.Call {
			c := h.background(s, "echo x; hold")
			testrig.Eventually(h.t, "it runs", func() bool { return h.host.box(s).holding.Load() == 1 })
			if _, err := h.m.calls.AbortCall(h.t.Context(), alice, c.ID); err != nil {
				h.t.Fatal(err)
			}
			return h.finished(c.ID)
		}},
		{"session lost", "", client.CodeSessionLost, "x\nsession ", func(h *house, s string) *client.Call {
			c := h.background(s, "echo x; hold")
			testrig.Eventually(h.t, "it runs", func() bool { return h.host.box(s).holding.Load() == 1 })
			h.host.box(s).die()
			return h.finished(c.ID)
		}},
		{"daemon stopped", "", client.CodeAborted, "the daemon stopped", func(h *house, s string) *client.Call {
			for i := range 5 { // of which four run
				h.background(s, fmt.Sprintf("echo %d; hold", i))
			}
			testrig.Eventually(h.t, "four hold", func() bool { return h.host.box(s).holding.Load() == 4 })
			queued, err := h.m.calls.ListCalls(h.t.Context(), alice, s, client.CallQuery{Status: client.CallPending})
			if err != nil || len(queued.Items) != 1 {
				h.t.Fatalf("%v, %v", queued, err)
			}
			h.kill()
			h.open()
			return h.finished(queued.Items[0].ID)
		}},
		{"sandbox failed", "", client.CodeSandboxFailed, "not what it was", agentSays(run.CodeSandboxFailed)},
		{"stale", "", client.CodeStale, "not what it was", agentSays(run.CodeStale)},
		{"invalid path", "", client.CodeInvalidPath, "not what it was", agentSays(run.CodeInvalidPath)},
		{"not a regular file", "", client.CodeNotRegularFile, "not what it was", agentSays(run.CodeNotRegularFile)},
		{"invalid input", "", client.CodeInvalidInput, "not what it was", agentSays(run.CodeInvalidInput)},
		{"a code of its own", "", client.CodeSandboxFailed, "not what it was", agentSays("gotcha")},
		{"no answer", "", client.CodeInternal, "internal error", func(h *house, s string) *client.Call {
			h.host.fail("run", errors.New("no such thing"))
			return h.call(s, bashCall("echo x"))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, s := made(t, tt.rule)
			c := tt.call(h, s)
			h.agrees(c, tt.code)
			if !strings.Contains(c.Output, tt.says) {
				t.Errorf("output %q, want %q in it", c.Output, tt.says)
			}
		})
	}
}
