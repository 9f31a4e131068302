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
		if why := opaque(plainScene().requests(t, s.wrapped)); !strings.Contains(why, s.why) || opaque(plainScene().requests(t, s.plain)) != "" {
			t.Errorf("%s is opaque for %q, want %q: %s", s.wrapped, why, s.why, s.because)
		}
	}
}

// script quotes a text for a shell.
func script(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// scene is where a command is judged, and what its call says beside it.
type scene struct {
	workdir, stdin string
	reader         tool.Reader
	places         policy.Places
}

// plainScene is one in which nothing is chosen.
func plainScene() scene {
	return scene{reader: tool.Reader{Shell: []string{"bash"}}, places: policy.Places{Worktree: "/w"}}
}

func randomScene(r *rand.Rand) scene {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	s := plainScene()
	s.workdir = pick("", "", "", "d", "/x", "/cache/a", "/tmp", "..", "/d/x")
	s.stdin = pick("", "", "", "", "", "touch z")
	s.reader.Astray, s.reader.Homeless = r.IntN(4) == 0, r.IntN(4) == 0
	for _, mount := range []string{"/cache", "/x", "/d", "/w/d", "/home/tool/m"} {
		if r.IntN(2) == 0 {
			s.places.Mounts = append(s.places.Mounts, mount)
		}
	}
	if s.places.Alone = r.IntN(2) == 0; s.places.Alone {
		s.places.Closed = (&s.places).Closable()
	}
	s.places.Granted = r.IntN(4) == 0
	return s
}

// requests are those that are judged of a command; none where no session takes it.
func (s scene) requests(t *testing.T, command string) []policy.Request {
	t.Helper()
	input, err := json.Marshal(map[string]string{"command": command, "workdir": s.workdir, "stdin": s.stdin})
	testrig.Must(t, err)
	inv, err := registry().Parse("bash", input)
	if err != nil {
		return nil
	}
	return policy.AsWritten(inv, &s.reader, s.places)
}

// files are where the requests that are about files lead, with all that verdicts depend on and without how each is
// written: what is the same file by two names is one.
func files(requests []policy.Request) (all []string) {
	for _, q := range requests {
		if q.Permission != tool.PermissionBash {
			all = append(all, fmt.Sprintf("%s %q unknown=%v confined=%v weak=%v matched=%v", q.Permission, q.Path, q.Unknown, q.Confined, q.Weak, q.Matched))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// patterns of random rules; the rest of them are about what wraps.
var (
	innerPatterns = []string{"*", "*", "git *", "git status", "touch *", "echo *", "ls *", "cat *", "b *", "find *", "printf *", "[ *", "rm *", "./x *", "b", "touch a", "c*", "?s *", "echo a", "cd *", "x=* *"}
	filePatterns  = []string{"*", "*", "a", "d/*", "/w/*", "/x/*", "/cache", "/cache/*", "/d/x", "/", "/tmp/*", "/dev/*", "~/*", "/home/tool/m/*", "b*", "f", "?", "*/x", "/etc/*"}
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
		var scripts, commands [2]string
		for i := range 2 {
			scripts[i], commands[i] = aroundScripts[r.IntN(len(aroundScripts))], aroundCommands[r.IntN(len(aroundCommands))]
		}
		for _, c := range []struct {
			reader         string // what runs the script, with a shell that may be another one
			inner, wrapped string
		}{
			{scripts[0], text, scripts[0] + script(text)},
			{scripts[1], text, scripts[0] + script(scripts[1]+script(text))},
			{"", simple, commands[0] + simple},
			{"", simple, commands[0] + commands[1] + simple},
		} {
			here := randomScene(r)
			plain, wrapped := here.requests(t, c.inner), here.requests(t, c.wrapped)
			if strings.Contains(strings.ReplaceAll(c.reader, "bash -", ""), "sh -c ") {
				other := here
				other.reader.Shell = []string{"sh"}
				if s := other.requests(t, c.inner); opaque(s) != "" {
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
				a, b := files(plain), files(wrapped)
				if !slices.Equal(a, b) {
					t.Errorf("%q goes to %q, and %q by itself to %q, with %+v", c.wrapped, b, c.inner, a, here)
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
				t.Errorf("%q is %s by %s %s, and %q by itself, with its own lines, %s, with\n%v\n%+v", c.wrapped, got.Action, got.Rule, got.Pattern, c.inner, want, rules, here)
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
	rest := slices.DeleteFunc(slices.Clone(rules), func(r policy.Rule) bool { return r.Permission != tool.PermissionBash || r.Pattern == "*" })
	set, err := policy.Parse("rules.toml", []byte(tomlRules(append([]policy.Rule{{Permission: tool.PermissionBash, Pattern: "*", Action: policy.Allow}}, rest...))))
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
	for range r.IntN(12) {
		rule := policy.Rule{Permission: tool.PermissionBash, Action: []policy.Action{policy.Allow, policy.Allow, policy.Ask, policy.Deny}[r.IntN(4)]}
		patterns := innerPatterns
		switch r.IntN(8) {
		case 0, 1:
			patterns = outerPatterns
		case 2, 3, 4:
			patterns = filePatterns
			rule.Permission = []string{tool.PermissionEdit, policy.PermissionExternal, "read"}[r.IntN(3)]
		}
		rule.Pattern = patterns[r.IntN(len(patterns))]
		if !slices.ContainsFunc(rules, func(o policy.Rule) bool { return o.Permission == rule.Permission && o.Pattern == rule.Pattern }) {
			rules = append(rules, rule)
		}
	}
	return stackOf(t, tomlRules(rules)), rules
}

func tomlRules(rules []policy.Rule) string {
	var b strings.Builder
	for _, r := range rules {
		fmt.Fprintf(&b, "[[rule]]\npermission = %q\npattern = %s\naction = %q\n", r.Permission, tomlString(r.Pattern), r.Action)
	}
	return b.String()
}
