package session

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool"
)

// batchOf is a batch of calls of bash.
func batchOf(commands ...string) client.CallCreate {
	calls := make([]object, len(commands))
	for i, c := range commands {
		calls[i] = object{"tool": "bash", "input": object{"command": c}}
	}
	return batchOfCalls(calls...)
}

func batchOfCalls(calls ...object) client.CallCreate {
	raw, err := json.Marshal(object{"calls": calls})
	if err != nil {
		panic(err)
	}
	return client.CallCreate{Tool: "batch", Input: raw}
}

// childrenOf are the calls of a batch, in its order.
func childrenOf(t *testing.T, h *house, batch *client.Call) []*client.Call {
	t.Helper()
	raw, err := json.Marshal(batch.Metadata["calls"])
	if err != nil {
		t.Fatal(err)
	}
	var list []struct{ ID string }
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	var all []*client.Call
	for _, v := range list {
		if v.ID != "" {
			all = append(all, h.finished(v.ID))
		}
	}
	return all
}

// TestBatch: each of its calls is a call of its own.
func TestBatch(t *testing.T) {
	h, o := newHouse(t), &told{}
	h.obs, h.audit = []Observer{hookObserver{o}}, o
	h.set.Policy = rules(t, `permission = { bash = { "*" = "allow", "rm *" = "deny" } }`)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	r := batchOfCalls(
		object{"tool": "bash", "input": object{"command": "echo one"}},
		object{"tool": "bash", "input": object{"command": "rm x"}},
		object{"tool": "batch", "input": object{"calls": []object{}}},
		object{"tool": "bash", "input": object{"cmd": 1}},
		object{"tool": "nothing\n", "input": object{}},
		object{"tool": "todoread", "input": "{}"},
	)
	r.MessageID, r.Model = "msg", "some-model"
	c := h.call(s.ID, r)
	if c.Error != nil || c.IsError || c.Title != "6 calls, 4 failed" || c.Metadata["failed"] != 4 {
		t.Fatalf("%+v", c)
	}
	for _, want := range []string{"[1/6] bash: ok", "[2/6] bash: denied: rm x\ndenied: bash \"rm x\"", "[3/6] batch: invalid_input\na batch has no batch in it", "[4/6] bash: invalid_input", "[5/6] nothing\uFFFD: unknown_tool", "[6/6] todoread: ok", "The list of tasks is empty."} {
		if !strings.Contains(c.Output, want) {
			t.Errorf("%q is not in\n%s", want, c.Output)
		}
	}
	all := childrenOf(t, h, c)
	if len(all) != 5 {
		t.Fatalf("%d calls", len(all))
	}
	for _, child := range all {
		if child.Parent != c.ID || child.MessageID != "msg" || child.Model != "some-model" {
			t.Errorf("%+v", child)
		}
	}
	if missing := h.isOnRecord(o, all[0]); missing != nil {
		t.Errorf("missing of the first: %v", missing)
	}
	if v := all[1]; v.Permission == nil || v.Permission.Verdict != "deny" || v.Output == "" {
		t.Errorf("the denied one: %+v", v)
	}
}

// TestBatchOfMany: calls beyond the most are refused by themselves, and many batches at once
// take no more slots than there are, and end.
func TestBatchOfMany(t *testing.T) {
	h := newHouse(t)
	h.set.Limits.Calls = 2
	h.open()
	s := h.create(alice, client.SessionCreate{})
	commands := func(batch, n int) []string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf("echo %d of %d", i, batch)
		}
		return all
	}
	c := h.call(s.ID, batchOf(commands(0, 27)...))
	if got := childrenOf(t, h, c); len(got) != 25 || c.Title != "27 calls, 2 failed" || !strings.Contains(c.Output, "a batch has at most 25 calls, and this is number 26") {
		t.Errorf("%d calls, %s", len(got), c.Title)
	}
	var all sync.WaitGroup
	for b := range 8 {
		all.Go(func() {
			c, err := h.m.calls.Call(t.Context(), alice, s.ID, batchOf(commands(b+1, 25)...), call.Options{})
			if err != nil || c.Title != "25 calls, 0 failed" {
				t.Errorf("batch %d: %+v, %v", b, c, err)
			}
		})
	}
	all.Wait()
	h.settled()
}

// TestBatchWaits: a call that waits for its approval holds up none of the others; who aborts
// the batch aborts it.
func TestBatchWaits(t *testing.T) {
	h := newHouse(t)
	h.set.Limits.Calls = 1
	h.set.Policy = rules(t, `permission = { bash = { "*" = "allow", "ask *" = "ask" } }`)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	r := batchOf("ask me", "echo two", "echo three")
	r.WaitMillis = new(int64)
	c := h.call(s.ID, r)
	testrig.Eventually(t, "the others have ended", func() bool {
		now, err := h.m.calls.GetCall(t.Context(), alice, c.ID)
		return err == nil && now.Metadata["done"] == 2
	})
	if c, err := h.m.calls.AbortCall(t.Context(), alice, c.ID); err != nil || c.Error == nil || c.Error.Code != client.CodeAborted {
		t.Errorf("aborted: %+v, %v", c, err)
	}
	list, err := h.m.calls.ListCalls(t.Context(), alice, s.ID, client.CallQuery{})
	if err != nil || len(list.Items) != 4 {
		t.Fatal(len(list.Items), err)
	}
	for _, v := range list.Items[1:] {
		if !v.Finished() || (v.Error != nil) != (v.Permission.ApprovalID != "") {
			t.Errorf("%+v", v)
		}
	}
}

