package session

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
)

// TestAgentsSeeNoDiff: where a session may write a file and not read it, what the write would
// change in it is for those who may answer. Who makes the call with the session's token, follows it
// by its key or lists approvals is told the same whatever is in the file.
func TestAgentsSeeNoDiff(t *testing.T) {
	h, _ := asking(t)
	h.reload(func(set *Settings) {
		set.Policy = rules(t, `
permission = { edit = "ask", read = { "*" = "allow", "secret" = "deny", "asked" = "ask" } }
`)
		set.Approvals.SelfApprove = true // only so that the holder of a token may list them
	})
	s := h.create(alice, client.SessionCreate{Token: true})
	agent, err := h.m.TokenSession(t.Context(), s.Token)
	if err != nil {
		t.Fatal(err)
	}
	box := h.host.box(s.ID)
	const diff = "-hunter2\n+x\n"
	key := 0
	// told makes the write of a file and gives what each is told of its approval.
	told := func(file, diff string) (to map[string]client.Approval) {
		t.Helper()
		box.mu.Lock()
		box.prepared = &run.Prepared{
			Targets: []run.Target{{Asked: file, Path: "/workspace/" + file, Exists: true, Kind: "file", SHA256: "one", Write: true}}, Diff: diff,
		}
		box.mu.Unlock()
		to = make(map[string]client.Approval)
		var mu sync.Mutex
		hear := func(who string) call.Options {
			return call.Options{OnEvent: func(e client.Event) {
				if e.Type != client.EventApprovalAsked {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				var a client.Approval
				if err := json.Unmarshal(e.Data, &a); err != nil {
					t.Error(err)
				}
				to[who] = a
			}}
		}
		r := writeCall(file)
		key++
		r.Key = string(rune('a' + key))
		var wg sync.WaitGroup
		follow := func(who string, p auth.Principal) {
			wg.Go(func() {
				if _, err := h.m.calls.Call(t.Context(), p, s.ID, r, hear(who)); err != nil {
					t.Error(err)
				}
			})
			testrig.Eventually(t, who+" is told", func() bool { mu.Lock(); defer mu.Unlock(); return to[who].ID != "" })
		}
		follow("maker", agent)
		follow("follower", agent)
		follow("user", alice)
		for who, p := range map[string]auth.Principal{"lister": agent, "approver": carol} {
			list, err := h.m.Approvals.Approvals(t.Context(), p, client.ApprovalQuery{})
			if err != nil || len(list.Items) != 1 {
				t.Fatalf("%s: %+v, %v", who, list.Items, err)
			}
			mu.Lock()
			to[who] = list.Items[0]
			mu.Unlock()
		}
		h.answer(new(to["approver"]), reject)
		wg.Wait()
		return to
	}
	agents := []string{"maker", "follower", "lister"}
	for _, file := range []string{"open", "secret", "asked"} {
		// As it is, as it would be left, and with so much that it is cut.
		var same []string
		for _, d := range []string{diff, "", strings.Repeat(diff, 5000)} {
			for who, a := range told(file, d) {
				shown, _ := a.Metadata["diff"].(string)
				if !slices.Contains(agents, who) || file == "open" {
					if strings.HasPrefix(shown, diff) != (d != "") {
						t.Errorf("%s, %s: diff %q", file, who, shown)
					}
					continue
				}
				meta, err := json.Marshal(a.Metadata)
				if err != nil || strings.Contains(string(meta), "hunter2") || !strings.Contains(string(meta), `"not_shown":"reading it `) {
					t.Errorf("%s, %s: %s, %v", file, who, meta, err)
				}
				same = append(same, string(meta))
			}
		}
		if slices.Sort(same); len(slices.Compact(same)) > 1 {
			t.Errorf("%s: what agents are told differs by what is in it: %q", file, same)
		}
	}
}
