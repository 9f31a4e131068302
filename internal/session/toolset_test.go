package session

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/testrig"
)

// TestToolSets: profile, tenant and session choose tools; what they leave out is absent, with
// the reason, and its calls do not run, also in a batch.
func TestToolSets(t *testing.T) {
	h := newHouse(t)
	h.set.Choices = judge.Choices{Profiles: map[string][]string{"review": {"read", "grep", "list", "batch"}}, Tenants: map[string][]string{"a": {"-list"}}}
	h.set.Policy = rules(t, "[profile.review]\ndescription = \"x\"\n[permission]\ngrep = \"deny\"")
	h.open()
	s := h.create(alice, client.SessionCreate{Profile: "review", Tools: []string{"-edit", "*"}})
	set, err := h.m.Tools.Tools(t.Context(), alice, client.ToolQuery{Session: s.ID})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(set.Names(), " "); got != "read batch" {
		t.Errorf("has %s", got)
	}
	why := make(map[string]string)
	for _, a := range set.Absent {
		why[a.Name] = a.Why
	}
	for name, want := range map[string]string{
		"bash": "profile review has only read, grep, list, batch", "list": "tenant a leaves it out (-list)", "grep": "the rules deny grep whatever it is for",
	} {
		if why[name] != want {
			t.Errorf("%s: %q, want %q", name, why[name], want)
		}
	}
	c := h.call(s.ID, bashCall("echo no"))
	if c.Error == nil || c.Error.Code != client.CodeUnknownTool || c.Error.Message != "this session has no tool bash: profile review has only read, grep, list, batch" || c.Error.Hint != "the tools are read, batch" {
		t.Errorf("%+v", c.Error)
	}
	if c := h.call(s.ID, batchOf("echo no")); !strings.Contains(c.Output, "[1/1] bash: unknown_tool") || c.ToolSet != set.Revision {
		t.Errorf("%s, %s", c.Output, c.ToolSet)
	}
	if _, err := h.m.Create(t.Context(), alice, client.SessionCreate{Tools: []string{"-bsh"}}); codeOfErr(err) != client.CodeInvalidRequest || !strings.Contains(err.Error(), "did you mean bash?") {
		t.Errorf("%v", err)
	}
	over, err := h.m.calls.ListCalls(t.Context(), alice, s.ID, client.CallQuery{})
	if err != nil || over.Items[0].ToolSet != set.Revision {
		t.Errorf("on record: %+v, %v", over, err)
	}
}

// TestToolsChanged: a session is told when it has other tools, and a call that waits ends as
// stale where its tool is gone.
func TestToolsChanged(t *testing.T) {
	h := newHouse(t)
	h.set.Policy = rules(t, "permission = { bash = \"ask\" }")
	h.open()
	s := h.create(alice, client.SessionCreate{})
	r := bashCall("echo x")
	r.WaitMillis = new(int64)
	c := h.call(s.ID, r)
	testrig.Eventually(t, "it waits", func() bool { return len(h.pending()) == 1 })
	h.reload(func(set *Settings) { set.Choices.Tenants = map[string][]string{"b": {"read"}} })
	h.reload(func(set *Settings) { set.Choices.Tenants = map[string][]string{"a": {"-bash"}} })
	if c := h.finished(c.ID); c.Error == nil || c.Error.Code != client.CodeStale || !strings.Contains(c.Error.Message, "it has no bash any more; tenant a leaves it out") {
		t.Errorf("%+v", c.Error)
	}
	var changed client.ToolsChanged
	events, err := h.m.Events.Events(t.Context(), alice, event.Filter{Stored: true, Type: client.EventToolsChanged})
	if err != nil {
		t.Fatal(err)
	}
	var data json.RawMessage // of one: the first change was of the tools of others
	for e := range events {
		if e.Type == client.EventToolsChanged { // and not the end of the list
			data = append(data, e.Data...)
		}
	}
	if json.Unmarshal(data, &changed) != nil || strings.Join(changed.Removed, " ") != "bash" || len(changed.Added) != 0 {
		t.Errorf("told %s", data)
	}
}

// TestOlderAgent: tools that the agent of a session has not, since an older toold has made it,
// are not offered, and a call of one says what helps; also one that is never offered.
func TestOlderAgent(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	names := func() (all []string, why map[string]string) {
		t.Helper()
		set, err := h.m.Tools.Tools(t.Context(), alice, client.ToolQuery{Session: s.ID})
		if err != nil {
			t.Fatal(err)
		}
		why = make(map[string]string)
		for _, a := range set.Absent {
			why[a.Name] = a.Why
		}
		return set.Names(), why
	}
	all, _ := names()
	lacks := []string{"multiedit", "grep", "file_get"}
	restart := func(lacks []string) {
		t.Helper()
		h.stop()
		h.host.box(s.ID).mu.Lock()
		h.host.box(s.ID).lacks = lacks
		h.host.box(s.ID).mu.Unlock()
		h.open()
	}
	const older = "it was made by an older toold: create another session"
	restart(lacks)
	has, why := names()
	if gone := without(slices.Clone(all), has); !slices.Equal(gone, []string{"multiedit", "grep"}) && !slices.Equal(gone, []string{"grep", "multiedit"}) {
		t.Errorf("not offered: %v", gone)
	}
	if why["grep"] != older || why["multiedit"] != older {
		t.Errorf("absent: %v", why)
	}
	c := h.call(s.ID, client.CallCreate{Tool: "grep", Input: json.RawMessage(`{"pattern":"x"}`)})
	if c.Error == nil || c.Error.Code != client.CodeUnknownTool || !strings.Contains(c.Error.Message, older) || c.Error.Hint == "" {
		t.Errorf("a call of one: %+v", c.Error)
	}
	if _, _, err := h.m.Files.Download(t.Context(), alice, s.ID, "x"); codeOfErr(err) != client.CodeUnknownTool || !strings.Contains(err.Error(), "older toold") {
		t.Errorf("a download: %v", err)
	}
	if c := h.call(s.ID, bashCall("true")); c.Error != nil {
		t.Errorf("what it has: %+v", c.Error)
	}
	restart(nil)
	if has, _ := names(); !slices.Equal(has, all) {
		t.Errorf("of an agent with all: %v", has)
	}
}