// TestBatchLoops: a batch again and again is a loop, whatever its calls are.
func TestBatchLoops(t *testing.T) {
	h := newHouse(t)
	h.set.Loop = policy.LoopConfig{Threshold: 3, PollingThreshold: 6, MaxPeriod: 4, HardLimit: 8}
	h.set.Policy = rules(t, `permission = { doom_loop = "deny" }`)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	for i := range 3 {
		c := h.call(s.ID, batchOf("echo a", "echo a", "echo a", "echo a"))
		if looped := c.Error != nil && c.Error.Code == client.CodeDoomLoop; looped != (i == 2) {
			t.Errorf("%d: %+v", i, c.Error)
		}
		if i == 1 {
			h.kill() // what the store says counts alike
			h.open()
		}
	}
}

// TestLoopsInBatches: the calls of batches are part of loops as others are: in one batch, in
// several that differ, and beside calls that stand alone; under the next daemon too.
func TestLoopsInBatches(t *testing.T) {
	h := newHouse(t)
	h.set.Loop = policy.LoopConfig{Threshold: 3, PollingThreshold: 6, MaxPeriod: 4, HardLimit: 8}
	h.set.Policy = rules(t, `permission = { doom_loop = "deny" }`)
	h.open()
	looped := func(list []*client.Call) int {
		return countOf(list, func(v *client.Call) bool { return v.Error != nil && v.Error.Code == client.CodeDoomLoop })
	}

	s := h.create(alice, client.SessionCreate{})
	c := h.call(s.ID, batchOf("echo a", "echo a", "echo a", "echo a", "echo a"))
	if n := looped(childrenOf(t, h, c)); n != 3 || c.Metadata[tool.BatchLooped] != 3 {
		t.Errorf("%d of five equal calls were stopped: %+v", n, c.Metadata)
	}

	s = h.create(alice, client.SessionCreate{})
	for i := range 4 {
		if i == 2 {
			h.kill()
			h.open()
		}
		c := h.call(s.ID, batchOf("echo b", fmt.Sprintf("sleep 0.00%d", i)))
		if n := looped(childrenOf(t, h, c)); n != 0 {
			t.Errorf("%d calls of batch %d were stopped, though others came between", n, i)
		}
	}

	s = h.create(alice, client.SessionCreate{})
	h.call(s.ID, batchOf("echo d"))
	h.kill()
	h.open()
	h.call(s.ID, bashCall("echo d"))
	if c := h.call(s.ID, bashCall("echo d")); c.Error == nil || c.Error.Code != client.CodeDoomLoop {
		t.Errorf("the third of one in a batch and two alone: %+v", c.Error)
	}
}

// TestBatchEndsWithDaemon: the next daemon ends its record; its calls are calls of their own.
func TestBatchEndsWithDaemon(t *testing.T) {
	h := newHouse(t)
	h.set.Policy = rules(t, `permission = { bash = { "*" = "allow", "ask *" = "ask" } }`)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	r := batchOf("ask me", "echo two")
	r.WaitMillis = new(int64)
	c := h.call(s.ID, r)
	testrig.Eventually(t, "one has ended, and the other waits for its approval", func() bool {
		now, err := h.m.calls.GetCall(t.Context(), alice, c.ID)
		return err == nil && now.Metadata["done"] == 1 && len(h.pending()) == 1
	})
	h.kill()
	h.open()
	h.lostOnce(c.ID)
	list, err := h.m.calls.ListCalls(t.Context(), alice, s.ID, client.CallQuery{})
	if err != nil || len(list.Items) != 3 {
		t.Fatal(len(list.Items), err)
	}
	if n := countOf(list.Items, func(v client.Call) bool { return v.Parent == c.ID && v.Status == client.CallPending }); n != 1 {
		t.Errorf("%d wait for their approval, in %+v", n, list.Items)
	}
}

// TestRealBatchEdits: five changes of one file in one batch all land, in order; so do those of
// links to it; what comes back of many reads fits one answer.
func TestRealBatchEdits(t *testing.T) {
	h := newRealHouse(t)
	m := openReal(t, h)
	dir := realTree(t, m, ``, map[string]string{"a": "1\n2\n3\n4\n5\n", "link": "link:a", "long": strings.Repeat("line\n", 3000)})
	s, err := m.Create(t.Context(), mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir}, Limits: client.Limits{Calls: 8}})
	if err != nil {
		t.Fatal(err)
	}
	var calls []object
	for i := 1; i <= 5; i++ {
		name := []string{"a", "./a", "/workspace/a"}[i%3]
		calls = append(calls, object{"tool": "edit", "input": object{"file_path": name, "old_string": fmt.Sprint(i), "new_string": fmt.Sprintf("%d%d", i, i)}})
	}
	calls = append(calls, object{"tool": "read", "input": object{"file_path": "a"}})
	c := realCall(t, m, s.ID, "batch", object{"calls": calls})
	if b, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(b) != "11\n22\n33\n44\n55\n" || c.Metadata["failed"] != 0 || !strings.Contains(c.Output, "5\t55") && !strings.Contains(c.Output, "55") {
		t.Errorf("%q, %v\n%s", b, err, c.Output)
	}
	calls = nil
	for range 25 {
		calls = append(calls, object{"tool": "read", "input": object{"file_path": "long"}})
	}
	c = realCall(t, m, s.ID, "batch", object{"calls": calls})
	if c.Metadata["truncated"] != false || c.Metadata["failed"] != 0 || strings.Count(c.Output, "] read: ok") != 25 || len(c.Output) > 4*51200 {
		t.Errorf("%d bytes, %v", len(c.Output), c.Metadata)
	}
}
