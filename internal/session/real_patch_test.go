package session

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/testrig"
)

// A patch is judged by the rules for edits of each of its files, its sources and
// destinations, through links too. When one is denied, nothing of it happens; when one is
// asked about, the approver sees what is written.
func TestRealPatchIsJudged(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	dir := realTree(t, m, `
[permission.edit]
"*" = "allow"
"locked/*" = "deny"
"asked/*" = "ask"
`, map[string]string{"a": "one\n", "locked/l": "l\n", "asked/x": "x\n", "link": "link:locked/l"})
	s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir}})
	if err != nil {
		t.Fatal(err)
	}
	patch := func(lines ...string) object {
		return object{"patch": "*** Begin Patch\n*** Update File: a\n@@\n-one\n+two\n" + strings.Join(lines, "\n") + "\n*** End Patch\n"}
	}
	for name, in := range map[string]object{
		"changed":            patch("*** Update File: locked/l", "@@", "-l", "+m"),
		"through a link":     patch("*** Update File: link", "@@", "-l", "+m"),
		"deleted":            patch("*** Delete File: locked/l"),
		"added":              patch("*** Add File: locked/new", "+x"),
		"moved there":        patch("*** Update File: asked/x", "*** Move to: locked/x"),
		"moved from there":   patch("*** Update File: locked/l", "*** Move to: b"),
		"below another name": patch("*** Update File: ./locked/../locked/l", "@@", "-l", "+m"),
	} {
		c := realCall(t, m, s.ID, "apply_patch", in)
		if c.Error == nil || c.Error.Code != client.CodeDenied {
			t.Errorf("%s: %+v %q", name, c.Error, c.Output)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(got) != "one\n" {
			t.Fatalf("%s: a has %q, %v", name, got, err)
		}
	}
	raw, err := json.Marshal(patch("*** Update File: asked/x", "*** Move to: asked/y"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.calls.Call(t.Context(), alice, s.ID, client.CallCreate{Tool: "apply_patch", Input: raw, WaitMillis: new(int64)}, call.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var a client.Approval
	testrig.Eventually(t, "the patch waits for its approval", func() bool {
		list, err := m.Approvals.Approvals(t.Context(), carol, client.ApprovalQuery{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) > 0 {
			a = list.Items[0]
		}
		return len(list.Items) > 0
	})
	shown, err := json.Marshal(a)
	if err != nil || !strings.Contains(string(shown), "+two") || !strings.Contains(string(shown), "moved: /workspace/asked/x to /workspace/asked/y") {
		t.Errorf("the approver sees %s, %v", shown, err)
	}
	if _, err := m.Approvals.Answer(t.Context(), carol, a.ID, once); err != nil {
		t.Fatal(err)
	}
	testrig.Eventually(t, "the patch is applied", func() bool {
		c, err = m.calls.GetCall(t.Context(), alice, c.ID)
		return err != nil || c.Finished()
	})
	if err != nil || c.Error != nil || c.IsError {
		t.Errorf("%+v, %v", c, err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "asked/y")); err != nil || string(got) != "x\n" {
		t.Errorf("%q, %v", got, err)
	}
}
