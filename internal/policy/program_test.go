package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toold/toold/internal/tool"
)

var registry = sync.OnceValue(func() *tool.Registry { return tool.NewRegistry() })

// ofCommand is what a command asks for that is run in dir.
func ofCommand(t *testing.T, command, dir string) []Request {
	t.Helper()
	input, err := json.Marshal(map[string]string{"command": command, "workdir": dir})
	if err != nil {
		t.Fatal(err)
	}
	inv, err := registry().Parse("bash", input)
	if err != nil {
		t.Fatal(err)
	}
	return AsWritten(inv, nil, NoSession)
}

// programs are ways to run a file, X, and what a rule says that is about it.
var programs = []string{
	"./X", "./X a b", "d/X", "sh X", "sh ./X", "bash -e ./X a", "sh -ec ./X", ". ./X", "source X", "dash d/X", "python3 X", "python3 -u ./X", "node d/X", "perl X",
	"env ./X", "env A=1 ./X", "nice -n 5 ./X", "timeout 5 ./X", "xargs ./X", "xargs -n1 sh X", "find . -exec ./X {} +", "exec ./X", "command ./X", "time ./X",
	"nohup d/X &", "sudo ./X", "(./X)", "{ ./X; }", "if ./X; then :; fi", "echo $(./X)", "cat <(./X)", "! ./X", "./X | cat", "sh -c './X'", "env bash -c 'd/X'",
	"./.venv/bin/python X", "/opt/venv/bin/python3.12 -u X", "python3.12 X", "python3.13t ./X", "pypy3 X", "python -W ignore X", "python -X dev X", "python3 -Wignore -Xdev X a",
	"node --require /a X", "node -r ./a X", "node --import=./a X", "node --new-option X a", "node --new-option v X", "node20 --max-old-space-size=64 X", "node inspect X",
	"perl -Ilib X", "perl -I lib -Mstrict X", "perl5.36.0 -w X", "ruby -r./a -W0 X", "ruby -C d X", "php8.2 -d a=b -f X", "lua5.4 -l a X", "tclsh8.6 -encoding utf-8 X", "bash -O extglob X",
	"tsx watch X", "ts-node -P t.json X", "deno run -A X", "deno run --allow-read=/tmp --config d.json X", "bun X", "bun run --hot X", "go run ./X", "go run -race -tags a X", "java -cp lib X", "awk -f X a", "sed -n -f X a",
	"uv run X", "uv run python X", "uv --quiet run --with a python3.12 -u X", "uv run ./X", "poetry run python X", "poetry run ./X", "pipenv run python X", "pdm run X", "hatch run python X", "npx tsx X", "npx -y tsx@4 X",
	"npm exec -- tsx X", "pnpm exec tsx X", "pnpm tsx X", "yarn node X", "bunx tsx X", "bundle exec ruby X", "conda run -n e python X", "cross-env A=b node X", "coverage run -p X", "Rscript --vanilla X", "fish X",
	"env uv run X", "nice ./.venv/bin/python -W ignore X", "python3 $ARGS X", "node $A $B X", "xargs python3 X",
	"'./X'", `./"X"`, "./X >/dev/null", "f() { ./X; }; f", "while ./X; do :; done",
}

// elsewhere are ways to another directory than the worktree's root; @ is the command there.
var elsewhere = []struct{ text, workdir string }{
	{"@", "sub"},
	{"@", "/workspace/sub"},
	{"@", "sub/../sub/x"},
	{"@", "/srv"},
	{"@", "/workspace/.."},
	{"cd sub && @", ""},
	{"cd sub; @", ""},
	{"cd sub || exit; @", ""},
	{"(cd sub; @)", ""},
	{"(cd sub && @)", ""},
	{"{ cd sub; }; @", ""},
	{"cd /workspace/sub && @", ""},
	{"cd ~ && @", ""},
	{"cd && @", ""},
	{"cd sub && cd x && @", ""},
	{"cd sub\n@", ""},
	{"cd ./sub/. && @", ""},
	{"pushd sub; @", ""},
	{"pushd sub && popd; @", ""},
	{"cd - && @", ""},
	{"cd $D && @", ""},
	{"cd *sub && @", ""},
	{"cd sub/../x && @", ""},
	{"cd -P sub && @", ""},
	{"cd -- sub && @", ""},
	{"env -C sub @", ""},
	{"bash -c 'cd sub && @'", ""},
	{"if cd sub; then @; fi", ""},
	{"for d in sub; do cd $d; @; done", ""},
	{"export CDPATH=sub; cd x && @", ""},
	{"CDPATH=sub cd x && @", ""},
	{"builtin cd sub && @", ""},
	{"command cd sub && @", ""},
	{"eval 'cd sub'; @", ""},
	{"trap 'cd sub' DEBUG; @", ""},
	{"cd .. && @", ""},
	{"cd .. && @", "sub"},
	{"cd sub && @", "sub"},
	{"g() { cd sub; }; g; @", ""},
	{"coproc cd sub; @", ""},
	{"cd sub && sh -c '@'", ""},
	{"test -d sub && cd sub && @", ""},
	{"PATH=sub:$PATH; @", ""},
}

