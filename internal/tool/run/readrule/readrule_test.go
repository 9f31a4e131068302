package readrule

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toold/toold/internal/testrig"
)

// compiled is rules as they arrive: as JSON.
func compiled(t testing.TB, r Rules) *Rules {
	t.Helper()
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	out := new(Rules)
	if err := json.Unmarshal(raw, out); err != nil {
		t.Fatal(err)
	}
	out.Compile()
	return out
}

func rule(action, source string, patterns ...string) Rule {
	return Rule{Patterns: patterns, Action: action, Source: source}
}

// TestJudge has one row for each sentence of the comments of Rules.
func TestJudge(t *testing.T) {
	base := []Rule{rule(Allow, "default", "*"), rule(Ask, "env", "**/.env", ".env"), rule(Deny, "key", "*.key")}
	for _, tt := range []struct {
		name         string
		rules        Rules
		path, action string
		source       string
	}{
		{"the zero value allows nothing", Rules{}, "/w/a", Ask, "default"},
		{"no match is an ask", Rules{List: []Rule{rule(Allow, "a", "/b/*")}}, "/w/a", Ask, "default"},
		{"allowed", Rules{Worktree: "/w", List: base}, "/w/a", Allow, "default"},
		{"asked by the path in the worktree", Rules{Worktree: "/w", List: []Rule{base[0], rule(Ask, "x", "x")}}, "/w/x", Ask, "x"},
		{"the worktree ends with a slash", Rules{Worktree: "/", List: []Rule{base[0], rule(Ask, "x", "x")}}, "/x", Ask, "x"},
		{"outside of the worktree only the whole path", Rules{Worktree: "/w", List: []Rule{base[0], rule(Deny, "x", "x")}}, "/wx", Allow, "default"},
		{"beside the worktree with its name", Rules{Worktree: "/w", List: []Rule{base[0], rule(Deny, "x", "x")}}, "/w2/x", Allow, "default"},
		{"denied", Rules{Worktree: "/w", List: base}, "/w/d/x.key", Deny, "key"},
		{"the last match decides", Rules{List: append(slices.Clone(base), rule(Allow, "again", "*.key"))}, "/w/x.key", Allow, "again"},
		{"one of the patterns is enough", Rules{List: base}, "/a/.env", Ask, "env"},
		{"no action of its own: what the rules above say", Rules{List: append(slices.Clone(base), rule("", "own", "*.key")), Above: 3}, "/x.key", Deny, "key"},
		{"only the first Above rules are above", Rules{List: append(slices.Clone(base), rule("", "own", "*.key")), Above: 2}, "/x.key", Allow, "default"},
		{"Above is more than there are", Rules{List: []Rule{rule(Deny, "d", "*"), rule(Allow, "a", "b")}, Above: 9}, "/x", Deny, "d"},
		{"nothing above", Rules{List: []Rule{rule("", "own", "*")}}, "/x", Ask, "default"},
		{"no action above either", Rules{List: []Rule{rule("", "own", "*")}, Above: 1}, "/x", Deny, "own"},
		{"a ceiling denies", Rules{List: base, Ceilings: [][]Rule{{rule(Deny, "c", "*/a")}}}, "/w/a", Deny, "c"},
		{"a ceiling asks", Rules{List: base, Ceilings: [][]Rule{{rule(Ask, "c", "*")}}}, "/w/a", Ask, "c"},
		{"a ceiling allows nothing more", Rules{List: base, Ceilings: [][]Rule{{rule(Allow, "c", "*")}}}, "/x.key", Deny, "key"},
		{"a ceiling without a match", Rules{List: base, Ceilings: [][]Rule{{rule(Deny, "c", "b")}}}, "/w/a", Allow, "default"},
		{"the strictest of the ceilings", Rules{List: base, Ceilings: [][]Rule{{rule(Deny, "c", "*")}, {rule(Ask, "d", "*")}}}, "/w/a", Deny, "c"},
		{"a ceiling's last match", Rules{List: base, Ceilings: [][]Rule{{rule(Deny, "c", "*"), rule(Allow, "d", "*/a")}}}, "/w/a", Allow, "default"},
		{"saved: an ask is an allow", Rules{List: base, Saved: []Rule{rule(Allow, "saved", "*/.env")}}, "/w/.env", Allow, "saved"},
		{"saved says nothing of a deny", Rules{List: base, Saved: []Rule{rule(Allow, "saved", "*")}}, "/w/x.key", Deny, "key"},
		{"saved also where a ceiling asks", Rules{List: base, Ceilings: [][]Rule{{rule(Ask, "c", "*")}}, Saved: []Rule{rule(Allow, "saved", "*")}}, "/w/a", Allow, "saved"},
		{"headless: an ask is a deny", Rules{List: base, Headless: "ci"}, "/w/.env", Deny, "env"},
		{"headless and saved", Rules{List: base, Headless: "ci", Saved: []Rule{rule(Allow, "saved", "*")}}, "/w/.env", Allow, "saved"},
		{"an unknown action is a deny", Rules{List: []Rule{rule("perhaps", "p", "*")}}, "/a", Deny, "p"},
	} {
		if action, source := compiled(t, tt.rules).Judge(tt.path); action != tt.action || source != tt.source {
			t.Errorf("%s: %s by %q, want %s by %q", tt.name, action, source, tt.action, tt.source)
		}
	}
}

