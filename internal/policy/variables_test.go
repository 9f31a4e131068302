package policy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/toold/toold/internal/tool/run/readrule"
)

// TestVariablesBefore: of the lines that match a command with harmless variables in front, or without
// them, the last decides; a line that denies either form stands.
func TestVariablesBefore(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rules, command string
		want           Action
	}{
		{`"npm *" = "ask", "CI=true npm test" = "allow"`, "CI=true npm test", Allow},
		{`"npm *" = "ask", "CI=true npm test" = "allow"`, "npm test", Ask},
		{`"npm *" = "ask", "CI=true npm test" = "allow"`, "CI=true npm test; npm test", Ask},
		{`"npm *" = "ask", "CI=true npm test" = "allow"`, "CI=false npm test", Ask},
		{`"CI=* *" = "ask", "npm test *" = "allow"`, "CI=true npm test", Allow},
		{`"npm test *" = "allow", "CI=* *" = "ask"`, "CI=true npm test", Ask},
		{`"CI=* *" = "deny", "npm test *" = "allow"`, "CI=true npm test", Deny},
		{`"npm *" = "deny", "CI=* *" = "allow"`, "CI=true npm test", Deny},
		{`"CI=* *" = "deny", "CI=* npm *" = "ask", "npm test" = "allow"`, "CI=true npm test", Allow},
		{`"*" = "deny", "CI=* npm *" = "allow"`, "CI=true npm test", Deny}, // without them it is denied
		{`"*" = "deny", "npm *" = "allow"`, "CI=true npm test", Allow},
		{`"CI=true npm test" = "allow"`, `CI=true  "npm" test`, Allow},
		{`"CI=true NO_COLOR=1 npm test" = "allow"`, "CI=true  NO_COLOR=1 npm test", Allow},
		{`"CI=true git *" = "allow"`, "CI=true git -C x push", Allow},
		{`"CI=true git *" = "allow", "git push" = "ask"`, "CI=true git -C x push", Ask},
		{`"npm *" = "allow", "npm publish *" = "ask"`, "CI=true npm --registry x publish", Ask},
		{`"kubectl *" = "allow", "kubectl delete *" = "ask"`, "NO_COLOR=1 kubectl -n p delete pod x", Ask},
		{`"CI=true ./x.sh" = "allow"`, "CI=true ./x.sh", Allow},
		{`"CI=true ./x.sh" = "allow", "cd *" = "allow"`, "cd sub && CI=true ./x.sh", Ask},
		{`"CI=true ./sub/x.sh" = "allow", "cd *" = "allow"`, "cd sub && CI=true ./x.sh", Allow},
		{`"FOO=* *" = "allow", "npm *" = "allow"`, "FOO=true npm test", Ask},
		// A line is about every spelling of a variable, and wherever it stands.
		{`"*" = "allow", "GOOS=js *" = "deny"`, `GOOS="js" go build`, Deny},
		{`"*" = "allow", "GOOS=js *" = "deny"`, `GOOS='j'\s go build`, Deny},
		{`"*" = "allow", "GOOS=js *" = "deny"`, `GOOS=$'\x6as' go build`, Deny},
		{`"*" = "allow", "GOOS=js *" = "deny"`, `CI=1 GOOS=js go build`, Deny},
		{`"*" = "allow", "GOOS=js *" = "deny"`, `env GOOS=js go build`, Deny},
		{`"*" = "allow", "GOOS=js go *" = "deny"`, `GOOS=js nice go build`, Deny},
		{`"*" = "allow", "GOOS=js go *" = "ask"`, `CI=1 GOOS="js" go build`, Ask},
		{`"*" = "allow", "GOOS=js *" = "deny"`, `export GOOS="js"; go build`, Deny},
		{`"*" = "allow", "GOOS=js *" = "deny"`, `GOOS="js"; go build`, Deny},
		{`"*" = "allow", "FOO=a b *" = "deny"`, `FOO='a b' make`, Deny},
		{`"go *" = "allow", "GOOS=js *" = "deny", "GOOS=js go vet" = "allow"`, `GOOS="js" go vet`, Allow},
		{`"go *" = "allow", "GOOS=js *" = "deny", "CI=1 GOOS=js go vet" = "allow"`, `CI=1 GOOS="js" go vet`, Allow},
		{`"CI=\"true\" *" = "deny", "npm *" = "allow"`, `CI="true" npm test`, Deny},
	} {
		rules := tt.rules
		if !strings.HasPrefix(rules, `"*" = `) {
			rules = `"*" = "ask", ` + rules
		}
		s := stackOf(t, "permission.bash = { "+rules+" }\n")
		if v := s.Judge(onlyBash(ofCommand(t, tt.command, ""))); v.Action != tt.want {
			t.Errorf("%s: %s is %s by %s, want %s", tt.rules, tt.command, v.Action, v.Pattern, tt.want)
		}
	}
}

// TestVariablesByRandomRules: the same, of random lines of the list and of a ceiling.
func TestVariablesByRandomRules(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	patterns := []string{"*", "npm *", "npm test", "npm publish", "CI=* *", "CI=true *", "CI=true npm test", "CI=* npm *", "* npm *", "NO_COLOR=* *", "**"}
	seen := make(map[Action]int)
	for range 2000 {
		var lists [2][]Rule
		for i := range lists {
			for range r.IntN(5) {
				lists[i] = append(lists[i], Rule{Permission: "bash", Pattern: patterns[r.IntN(len(patterns))], Action: []Action{Allow, Ask, Deny}[r.IntN(3)], Source: fmt.Sprint(i)})
			}
		}
		s := (&Stack{list: compileAll(lists[0])}).With(Ceiling{"session", lists[1]})
		plain := []string{"npm test", "npm publish"}[r.IntN(2)]
		for _, command := range []string{"CI=true " + plain, `CI=true  "npm" ` + strings.TrimPrefix(plain, "npm ")} {
			last := func(rules []Rule, every bool, forms ...string) (found Action) {
				for _, rule := range compileAll(rules) {
					for _, form := range forms {
						if rule.text.match(form) && (every || !rule.everything()) {
							found = rule.Action
						}
					}
				}
				return found
			}
			want := Action("")
			for i, rules := range lists {
				v := last(rules, true, plain, "CI=true "+plain)
				if last(rules, true, plain) == Deny || last(rules, false, "CI=true "+plain) == Deny {
					v = Deny
				}
				if v == "" && i == 0 {
					v = Ask
				}
				if want == "" || v != "" && readrule.Strictness(v) > readrule.Strictness(want) {
					want = v
				}
			}
			if v := s.Judge(onlyBash(ofCommand(t, command, ""))); v.Action != want {
				t.Errorf("%v: %s is %s by %s %q, want %s", lists, command, v.Action, v.Rule, v.Pattern, want)
			}
			seen[want]++
		}
	}
	if seen[Allow] < 200 || seen[Ask] < 200 || seen[Deny] < 200 {
		t.Errorf("verdicts %v", seen)
	}
}
