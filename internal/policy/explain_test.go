package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/internal/tool"
)

// line is what matters of an explanation, a match a line.
func lineOf(s *Stack, q Request) string {
	e := s.Explain([]Request{q})[0]
	var b strings.Builder
	fmt.Fprintf(&b, "%s by %s", e.Action, e.Rule)
	if e.Why != "" {
		fmt.Fprintf(&b, ": %s", e.Why)
	}
	for _, m := range e.Matches {
		mark := " "
		if m.Winner {
			mark = "*"
		}
		fmt.Fprintf(&b, "\n%s %s: %s %q %s (%s)", mark, m.Layer, m.Permission, m.Pattern, m.Action, m.Source)
	}
	return b.String()
}

func TestExplain(t *testing.T) {
	f := readFacts(t, "testdata/ceilings.txtar")
	f.saved = []Rule{{Permission: "bash", Pattern: "git commit *", Source: "approval apr_1"}}
	for _, tt := range []struct {
		as, want string
		q        Request
	}{
		{"as tenant=ci", `deny by rules.toml:10
  rules: * "*" allow (default)
  rules: bash "*" ask (rules.toml:2)
* rules: bash "git *" allow (rules.toml:3)
* tenant ci: bash "git push *" deny (rules.toml:10)
* worktree: * "*" allow (worktree.toml:2)`, Request{Permission: "bash", Pattern: "git push"}},
		{"as tenant=ci", `allow by approval apr_1
  rules: * "*" allow (default)
  rules: bash "*" ask (rules.toml:2)
* rules: bash "git *" allow (rules.toml:3)
* session: bash "git commit *" ask (session rule 1)
* worktree: * "*" allow (worktree.toml:2)
* saved: bash "git commit *" allow (approval apr_1)`, Request{Permission: "bash", Pattern: "git commit"}},
		{"as profile=ci", `deny by rules.toml:2: it would be asked about, and with the profile ci nobody is asked
  rules: * "*" allow (default)
* rules: bash "*" ask (rules.toml:2)
* worktree: * "*" allow (worktree.toml:2)`, Request{Permission: "bash", Pattern: "ls"}},
		{"as profile=explore", `allow by rules.toml:3
  rules: * "*" allow (default)
  rules: bash "*" ask (rules.toml:2)
* rules: bash "git *" allow (rules.toml:3)
  rules: * "*" deny (profile explore (built in))
  rules: bash "*" above (profile explore (built in))
* worktree: * "*" allow (worktree.toml:2)`, Request{Permission: "bash", Pattern: "git log"}},
		{"as tenant=x", `ask by rules.toml:2
  rules: * "*" allow (default)
* rules: bash "*" ask (rules.toml:2)
* worktree: * "*" allow (worktree.toml:2)`, Request{Permission: "bash", Pattern: "git $(x)", Opaque: true}},
	} {
		if got := lineOf(f.stack(t, tt.as), tt.q); got != tt.want {
			t.Errorf("%s %s:\n%s\nwant\n%s", tt.as, tt.q.Pattern, got, tt.want)
		}
	}
	if got := lineOf(&Stack{}, Request{Permission: "bash", Pattern: "ls"}); got != "ask by default: no rule is about it" {
		t.Errorf("no rules: %s", got)
	}
}

