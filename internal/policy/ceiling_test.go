package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tomltext"
	"github.com/toold/toold/internal/tool/run/readrule"
)

func TestCheckRules(t *testing.T) {
	rules, err := CheckRules("session", []client.RuleOf{
		{Permission: "bash", Pattern: "git push *", Action: "deny"},
		{Permission: "*", Pattern: "*", Action: "ask"},
	})
	if err != nil || len(rules) != 2 || rules[1].Source != "session rule 2" || rules[1].Action != Ask {
		t.Fatalf("got %+v, %v", rules, err)
	}
	_, err = CheckRules("session", []client.RuleOf{
		{Permission: "bash", Pattern: "", Action: "deny"},
		{Permission: "bash", Pattern: "x", Action: "maybe"},
		{Permission: "b\x00", Pattern: "x\xff", Action: "ask"},
		{},
	})
	want := `session rule 1: a pattern is empty: write "*" for everything
session rule 2: "maybe" is not one of "allow", "ask", "deny"
session rule 3: "b\x00" is not a permission: a name has letters, digits, _, -, . and the wildcards * and ?, at most 128
session rule 3: a pattern is text in UTF-8 without NUL bytes
session rule 4: a permission is empty: write "*" for every tool's
session rule 4: a pattern is empty: write "*" for everything
session rule 4: "" is not one of "allow", "ask", "deny"`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if _, err := CheckRules("session", make([]client.RuleOf, MaxRules+1)); err == nil || err.Error() != "there are 201 session rules; at most 200" {
		t.Errorf("got %v", err)
	}
	if _, err := CheckRules("session", make([]client.RuleOf, MaxRules)); strings.Count(err.Error(), "\n") != maxProblems-1 {
		t.Errorf("not %d problems: %v", maxProblems, err)
	}
}

// TestParseCeiling: a worktree may say what is asked about and what is denied in
// it, and nothing else.
func TestParseCeiling(t *testing.T) {
	rules, err := ParseCeiling(".toold/policy.toml", []byte("[permission.edit]\n'go.mod' = { action = 'ask', reason = 'new dependencies' }\n[[rule]]\npermission = 'bash'\npattern = 'rm *'\naction = 'deny'\n"))
	want := []Rule{
		{Permission: "edit", Pattern: "go.mod", Action: Ask, Reason: "new dependencies", Source: ".toold/policy.toml:2"},
		{Permission: "bash", Pattern: "rm *", Action: Deny, Source: ".toold/policy.toml:3"},
	}
	if err != nil || fmt.Sprint(rules) != fmt.Sprint(want) {
		t.Errorf("got %+v, %v", rules, err)
	}
	for _, tt := range []struct{ name, doc, want string }{
		{"profile", "[profile.build.permission]\nbash = 'allow'\n", `f:1: profile has no place here: only permission and rule do`},
		{"tenant", "[tenant.default]\nprofiles = ['build']\n", `f:1: tenant has no place here: only permission and rule do`},
		{"test", "[[test]]\ntool = 'bash'\nexpect = 'allow'\n", `f:1: test has no place here: only permission and rule do`},
		{"another section", "[sandbox]\nrootfs = '/'\n", `f:1: sandbox has no place here: only permission and rule do`},
		{"hook", "[[hook]]\non = 'call.before'\n", `f:1: hook has no place here: only permission and rule do`},
		{"scope of a rule", "[[rule]]\npermission = 'bash'\npattern = 'x'\naction = 'ask'\ntenant = 'x'\n", `f:5: unknown key tenant of a rule: remove it`},
		{"no UTF-8", "# \xff\n", `f: is not text in UTF-8`},
		{"too long", strings.Repeat("#", maxCeilingText+1), `f: has 65537 bytes; at most 65536`},
		{"too deep", "a = " + strings.Repeat("[", 20000) + strings.Repeat("]", 20000), `f:1: is nested more than 5 deep: remove what is deeper`},
		{"too many parts", "a" + strings.Repeat(".a", 20000) + " = 1\n", `f:1: is nested more than 5 deep: remove what is deeper`},
		{"too deep a table", "\n[a.b.c.d.e.f]\n", `f:2: is nested more than 5 deep: remove what is deeper`},
		{"syntax", "[permission]\nbash = = 1\n", `f:2: expected value but found '=' instead`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules, err := ParseCeiling("f", []byte(tt.doc))
			if err == nil || err.Error() != tt.want || rules != nil {
				t.Errorf("got  %v, %v\nwant %s", rules, err, tt.want)
			}
		})
	}
}

