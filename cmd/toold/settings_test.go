package main

import (
	"reflect"
	"testing"

	"github.com/toold/toold/internal/config"
	"github.com/toold/toold/internal/tool"
)

// Every listed tool can be restricted, and what is set for one reaches it alone.
func TestRestrictions(t *testing.T) {
	c := config.Default()
	c.Tools.Grep.Providers, c.Tools.Grep.Models = []string{"anthropic"}, []string{"claude-*"}
	got := sessionSettings(c, "").Restrictions
	for _, d := range tool.NewRegistry().List() {
		want := tool.Restriction{Providers: []string{}, Models: []string{}}
		if d.Name == "grep" {
			want = tool.Restriction{Providers: []string{"anthropic"}, Models: []string{"claude-*"}}
		}
		r, ok := got[d.Name]
		if !ok {
			t.Errorf("%s cannot be restricted", d.Name)
		}
		if len(r.Providers) != len(want.Providers) || len(r.Models) != len(want.Models) || len(want.Models) > 0 && !reflect.DeepEqual(r, want) {
			t.Errorf("%s: got %+v, want %+v", d.Name, r, want)
		}
	}
}

func TestToolSettings(t *testing.T) {
	c := config.Default()
	c.Tools.Edit.Matching, c.Tools.Edit.RequireRead, c.Tools.Write.Durable = "strict", true, true
	got := toolSettings(c)
	if s := string(got["edit"]); s != `{"matching":"strict","require_read":true,"durable":false}` {
		t.Errorf("edit: %s", s)
	}
	if s := string(got["write"]); s != `{"durable":true}` {
		t.Errorf("write: %s", s)
	}
}
