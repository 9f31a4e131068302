package tool

import (
	"slices"
	"strings"
	"testing"
)

func names(defs []*Definition) string {
	var out []string
	for _, d := range defs {
		out = append(out, d.Name)
	}
	return strings.Join(out, " ")
}

func TestList(t *testing.T) {
	r := NewRegistry()
	if got, want := names(r.List()), "bash read write edit multiedit apply_patch glob grep list todowrite todoread batch skill"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for name, want := range map[string]bool{"bash": true, "file_put": true, "file_get": true, "Bash": false, "": false} {
		if _, got := r.Get(name); got != want {
			t.Errorf("Get(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestOffered(t *testing.T) {
	r := NewRegistry()
	restrictions := map[string]Restriction{
		"edit":  {Providers: []string{"Anthropic", "google"}},
		"write": {Models: []string{"gpt-5*", "openai/*-mini", "exact"}},
		"bash":  {Providers: []string{"openai"}, Models: []string{"*"}},
	}
	for _, tc := range []struct{ provider, model, without string }{
		{"", "", ""},
		{"anthropic", "", "bash"},
		{"openai", "gpt-5.1", "edit"},
		{"openai", "gpt-4", "edit write"},
		{"", "openai/gpt-4/x-mini", ""},
		{"", "openai/gpt-4/x-minimal", "write"},
		{"", "EXACT", ""},
		{"", "exactly", "write"},
	} {
		var missing []string
		offered := r.Set(anyTool).Offered(tc.provider, tc.model, restrictions)
		for _, d := range r.List() {
			if !slices.Contains(offered.Tools, d) {
				missing = append(missing, d.Name)
			}
		}
		without := strings.Fields(tc.without)
		slices.Sort(missing)
		slices.Sort(without)
		if !slices.Equal(missing, without) {
			t.Errorf("%s %s: left out %v, want %v", tc.provider, tc.model, missing, without)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, tc := range []struct {
		pattern, s string
		want       bool
	}{
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"a*b*c", "axbyc", true},
		{"a*b*c", "acb", false},
		{"*", "", true},
		{"**", "x", true},
		{"", "", true},
		{"", "x", false},
		{"*x", "xx", true},
	} {
		if got := matches(tc.pattern, tc.s); got != tc.want {
			t.Errorf("matches(%q, %q) = %v", tc.pattern, tc.s, got)
		}
	}
}