func TestParseCeilingBounds(t *testing.T) {
	var many, wrong strings.Builder
	many.WriteString("[permission.bash]\n")
	wrong.WriteString("[permission.bash]\n")
	for i := range MaxRules + 1 {
		fmt.Fprintf(&many, "'%d' = 'ask'\n", i)
		fmt.Fprintf(&wrong, "'%d' = 'no'\n", i)
	}
	if _, err := ParseCeiling("f", []byte(many.String())); err == nil || err.Error() != "f:202: there are more than 200 rules" {
		t.Errorf("got %v", err)
	}
	_, err := ParseCeiling("f", []byte(wrong.String()))
	if p := tomltext.Problems(err); len(p) != maxProblems+1 || p[maxProblems].String() != "f:22: and 182 more problems from here on" {
		t.Errorf("got %d problems: %v", len(p), err)
	}
}

// TestHostileCeiling: the largest texts that are read at all, of the shapes that
// cost parsers most. The bound is a hundred times what they take.
func TestHostileCeiling(t *testing.T) {
	start := testrig.Spent(t)
	for _, doc := range []string{
		"a = " + strings.Repeat("[", 60000),
		"a" + strings.Repeat(".a", 30000) + " = 1\n",
		"[a" + strings.Repeat(".a", 30000) + "]\n",
		strings.Repeat("[[a]]\n", 10000),
		"a = " + strings.Repeat("{a=", 16000) + "1" + strings.Repeat("}", 16000),
		strings.Repeat("a.a.a.a.a.a.a.a=1\n", 3000),
		"a = \"" + strings.Repeat("\\u0041", 10000) + "\"\n",
		"[permission]\n" + strings.Repeat("a.b.c.d=1\n", 6000),
		"[permission.a]\nb = [" + strings.Repeat("{}, ", 16000) + "]\n",
		strings.Repeat("#", maxCeilingText),
	} {
		if _, err := ParseCeiling("f", []byte(doc)); err == nil && doc[0] != '#' {
			t.Errorf("%.20q was accepted", doc)
		}
	}
	if d := testrig.Spent(t) - start; d > 20*time.Second {
		t.Errorf("took %v", d)
	}
}

// FuzzParseCeiling: a worktree's rules never allow what the rules above do not.
func FuzzParseCeiling(f *testing.F) {
	f.Add("[permission]\n\"*\" = \"allow\"\nbash = { \"*\" = \"ask\" }\n")
	f.Add("[[rule]]\npermission = \"edit\"\npattern = \"**/x\"\naction = \"deny\"\n")
	f.Add("rule = [ { permission = \"*\", pattern = \"*\", action = \"allow\" } ]")
	f.Fuzz(func(t *testing.T, doc string) {
		rules, err := ParseCeiling("f", []byte(doc))
		if err != nil {
			return
		}
		base := Default().stack(DefaultProfile, "default")
		s := base.With(Ceiling{"worktree", rules})
		for _, q := range []Request{
			{Permission: "bash", Pattern: "x y"},
			{Permission: "bash", Pattern: "x $(y)", Opaque: true},
			{Permission: "read", Pattern: ".env", Path: "/workspace/.env", Relative: ".env"},
			{Permission: PermissionDoomLoop, Pattern: "bash"},
			{Permission: "question", Pattern: "x"},
		} {
			was, is := base.Judge([]Request{q}), s.Judge([]Request{q})
			if readrule.Strictness(is.Action) < readrule.Strictness(was.Action) {
				t.Fatalf("%+v: %s became %s by %s", q, was.Action, is.Action, is.Rule)
			}
		}
	})
}