// TestJudgeMany: a call with many requests is judged by the strictest, and what
// is to be asked about is all of it.
func TestJudgeMany(t *testing.T) {
	f := readFacts(t, "testdata/last-match.txtar")
	s := f.stack(t, "")
	bash := func(text string) Request { return Request{Permission: "bash", Pattern: text} }
	for _, tt := range []struct {
		requests []Request
		want     string
	}{
		{nil, "allow by default: [] []"},
		{[]Request{bash("git log"), bash("git status")}, "allow by rules.toml:6: [git log] []"},
		{[]Request{bash("git log"), bash("make"), bash("ls")}, "ask by rules.toml:5: [make] [make ls]"},
		{[]Request{bash("make"), bash("git push"), bash("ls")}, "deny by rules.toml:7: [git push] []"},
	} {
		v := s.Judge(tt.requests)
		var pending []string
		for _, q := range v.Pending {
			pending = append(pending, q.Pattern)
		}
		if got := fmt.Sprintf("%s by %s: [%s] %v", v.Action, v.Rule, v.Request.Pattern, pending); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

// TestStacksAreImmutable: what is added to one stack is not in another.
func TestStacksAreImmutable(t *testing.T) {
	base, err := Default().Stack("", "default")
	if err != nil {
		t.Fatal(err)
	}
	q := []Request{{Permission: "bash", Pattern: "ls"}, {Permission: PermissionExternal, Path: "/srv/x"}}
	a := base.With(Ceiling{"a", []Rule{{Permission: "bash", Pattern: "*", Action: Deny, Source: "a"}}})
	b := base.With(Ceiling{"b", []Rule{{Permission: "bash", Pattern: "*", Action: Ask, Source: "b"}}}).
		Remember([]Rule{{Permission: PermissionExternal, Pattern: "/srv/*", Source: "s"}})
	for _, tt := range []struct {
		s    *Stack
		want string
	}{{base, "ask default"}, {a, "deny a"}, {b, "ask b"}, {a.With(), "deny a"}, {base.Remember(nil), "ask default"}} {
		v := tt.s.Judge(q)
		if got := fmt.Sprintf("%s %s", v.Action, v.Rule); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
	// Lists with room to grow must not be shared either.
	grown := base
	for range 3 {
		grown = grown.With(Ceiling{Name: "none"}).Remember([]Rule{{Permission: "none", Pattern: "none"}})
	}
	one := grown.With(Ceiling{"a", []Rule{{Permission: "bash", Pattern: "*", Action: Ask, Source: "a"}}}).
		Remember([]Rule{{Permission: "bash", Pattern: "ls", Source: "one"}})
	grown.With(Ceiling{"b", []Rule{{Permission: "bash", Pattern: "*", Action: Deny, Source: "b"}}}).
		Remember([]Rule{{Permission: "bash", Pattern: "other"}})
	if v := one.Judge(q[:1]); v.Action != Allow || v.Rule != "one" {
		t.Errorf("shared: got %s by %s", v.Action, v.Rule)
	}
	one = grown.With(Ceiling{"a", []Rule{{Permission: "bash", Pattern: "*", Action: Ask, Source: "a"}}})
	two := one.Remember([]Rule{{Permission: "bash", Pattern: "ls", Source: "two"}})
	one.Remember([]Rule{{Permission: "bash", Pattern: "other", Source: "x"}})
	if v := two.Judge(q[:1]); v.Rule != "two" {
		t.Errorf("shared approvals: got %s by %s", v.Action, v.Rule)
	}
	if base.Headless() || a.Hidden("edit") || !a.Hidden("bash") {
		t.Error("hidden or headless")
	}
	if ci, err := Default().Stack("ci", "x"); err != nil || !ci.Headless() {
		t.Errorf("ci: %v", err)
	}
}

// TestUnknownActionIsDeny: a rule from a store that this version cannot read is
// no loophole.
func TestUnknownActionIsDeny(t *testing.T) {
	s := Default().stack("build", "default").With(Ceiling{"session", []Rule{{Permission: "bash", Pattern: "*", Action: "perhaps", Source: "x"}}})
	if v := s.Judge([]Request{{Permission: "bash", Pattern: "ls"}}); v.Action != Deny || v.Rule != "x" {
		t.Errorf("got %+v", v)
	}
}

func TestRequests(t *testing.T) {
	p := &Places{Worktree: "/workspace", Dir: "/workspace", Mounts: []string{"/usr/local/cache", "/srv/data"}, Resolve: func(asked string) (Resolved, bool) {
		switch asked {
		case "link":
			return Resolved{Path: "/srv/data/file"}, true
		case "gone":
			return Resolved{}, false
		case "/srv/dir":
			return Resolved{Path: asked, Dir: true}, true
		}
		return lexical(Workspace, "").Resolve(asked)
	}}
	for _, tt := range []struct {
		name string
		r    []tool.Request
		want []Request
	}{
		{"text", []tool.Request{{Permission: "bash", Pattern: "ls", Save: "ls *"}}, []Request{{Permission: "bash", Pattern: "ls", Save: "ls *"}}},
		{
			"in the worktree",
			[]tool.Request{{Permission: "read", Pattern: "a/b", Path: "a/b"}},
			[]Request{{Permission: "read", Pattern: "a/b", Path: "/workspace/a/b", Relative: "a/b", Save: "a/b"}},
		},
		{
			"the worktree",
			[]tool.Request{{Permission: "list", Pattern: ".", Path: "."}},
			[]Request{{Permission: "list", Pattern: ".", Path: "/workspace", Relative: ".", Save: "/workspace"}},
		},
		{
			"a name with a wildcard",
			[]tool.Request{{Permission: "read", Pattern: "a*", Path: "a*"}},
			[]Request{{Permission: "read", Pattern: "a*", Path: "/workspace/a*", Relative: "a*"}},
		},
		{"through a link", []tool.Request{{Permission: "edit", Pattern: "link", Path: "link", Write: true}}, []Request{
			{Permission: "edit", Pattern: "link", Path: "/srv/data/file", Save: "/srv/data/file"},
			{Permission: PermissionExternal, Pattern: "link", Path: "/srv/data/file", Save: "/srv/data/*"},
		}},
		{"a search", []tool.Request{{Permission: "grep", Pattern: "x", Path: "a", Search: true}}, []Request{
			{Permission: "grep", Pattern: "x"},
			{Permission: "grep", Pattern: "a", Path: "/workspace/a", Relative: "a", Save: "a"},
		}},
		{"not to be found out", []tool.Request{{Permission: "read", Pattern: "gone", Path: "gone", Save: "x"}}, []Request{
			{Permission: "read", Pattern: "gone", Opaque: true, Why: whyUnresolved},
			{Permission: PermissionExternal, Pattern: "gone", Opaque: true, Unknown: true, Why: whyUnresolved},
		}},
		{"another file for each process", []tool.Request{
			{Permission: "edit", Pattern: "/proc/7/fd/1", Path: "/proc/7/fd/1", Write: true},
			{Permission: "edit", Pattern: "/dev/../dev/fd/3", Path: "/dev/../dev/fd/3", Write: true},
			{Permission: "read", Pattern: "/proc/cpuinfo", Path: "/proc/cpuinfo"},
		}, []Request{
			{Permission: "edit", Pattern: "/proc/7/fd/1", Opaque: true, Unknown: true, Why: whyUnresolved},
			{Permission: PermissionExternal, Pattern: "/proc/7/fd/1", Opaque: true, Unknown: true, Why: whyUnresolved},
			{Permission: "edit", Pattern: "/dev/../dev/fd/3", Opaque: true, Unknown: true, Why: whyUnresolved},
			{Permission: PermissionExternal, Pattern: "/dev/../dev/fd/3", Opaque: true, Unknown: true, Why: whyUnresolved},
			{Permission: "read", Pattern: "/proc/cpuinfo", Path: "/proc/cpuinfo", Save: "/proc/cpuinfo"},
		}},
		{"known to the command alone", []tool.Request{
			{Permission: "edit", Pattern: "src/$X", Write: true, Save: "src/*"},
			{Permission: PermissionExternal, Pattern: "/srv/$X", Outside: true},
		}, []Request{
			{Permission: "edit", Pattern: "src/$X", Opaque: true, Unknown: true, Why: whyRuntime},
			{Permission: PermissionExternal, Pattern: "/srv/$X", Opaque: true, Unknown: true, Why: whyRuntime},
		}},
		{"opaque", []tool.Request{{Permission: "bash", Pattern: "eval $X", Opaque: true, Why: "so"}}, []Request{
			{Permission: "bash", Pattern: "eval $X", Opaque: true, Why: "so"},
		}},
		{"only named", []tool.Request{
			{Permission: PermissionExternal, Path: "/etc/passwd", Outside: true},
			{Permission: PermissionExternal, Path: "/etc/motd", Outside: true, Write: true},
			{Permission: PermissionExternal, Path: "/usr/local/cache/x", Outside: true},
			{Permission: PermissionExternal, Path: "/tmp/x", Outside: true, Write: true},
			{Permission: PermissionExternal, Path: "/dev/null", Outside: true, Write: true},
			{Permission: PermissionExternal, Path: "/home/tool/x", Outside: true, Write: true},
			{Permission: PermissionExternal, Path: "/srv/dir", Outside: true, Write: true},
			{Permission: PermissionExternal, Path: "link", Outside: true},
			{Permission: PermissionExternal, Path: "/srv/data/file", Outside: true},
			{Permission: PermissionExternal, Path: "/x", Outside: true, Write: true},
		}, []Request{
			{Permission: PermissionExternal, Pattern: "/etc/motd", Path: "/etc/motd", Save: "/etc/*"},
			{Permission: PermissionExternal, Pattern: "/usr/local/cache/x", Path: "/usr/local/cache/x", Save: "/usr/local/cache/*"},
			{Permission: PermissionExternal, Pattern: "/srv/dir", Path: "/srv/dir", Save: "/srv/dir"},
			{Permission: PermissionExternal, Pattern: "link", Path: "/srv/data/file", Save: "/srv/data/*"},
			{Permission: PermissionExternal, Pattern: "/x", Path: "/x"},
		}},
	} {
		if got := p.Requests(tool.Access{Requests: tt.r}); !slices.Equal(got, tt.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", tt.name, got, tt.want)
		}
	}
}
