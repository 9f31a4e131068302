package session

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/testrig"
)

// TestRealCallsOfPeople: what a person has been given of a file that the session may not read, by an
// approval, reaches nobody with the session's token: not by the call's id, in the list, as its output, by
// its key or as a file in the sandbox. What the rules let the session read is shown as ever, and the
// holder of the token is given what it was itself allowed to have.
func TestRealCallsOfPeople(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	long := strings.Repeat("TOKEN=hunter2\n", 20000)
	dir := realTree(t, m, `
[permission]
read = { "*" = "allow", "secret" = "ask", "long" = "ask" }
edit = { "*" = "allow" }
`, map[string]string{"secret": "TOKEN=hunter2\n", "long": long, "open": "TOKEN=hunter2\n", "link": "link:secret"})
	s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir}, Token: true})
	if err != nil {
		t.Fatal(err)
	}
	agent, err := m.TokenSession(t.Context(), s.Token)
	if err != nil {
		t.Fatal(err)
	}
	people := true // make the calls
	// allowed does what waits for an approval, which carol gives.
	allowed := func(do func()) {
		t.Helper()
		done := make(chan struct{})
		go func() { defer close(done); do() }()
		testrig.Eventually(t, "it is done", func() bool {
			list, err := m.Approvals.Approvals(t.Context(), carol, client.ApprovalQuery{})
			for _, a := range list.Items {
				// What waits cannot be followed: where a link leads is not known to us here.
				if _, _, err := m.calls.Output(t.Context(), agent, a.CallID, client.OutputQuery{Follow: true}); people && codeOfErr(err) != client.CodeDenied {
					t.Errorf("the output of %s, which waits: %v", a.Tool, err)
				}
				_, _ = m.Approvals.Answer(t.Context(), carol, a.ID, once)
			}
			select {
			case <-done:
				return true
			default:
				return err != nil
			}
		})
	}
	download := func(p auth.Principal, file, want string) {
		t.Helper()
		r, _, err := m.Files.Download(t.Context(), p, s.ID, file)
		if err != nil {
			t.Error(err)
			return
		}
		defer r.Close()
		if b, err := io.ReadAll(r); err != nil || string(b) != want {
			t.Errorf("%s: %d bytes, %v", file, len(b), err)
		}
		// While it is fetched it is in the outputs, which the sandbox has.
		if c := realCall(t, m, s.ID, "bash", object{"command": "cat $TOOLD_OUTPUT_DIR/call_* | head -c 99; true"}); strings.Contains(c.Output, "hunter") {
			t.Errorf("a sandbox reads the output of a download: %s", c.Output)
		}
	}
	make := func(p auth.Principal, tool, input, key string, typed bool) *client.Call {
		t.Helper()
		c, err := m.calls.Call(t.Context(), p, s.ID, client.CallCreate{Tool: tool, Input: json.RawMessage(input), Key: key, Typed: typed}, call.Options{})
		if err != nil || c.Error != nil {
			t.Errorf("%s %s: %+v, %v", tool, input, c, err)
		}
		return c
	}
	for _, file := range []string{"secret", "link", "long"} {
		allowed(func() { make(mounter, "read", `{"file_path":"`+file+`"}`, "k"+file, true) })
	}
	allowed(func() { make(mounter, "read", `{"file_path":"link","offset":99}`, "past", true) })
	allowed(func() {
		make(mounter, "batch", `{"calls":[{"tool":"read","input":{"file_path":"link"}}]}`, "batch", true)
	})
	allowed(func() { download(mounter, "secret", "TOKEN=hunter2\n") })
	allowed(func() { download(mounter, "link", "TOKEN=hunter2\n") })
	allowed(func() { download(mounter, "long", long) })
	make(mounter, "write", `{"file_path":"secret","content":"TOKEN=hunter2 too\n"}`, "", true)

	list, err := m.calls.ListCalls(t.Context(), agent, s.ID, client.CallQuery{})
	list.Items = slices.DeleteFunc(list.Items, func(c client.Call) bool { return c.Tool == "bash" })
	if err != nil || len(list.Items) != 10 {
		t.Fatalf("%d calls, %v", len(list.Items), err)
	}
	for _, c := range list.Items {
		one, err := m.calls.GetCall(t.Context(), agent, c.ID)
		if err != nil {
			t.Fatal(err)
		}
		again, err := m.calls.AbortCall(t.Context(), agent, c.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []*client.Call{&c, one, again} {
			if row, err := json.Marshal(v); err != nil || strings.Contains(string(row), "hunter") || strings.Contains(string(row), "1 line") || v.Title != "" || !strings.Contains(string(row), `"not_shown":"`) {
				t.Errorf("%s %s: %s", c.Tool, c.Title, row)
			}
		}
		if _, _, err := m.calls.Output(t.Context(), agent, c.ID, client.OutputQuery{}); codeOfErr(err) != client.CodeDenied {
			t.Errorf("output of %s %s: %v", c.Tool, c.Title, err)
		}
		if c.Tool != "file_get" {
			continue
		}
		if whole, err := m.calls.GetCall(t.Context(), alice, c.ID); err != nil || whole.Metadata["not_shown"] != nil {
			t.Errorf("a person sees %+v, %v", whole, err)
		}
	}
	for _, file := range []string{"secret", "link", "long"} {
		for _, o := range []call.Options{{}, {OnEvent: func(e client.Event) {
			if strings.Contains(string(e.Data), "hunter") {
				t.Errorf("event %s", e.Data)
			}
		}}} {
			c, err := m.calls.Call(t.Context(), agent, s.ID, client.CallCreate{Tool: "read", Input: json.RawMessage(`{"file_path":"` + file + `"}`), Key: "k" + file}, o)
			if codeOfErr(err) != client.CodeDenied {
				t.Errorf("by the key of %s: %+v, %v", file, c, err)
			}
		}
	}
	if c := realCall(t, m, s.ID, "bash", object{"command": "grep -rl hunter $TOOLD_OUTPUT_DIR /run/toold 2>/dev/null; true"}); strings.Contains(c.Output, "call_") {
		t.Errorf("files of outputs in the sandbox: %s", c.Output)
	}
	// What is allowed is seen, and what the agent was allowed itself.
	seen := make(mounter, "read", `{"file_path":"open"}`, "", true)
	if c, err := m.calls.GetCall(t.Context(), agent, seen.ID); err != nil || !strings.Contains(c.Output, "hunter2") {
		t.Errorf("%+v, %v", c, err)
	}
	allowed(func() { download(agent, "long", long) })
	people = false
	allowed(func() {
		c := make(agent, "read", `{"file_path":"secret"}`, "", false)
		if c, err := m.calls.GetCall(t.Context(), agent, c.ID); err != nil || !strings.Contains(c.Output, "hunter2") {
			t.Errorf("its own: %+v, %v", c, err)
		}
	})
}
