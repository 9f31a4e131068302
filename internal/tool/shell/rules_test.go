package shell_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/shell"
)

// harmlessRules allow what looks harmless and nothing else.
const harmlessRules = `
[permission]
"*" = "deny"
[permission.bash]
"*" = "deny"
"echo *" = "allow"
"ls *" = "allow"
"git status" = "allow"
"find *" = "allow"
"cat *" = "allow"
"touch *" = "deny"
`

func init() { shell.Denied = denied }

// registry is made once: that takes longer than to judge by it.
var registry = sync.OnceValue(func() *tool.Registry { return tool.NewRegistry() })

// denied is shell.Denied, by the rules.
func denied(t testing.TB, o shell.Options, home, text, file string) bool {
	if strings.ContainsAny(file, "*?") || !utf8.ValidString(file) {
		return true // no rule is about just this file
	}
	stack := stackOf(t, "[permission]\n\"*\" = \"allow\"\nexternal_directory = \"allow\"\n[permission.edit]\n\"*\" = \"allow\"\n"+tomlString(file)+" = \"deny\"\n")
	input, err := json.Marshal(map[string]string{"command": text, "workdir": o.Workdir})
	if err != nil {
		t.Fatal(err)
	}
	inv, err := registry().Parse("bash", input)
	if err != nil {
		return true // no session takes it
	}
	// Paths are judged by where they lead, as in a session.
	start := shell.LeadsTo("/w", o.Workdir, "")
	places := policy.Places{Worktree: "/w", Dir: start, Resolve: func(asked string) (policy.Resolved, bool) {
		return policy.Resolved{Path: shell.LeadsTo(start, asked, home)}, true
	}}
	return stack.Judge(places.Requests(inv.Input.Access(&tool.Reader{Shell: o.Shell, Homeless: o.Home == "", Astray: o.Astray}))).Action == policy.Deny
}

// tomlString writes s as a string of TOML, which does not have all escapes of Go.
func tomlString(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case unicode.IsControl(r):
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}

// TestNoBypassOfRules has the real rules judge what bash asks for.
func TestNoBypassOfRules(t *testing.T) {
	stack := stackOf(t, harmlessRules)
	registry := registry()
	for _, text := range shell.Bypasses(t) {
		if strings.ContainsRune(text, 0) {
			continue
		}
		if v := judge(t, registry, stack, text); v.Action == policy.Allow {
			t.Errorf("%q is allowed", text)
		}
	}
	for _, text := range []string{"echo hi", "git status", "ls -la && cat a.txt | cat", "find . -name x", "echo $(cat x) >/dev/null"} {
		if v := judge(t, registry, stack, text); v.Action != policy.Allow {
			t.Errorf("%q is not allowed: %+v", text, v)
		}
	}
}

// TestOptionsHideNoCommand: a deny of a command is one of it with options before its kind, and what
// is allowed by another rule stays so.
func TestOptionsHideNoCommand(t *testing.T) {
	registry := registry()
	for _, tt := range []struct {
		rules, text string
		want        policy.Action
	}{
		{`"*" = "allow"
"npm publish *" = "deny"`, "npm --registry x publish", policy.Deny},
		{`"*" = "allow"
"docker run*" = "ask"`, "docker --context x run -it a", policy.Ask},
		{`"docker *" = "allow"
"docker run *" = "deny"`, "sh -c 'docker -H x run a'", policy.Deny},
		{`"*" = "ask"
"npm --prefix *" = "allow"`, "npm --prefix web test", policy.Allow},
		{`"*" = "deny"
"kubectl get *" = "allow"`, "kubectl --context x get pods", policy.Deny},
		{`"*" = "allow"
"kubectl delete *" = "deny"`, "kubectl -n delete get pods", policy.Allow},
		// git's own programs are git, wherever they are; what is allowed of git is not for what may be no git.
		{`"*" = "allow"
"git push *" = "deny"`, "/usr/lib/git-core/git-push x", policy.Deny},
		{`"*" = "allow"
"git push *" = "deny"`, "/opt/git/libexec/git-core/git-push x", policy.Deny},
		{`"*" = "allow"
"git push *" = "ask"`, `env "/opt/git-core/../git-core/git-push"  x`, policy.Ask},
		{`"*" = "allow"
"git push *" = "deny"`, "../libexec/git-core/git-push x", policy.Deny},
		{`"*" = "allow"
"git push *" = "deny"`, "/opt/git/libexec/git-core/git -C x push", policy.Deny},
		{`"*" = "allow"
"git stash drop *" = "deny"`, "/usr/lib/git-core/git-stash drop", policy.Deny},
		{`"*" = "ask"
"git status *" = "allow"`, "./git-core/git-status", policy.Ask},
		{`"*" = "allow"
"git push *" = "deny"`, "./git-push x", policy.Allow},
	} {
		if v := judge(t, registry, stackOf(t, "[permission.bash]\n"+tt.rules+"\n"), tt.text); v.Action != tt.want {
			t.Errorf("%s with\n%s\nis %s by %s", tt.text, tt.rules, v.Action, v.Pattern)
		}
	}
}