// TestRestrict: names alone are hidden by a deny, contents by an ask too.
func TestRestrict(t *testing.T) {
	all := rule(Allow, "default", "*")
	for _, tt := range []struct {
		name            string
		rules           Rules
		contents, names bool
	}{
		{"nothing is known to be allowed", Rules{}, true, true},
		{"all is allowed", Rules{List: []Rule{all}}, false, false},
		{"not by the first rule", Rules{List: []Rule{rule(Ask, "a", "b"), all}}, true, true},
		{"an ask", Rules{List: []Rule{all, rule(Ask, "a", "b")}}, true, false},
		{"an ask that nobody answers", Rules{List: []Rule{all, rule(Ask, "a", "b")}, Headless: "ci"}, true, true},
		{"a deny", Rules{List: []Rule{all, rule(Deny, "a", "b")}}, true, true},
		{"no action of its own", Rules{List: []Rule{all, rule("", "a", "b")}}, false, false},
		{"a ceiling that asks", Rules{List: []Rule{all}, Ceilings: [][]Rule{{}, {rule(Ask, "a", "b")}}}, true, false},
		{"a ceiling that denies", Rules{List: []Rule{all}, Ceilings: [][]Rule{{rule(Deny, "a", "b")}}}, true, true},
		{"a ceiling that allows", Rules{List: []Rule{all}, Ceilings: [][]Rule{{all}}}, false, false},
	} {
		r := compiled(t, tt.rules)
		if contents, names := r.Restrict(false), r.Restrict(true); contents != tt.contents || names != tt.names {
			t.Errorf("%s: contents %v, names %v; want %v, %v", tt.name, contents, names, tt.contents, tt.names)
		}
	}
}

// plainly is what the comments of Rules say, with Go's regular expressions for patterns.
func plainly(r *Rules, path string) (action, source string) {
	rank := map[string]int{Allow: 0, Ask: 1, Deny: 2}
	matches := func(v Rule) bool {
		for _, p := range v.Patterns {
			e := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(p))
			re := regexp.MustCompile("(?s)^(?:" + e + ")$")
			if below, ok := strings.CutPrefix(path, r.Worktree+"/"); re.MatchString(path) || ok && re.MatchString(below) {
				return true
			}
		}
		return false
	}
	last := func(list []Rule) (found Rule, ok bool) {
		for _, v := range list {
			if matches(v) {
				found, ok = v, true
			}
		}
		return found, ok
	}
	action, source = Ask, "default"
	v, ok := last(r.List)
	if ok && v.Action == "" {
		v, ok = last(r.List[:r.Above])
	}
	if ok {
		action, source = v.Action, v.Source
	}
	for _, c := range r.Ceilings {
		if v, ok := last(c); ok && rank[v.Action] > rank[action] {
			action, source = v.Action, v.Source
		}
	}
	if v, ok := last(r.Saved); ok && action == Ask {
		return Allow, v.Source
	}
	if action == Ask && r.Headless != "" {
		action = Deny
	}
	return action, source
}

