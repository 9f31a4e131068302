package shell_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run/readrule"
	"github.com/toold/toold/internal/tool/shell"
)

// Ways to run a script and a simple command, with nothing changed.
var (
	aroundScripts  = []string{"bash -c ", "bash -ec ", "/bin/bash -c ", "sh -c ", "dash -c ", "env bash -c ", "env CI=1 bash -c ", "command bash -c ", "env sh -c ", "exec sh -c ", "exec bash -c ", "nice bash -c ", "timeout 5 bash -uc "}
	aroundCommands = []string{"env ", "env CI=1 NO_COLOR=1 ", "command ", "command -- ", "exec ", "nice ", "nice -n 5 ", "timeout -k 1 5 ", "nohup ", "env command exec ", "/usr/bin/env  ", "stdbuf -oL ", "setsid -w ", `"env" nice `}
)

// stricter are the reasons why what is wrapped may be judged as a whole where what it runs is not by itself, each
// with an example. docs/policy.md has them too.
var stricter = []struct{ why, because, wrapped, plain string }{
	{"may run its start-up file first", "bash behind exec takes itself for the first shell, and runs .bashrc where its input is a connection", "exec bash -c ls", "ls"},
	{"read it differently", "another shell reads the script", "sh -c 'builtin exit; ls'", "builtin exit; ls"},
	{"it cannot be parsed", "another shell reads the script", "sh -c 'ls &>a'", "ls &>a"},
	{" -c is only known at run time", "it is an option", "bash -c '+x'", "+x"},
	{"beyond what can be judged", "there are bounds", strings.Repeat("env ", 17) + "ls", "ls"},
}

// TestStricter: the reasons are reasons.
func TestStricter(t *testing.T) {
	t.Parallel()
	for _, s := range stricter {
		if why := opaque(requestsOf(t, s.wrapped, "bash")); !strings.Contains(why, s.why) || opaque(requestsOf(t, s.plain, "bash")) != "" {
			t.Errorf("%s is opaque for %q, want %q: %s", s.wrapped, why, s.why, s.because)
		}
	}
}

// script quotes a text for a shell.
func script(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// requestsOf are those that judge judges; none where no session takes the command.
func requestsOf(t *testing.T, command, reader string) []policy.Request {
	t.Helper()
	input, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		t.Fatal(err)
	}
	inv, err := registry().Parse("bash", input)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(policy.AsWritten(inv, &tool.Reader{Shell: []string{reader}}, policy.Places{Worktree: "/w"}), func(q policy.Request) bool { return q.Permission == policy.PermissionExternal })
}