// TestDenyAtAnyDepth has rules that allow everything but one command.
func TestDenyAtAnyDepth(t *testing.T) {
	stack := stackOf(t, "[permission.bash]\n\"*\" = \"allow\"\n\"touch *\" = \"deny\"\n\"git push *\" = \"deny\"\n\"[ *\" = \"deny\"\n")
	registry := registry()
	for _, text := range []string{
		"touch x", "touch", "[ x ]", "\\[ x ]", "'[' x ]", "echo $(touch x)", "a; { b; (touch x); }", "sh -c 'a; touch x'", "sh +c 'touch x'", "bash +ec 'touch x'", "bash -ec \"touch x\"", "env A=1 nice touch x",
		"find . -exec touch x \\;", "echo x | xargs touch", "eval x; touch x", "f() { touch x; }; f", "t\\ouch x", "'touch' x", "touch  x", "touch\tx",
		"/usr/bin/touch x", "/bin/../bin/touch x", ">y touch x", "A=1 touch x", "git push", "git -C d push", "git -c a=b push x", "git --no-pager push",
		"git \"push\" origin", "git \\\n  push", "timeout 5 git push", "echo `git push`", "cat <<A\n$(git push)\nA", "if git push; then :; fi", "! git push",
		"git pu'sh' x", "command git push", "x=$(git push) y", "for i in $(git push); do :; done", "case $(git push) in *) ;; esac", "[[ $(git push) ]]",
	} {
		if v := judge(t, registry, stack, text); v.Action != policy.Deny {
			t.Errorf("%q: %s by %s", text, v.Action, v.Rule)
		}
	}
}

// TestReplacedByXargs has arguments that are others when the command runs.
func TestReplacedByXargs(t *testing.T) {
	stack := stackOf(t, "[permission.bash]\n\"*\" = \"deny\"\n\"git *\" = \"allow\"\n\"xargs *\" = \"allow\"\n\"echo *\" = \"allow\"\n\"git push *\" = \"deny\"\n")
	registry := registry()
	for _, text := range []string{
		"echo push | xargs -I LOG git LOG", "echo push | xargs -ILOG git LOG", "echo push | xargs -0rILOG git LOG", "echo push | xargs -ILOGI -r git LOGI",
		"echo push | xargs -I LOG -d I git LOG", "echo push | xargs -I LOG -d -I git LOG", "echo push | xargs -I LOG --delimiter -I git LOG",
		"echo push | xargs --replace=LOG git LOG", "x=LOG; echo push | xargs -I \"$x\" git LOG", "echo push | xargs -I LOG -s 100I git LOG",
		"echo push | xargs git", "echo push | xargs git --no-pager", "echo push | xargs git -C d", "echo push | xargs nice git",
	} {
		if v := judge(t, registry, stack, text); v.Action == policy.Allow {
			t.Errorf("%q is allowed", text)
		}
	}
	for _, text := range []string{"echo x | xargs git log", "echo x | xargs -I {} git log {}", "echo x | xargs -d I -n 1 git log"} {
		if v := judge(t, registry, stack, text); v.Action != policy.Allow {
			t.Errorf("%q is not allowed: %+v", text, v)
		}
	}
}

func stackOf(t testing.TB, rules string) *policy.Stack {
	t.Helper()
	set, err := policy.Parse("rules.toml", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	stack, err := set.Stack("", "default")
	if err != nil {
		t.Fatal(err)
	}
	return stack
}

// judge takes every path for one inside of the worktree.
func judge(t *testing.T, registry *tool.Registry, stack *policy.Stack, command string) policy.Verdict {
	t.Helper()
	input, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		t.Fatal(err)
	}
	inv, err := registry.Parse("bash", input)
	if err != nil {
		return policy.Verdict{Action: policy.Deny}
	}
	var requests []policy.Request
	for _, r := range inv.Input.Access(nil).Requests {
		if !r.Outside {
			requests = append(requests, policy.Request{Permission: r.Permission, Pattern: r.Pattern, Opaque: r.Opaque, Save: r.Save, Also: r.Also})
		}
	}
	return stack.Judge(requests)
}