// TestRelativePrograms: what a rule allows to be run by a relative path is the file of that path
// from the worktree's root, and nothing else. What it denies is that file, however it is named.
func TestRelativePrograms(t *testing.T) {
	t.Parallel()
	for _, program := range programs {
		command := strings.ReplaceAll(program, "X", "x.sh")
		// Every text but the one that names the file is allowed.
		var rules strings.Builder
		rules.WriteString("[permission.bash]\n\"*\" = \"ask\"\n")
		seen := map[string]bool{}
		for _, q := range ofCommand(t, command, "") {
			if q.Permission == "bash" && !seen[q.Pattern] && !strings.ContainsAny(q.Pattern, "*?") {
				seen[q.Pattern] = true
				fmt.Fprintf(&rules, "%q = \"allow\"\n", q.Pattern)
			}
		}
		for _, word := range []string{"cd *", ": *", "test *", "pushd *", "popd *", "cat *", "bash *", "sh *", "env *", "exit *", "builtin *", "command *", "true *"} {
			if !strings.HasPrefix(command, strings.TrimSuffix(word, "*")) {
				fmt.Fprintf(&rules, "%q = \"allow\"\n", word)
			}
		}
		allows := stackOf(t, rules.String())
		here := ofCommand(t, command, "")
		if v := allows.Judge(here); v.Action != Allow && v.Request.Permission == "bash" {
			t.Errorf("in the worktree's root %s is %s for %q", command, v.Action, v.Request.Pattern)
		}
		denies := stackOf(t, "[permission]\nexternal_directory = \"allow\"\n[permission.bash]\n\"*\" = \"allow\"\n\"*/workspace/x.sh*\" = \"deny\"\n\"*/workspace/d/x.sh*\" = \"deny\"\n")
		if v := denies.Judge(here); v.Action != Deny {
			t.Errorf("%s is not denied by the absolute path: %s", command, v.Action)
		}
		for _, e := range elsewhere {
			inner := command
			if strings.Contains(e.text, "'") {
				inner = strings.ReplaceAll(command, "'", `"`)
			}
			text := strings.Replace(e.text, "@", inner, 1)
			if strings.HasPrefix(e.text, "env") && strings.ContainsAny(inner, "(;|&{") {
				continue // this shell runs it
			}
			if v := allows.Judge(onlyBash(ofCommand(t, text, e.workdir))); v.Action == Allow {
				t.Errorf("%q in %q is allowed by the rules for %q in the worktree's root", text, e.workdir, command)
			}
		}
	}
}

// onlyBash leaves what rules of bash judge.
func onlyBash(all []Request) []Request {
	return slices.DeleteFunc(all, func(q Request) bool { return q.Permission != tool.PermissionBash })
}

// TestProgramsByTheirFile: lines that deny see each path that leads to a program, those that allow the
// one from the worktree's root.
func TestProgramsByTheirFile(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rule             string
		command, workdir string
		leads            string // to where the program's path leads, "" for where it says
		want             Action
	}{
		{`"./sub/x" = "allow"`, "./x", "sub", "", Allow},
		{`"sub/x" = "allow"`, "./x", "sub", "", Ask},
		{`"sub/e/x" = "allow"`, "e/x", "sub", "", Allow},
		{`"./x" = "allow"`, "../x", "sub", "", Allow},
		{`"../x" = "allow"`, "../x", "sub", "", Ask},
		{`"/srv/x" = "allow"`, "./x", "/srv", "", Allow},
		{`"./x" = "allow"`, "./x", "/srv", "", Ask},
		{`"./sub/x *" = "allow"`, "./x a 'b c'", "sub", "", Allow},
		{`"sh -e sub/x a" = "allow"`, "sh -e x a", "sub", "", Allow},
		{`"./a *" = "allow"`, "./x", "a b", "", Ask},
		{`"'./a b/x'" = "allow"`, "./x", "a b", "", Allow},
		{`"./a b/x" = "deny"`, "./x", "a b", "", Deny},
		{`"./d/x" = "deny"`, "link/x", "", "/workspace/d/x", Deny},
		{`"/srv/x *" = "deny"`, "./x a", "", "/srv/x", Deny},
		{`"./tools/x" = "allow"`, "./tools/x", "", "/workspace/lib/x.js", Allow},
		{`"./x *" = "deny"`, "/workspace/x -v", "", "", Deny},
		{`"./x *" = "deny"`, "././x -v", "", "", Deny},
		{`"./x *" = "deny"`, "~/x -v", "", "/workspace/x", Deny},
		{`"x *" = "deny"`, "./x -v", "", "", Ask},
		{`"./d/*" = "allow"`, "./d/../x", "", "", Ask},
		{`"/workspace/d/*" = "allow"`, "/workspace/d/../x", "", "", Ask},
		{`"eval ./x" = "allow"`, "eval ./x", "", "", Allow},
		{`"eval ./x" = "allow"`, "eval ./x", "sub", "", Ask},
		{`"eval ./x" = "deny"`, "eval ./x", "sub", "", Deny},
	} {
		stack := stackOf(t, "[permission]\n\"*\" = \"allow\"\n[permission.bash]\n\"*\" = \"ask\"\n"+tt.rule+"\n")
		input, err := json.Marshal(map[string]string{"command": tt.command, "workdir": tt.workdir})
		if err != nil {
			t.Fatal(err)
		}
		inv, err := registry().Parse("bash", input)
		if err != nil {
			t.Fatal(err)
		}
		places := lexical(Workspace, tt.workdir)
		if tt.leads != "" {
			places.Resolve = func(string) (Resolved, bool) { return Resolved{Path: tt.leads}, true }
		}
		if v := stack.Judge(onlyBash(places.Requests(inv.Input.Access(nil)))); v.Action != tt.want {
			t.Errorf("%s: %s in %q that leads to %q is %s (%+v), want %s", tt.rule, tt.command, tt.workdir, tt.leads, v.Action, v.Request, tt.want)
		}
		places.Dir = ""
		if v := stack.Judge(onlyBash(places.Requests(inv.Input.Access(nil)))); v.Action == Allow && strings.Contains(tt.command, "x") {
			t.Errorf("%s: %s in a directory that is not known is allowed", tt.rule, tt.command)
		}
	}
}