// randomRules are rules of all lists; those of above have an action.
func randomRules(r *rand.Rand) Rules {
	of := func(all ...string) string { return all[r.IntN(len(all))] }
	list := func(most int, name string, actions ...string) (rules []Rule) {
		for i := range r.IntN(most + 1) {
			v := Rule{Action: of(actions...), Source: fmt.Sprint(name, i)}
			for range 1 + r.IntN(2) {
				v.Patterns = append(v.Patterns, of("*", "*/.env", ".env", "a/*", "/w/a*", "?", "a?c", "*b", "/etc/*", "é*", "*/secret/*", "a*/b"))
			}
			rules = append(rules, v)
		}
		return rules
	}
	rules := Rules{Worktree: of("/w", "/workspace"), List: list(3, "list", Allow, Ask, Deny), Headless: of("", "", "ci")}
	if r.IntN(3) > 0 {
		rules.List = append([]Rule{{Patterns: []string{"*"}, Action: Allow, Source: "first"}}, rules.List...)
	}
	rules.Above = len(rules.List)
	rules.List = append(rules.List, list(2, "own", Allow, Ask, Deny, "")...)
	for i := range r.IntN(3) {
		rules.Ceilings = append(rules.Ceilings, list(2, fmt.Sprint("ceiling", i, "-"), Allow, Ask, Deny))
	}
	rules.Saved = list(2, "saved", Allow)
	return rules
}

// TestRandom: random rules say of random paths what their comments say, and what is faster
// to ask never lets through what they do not allow.
func TestRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	of := func(all ...string) string { return all[r.IntN(len(all))] }
	actions, spared := map[string]int{}, 0
	for range testrig.Rounds(2000) {
		rules := randomRules(r)
		compiled := compiled(t, rules)
		for range 10 {
			dir := of("/w/", "/w/a/", "/workspace/", "/workspace/secret/", "/etc/", "/", "/w/a/secret/", "/wa/", "/w\n/")
			name := of(".env", "a", "b", "abc", "x.key", "é", "\xff", "a b", "..b", "secret")
			path := dir + name
			want, by := plainly(&rules, path)
			got, source := compiled.Judge(path)
			if got != want || source != by {
				t.Fatalf("%q: got %s by %s, want %s by %s: %+v", path, got, source, want, by, rules)
			}
			actions[got]++
			hide := compiled.MayHide(dir, []byte(name))
			if !hide {
				spared++
			}
			if got != Allow && !hide {
				t.Fatalf("%q is not shown, but MayHide is false: %+v", path, rules)
			}
			if got != Allow && !compiled.Restrict(false) || got == Deny && !compiled.Restrict(true) {
				t.Fatalf("%q is not shown, but nothing is restricted: %+v", path, rules)
			}
		}
	}
	if least := testrig.Rounds(2000) / 4; min(actions[Allow], actions[Ask], actions[Deny], spared) < least {
		t.Errorf("too little is shown by %v, and %d of which MayHide is false", actions, spared)
	}
}

// TestAtOnce: many threads of one search ask the same rules.
func TestAtOnce(t *testing.T) {
	rules := compiled(t, Rules{Worktree: "/w", List: []Rule{rule(Allow, "default", "*"), rule(Ask, "a", "*a?é*")}})
	var g sync.WaitGroup
	for range 8 {
		g.Go(func() {
			for range 200 {
				if got, _ := rules.Judge("/w/xabéy"); got != Ask || !rules.MayHide("/w/", []byte("xabéy")) {
					t.Error(got)
					return
				}
			}
		})
	}
	g.Wait()
}
