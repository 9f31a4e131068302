package policy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/toold/toold/internal/tool/run/readrule"
)

// TestFileRulesAgree: what tools in the sandbox keep to is what the daemon judges,
// for random rules of all layers, every profile and random paths.
func TestFileRulesAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	of := func(all ...string) string { return all[r.IntN(len(all))] }
	pattern := func() string {
		return of("*", "**/.env", "**/.env.*", "a/*", "a/*/c", "~/x*", Home+"/*", "/workspace/a*", "*b", "a?c", "b *", "/etc/*", ".", "**/b *", "a", "c.b")
	}
	action := func() string { return of("allow", "ask", "deny") }
	list := func(n int) (rules []Rule) {
		for i := range r.IntN(n) {
			rules = append(rules, Rule{Permission: of("read", "edit", "*", "grep", "r*", "e*"), Pattern: pattern(), Action: Action(action()), Source: fmt.Sprint("rule ", i)})
		}
		return rules
	}
	for range 2000 {
		var text strings.Builder
		for range r.IntN(4) {
			fmt.Fprintf(&text, "[[rule]]\npermission = %q\npattern = %q\naction = %q\n", of("read", "*", "edit"), pattern(), action())
		}
		for _, v := range list(2) {
			fmt.Fprintf(&text, "[profile.own]\npermission = { %s = { %q = %q } }\n", of("read", "edit"), v.Pattern, v.Action)
		}
		set, err := Parse("r", []byte(text.String()))
		if err != nil {
			t.Fatalf("%s: %v", text.String(), err)
		}
		profile := of("build", "plan", "explore", "general", "ci", "own")
		s, err := set.Stack(profile, "default")
		if err != nil {
			s, _ = set.Stack("", "default")
		}
		s = s.With(Ceiling{"one", list(3)}, Ceiling{"two", list(3)}).Remember(list(3))
		permission := of("read", "edit")
		raw, err := json.Marshal(s.FileRules(permission, "/workspace"))
		if err != nil {
			t.Fatal(err)
		}
		var rules readrule.Rules
		if err := json.Unmarshal(raw, &rules); err != nil {
			t.Fatal(err)
		}
		rules.Compile()
		for range 20 {
			path := of("/workspace/", "/workspace/a/", "/workspace/a/b/", "/", "/etc/", Home+"/", "/workspacex/", "/workspace/~/") + of(".env", ".env.x", "a", "b", "abc", "c.b", "x", "b c", "c")
			want := s.Judge([]Request{{Permission: permission, Pattern: path, Path: path, Relative: RelativeTo("/workspace", path)}})
			got, source := rules.Judge(path)
			if got != string(want.Action) || source != want.Rule {
				t.Fatalf("%s with the profile %s and\n%s%s\ngot %s by %s, want %s by %s", path, profile, text.String(), raw, got, source, want.Action, want.Rule)
			}
			dir, name := path[:strings.LastIndexByte(path, '/')+1], path[strings.LastIndexByte(path, '/')+1:]
			if got != "allow" && !rules.MayHide(dir, []byte(name)) {
				t.Fatalf("%s is not shown, but MayHide is false for %s", path, raw)
			}
			if got != "allow" && !rules.Restrict(false) || got == "deny" && !rules.Restrict(true) {
				t.Fatalf("%s is not shown, but %s restricts nothing", path, raw)
			}
		}
	}
}