// outside are the places out of a session with mounts to which a command goes, "" for one that is not known.
func outside(t *testing.T, command string) (all []string) {
	t.Helper()
	input, err := json.Marshal(map[string]string{"command": command})
	testrig.Must(t, err)
	inv, err := registry().Parse("bash", input)
	testrig.Must(t, err)
	for _, q := range policy.AsWritten(inv, &tool.Reader{Shell: []string{"bash"}}, policy.Places{Worktree: "/w", Mounts: []string{"/cache", "/x", "/d"}}) {
		if q.Permission == policy.PermissionExternal && !q.Opaque {
			all = append(all, q.Path)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// patterns of random rules; the rest of them are about what wraps.
var (
	innerPatterns = []string{"*", "*", "git *", "git status", "touch *", "echo *", "ls *", "cat *", "b *", "find *", "printf *", "[ *", "rm *", "./x *", "b", "touch a", "c*", "?s *", "echo a", "cd *", "x=* *"}
	outerPatterns = []string{"env *", "bash *", "bash -c *", "sh -c *", "exec *", "command *", "nice *", "timeout *", "* -c *", "*x*", "* a", "?ash *", "e*", "*"}
)

// TestWrappingChangesNoVerdict: random rules judge a command that is wrapped as they judge it by itself, but for
// lines that are about the wrapper's own line and not about everything, which hold too, and for what is
// judged as a whole there, for one of the reasons above.
func TestWrappingChangesNoVerdict(t *testing.T) {
	t.Parallel()
	var left atomic.Int32
	var mu sync.Mutex
	seen := make(map[policy.Action]int)
	shell.Generate(t, 1_500, 400_000, func(r *rand.Rand, text, simple string) {
		if len(text) > 3000 || strings.ContainsAny(text, "\x00\r") {
			return
		}
		for _, c := range []struct {
			script         bool
			inner, wrapped string
		}{
			{true, text, aroundScripts[r.IntN(len(aroundScripts))] + script(text)},
			{true, text, aroundScripts[r.IntN(len(aroundScripts))] + script(aroundScripts[r.IntN(len(aroundScripts))]+script(text))},
			{false, simple, aroundCommands[r.IntN(len(aroundCommands))] + simple},
			{false, simple, aroundCommands[r.IntN(len(aroundCommands))] + aroundCommands[r.IntN(len(aroundCommands))] + simple},
		} {
			plain, wrapped := requestsOf(t, c.inner, "bash"), requestsOf(t, c.wrapped, "bash")
			if other := strings.ReplaceAll(c.wrapped, "bash -", ""); c.script && strings.Contains(other, "sh -c ") {
				if s := requestsOf(t, c.inner, "sh"); opaque(s) != "" {
					plain = s // another shell reads it
				}
			}
			if plain == nil || wrapped == nil {
				continue
			}
			if why := opaque(wrapped); opaque(plain) == "" && why != "" {
				if !slices.ContainsFunc(stricter, func(s struct{ why, because, wrapped, plain string }) bool { return strings.Contains(why, s.why) }) {
					t.Errorf("%s: %s, which it is not by itself", c.wrapped, why)
				}
				continue
			}
			if opaque(plain) == "" {
				a, b := outside(t, c.inner), outside(t, c.wrapped)
				if !slices.Equal(a, b) {
					t.Errorf("%q goes to %q, and %q by itself to %q", c.wrapped, b, c.inner, a)
				}
				left.Add(int32(min(1, len(a))))
			}
			stack, rules := randomRules(t, r)
			want := stack.Judge(plain).Action
			got := stack.Judge(wrapped)
			if why := opaque(plain); why != "" {
				// The whole is another text: what its parts are judged to be holds for it.
				parts := slices.DeleteFunc(slices.Clone(plain), func(q policy.Request) bool { return q.Opaque })
				if want = stack.Judge(parts).Action; !unread(why) && readrule.Strictness(got.Action) < readrule.Strictness(want) {
					t.Errorf("%q is %s by %s %s, and what is in it by itself %s, with\n%v", c.wrapped, got.Action, got.Rule, got.Pattern, want, rules)
				}
				continue
			}
			for _, q := range wrapped {
				if q.Permission == tool.PermissionBash && !slices.ContainsFunc(plain, func(p policy.Request) bool { return p.Pattern == q.Pattern }) {
					want = strictest(want, own(rules, q))
				}
			}
			if got.Action != want {
				t.Errorf("%q is %s by %s %s, and %q by itself, with its own lines, %s, with\n%v", c.wrapped, got.Action, got.Rule, got.Pattern, c.inner, want, rules)
			}
			mu.Lock()
			seen[want]++
			mu.Unlock()
		}
	})
	if seen[policy.Allow] < 100 || seen[policy.Ask] < 100 || seen[policy.Deny] < 100 {
		t.Errorf("verdicts %v", seen)
	}
	if left.Load() == 0 {
		t.Error("no command goes out of the worktree")
	}
}

// unread reports whether a text is opaque since it is none: what a shell makes of it, it makes of no other.
func unread(why string) bool {
	return strings.HasPrefix(why, "it cannot be parsed") || strings.HasPrefix(why, "it ends in the middle")
}

func opaque(requests []policy.Request) string {
	for _, q := range requests {
		if q.Opaque && q.Permission == tool.PermissionBash {
			return q.Why
		}
	}
	return ""
}

func strictest(a, b policy.Action) policy.Action {
	if readrule.Strictness(b) > readrule.Strictness(a) {
		return b
	}
	return a
}

// own is what the last line says that is about a wrapper's own line and not about everything.
func own(rules []policy.Rule, q policy.Request) policy.Action {
	rest := slices.DeleteFunc(slices.Clone(rules), func(r policy.Rule) bool { return r.Pattern == "*" })
	set, err := policy.Parse("rules.toml", []byte(tomlRules(append([]policy.Rule{{Pattern: "*", Action: policy.Allow}}, rest...))))
	if err != nil {
		panic(err)
	}
	stack, err := set.Stack("", "default")
	if err != nil {
		panic(err)
	}
	q.Wraps = false
	return stack.JudgeOne(&q).Action
}

func randomRules(t *testing.T, r *rand.Rand) (*policy.Stack, []policy.Rule) {
	t.Helper()
	var rules []policy.Rule
	for range r.IntN(7) {
		patterns := innerPatterns
		if r.IntN(4) == 0 {
			patterns = outerPatterns
		}
		rule := policy.Rule{Permission: "bash", Pattern: patterns[r.IntN(len(patterns))], Action: []policy.Action{policy.Allow, policy.Allow, policy.Ask, policy.Deny}[r.IntN(4)]}
		if !slices.ContainsFunc(rules, func(o policy.Rule) bool { return o.Pattern == rule.Pattern }) {
			rules = append(rules, rule)
		}
	}
	return stackOf(t, tomlRules(rules)), rules
}

func tomlRules(rules []policy.Rule) string {
	var b strings.Builder
	b.WriteString("[permission.bash]\n")
	for _, r := range rules {
		fmt.Fprintf(&b, "%s = %q\n", tomlString(r.Pattern), r.Action)
	}
	return b.String()
}
