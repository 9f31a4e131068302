package shell

import (
	"slices"
	"strings"
	"testing"
)

// TestWildcardsAreSearches: each word with a wildcard that is not quoted, wherever the shell expands it, is a search of the directory
// in which the wildcard begins, whatever the program does with the names; where it expands none, it is no search.
func TestWildcardsAreSearches(t *testing.T) {
	t.Parallel()
	read := 0
	for _, form := range []string{
		"echo %", "printf '%s\\n' %", "/bin/echo %", ": %", "true %", "false %", "frob %", "frob -x %", "frob --x %", "git add %", "cat %", "ls %", "tr %", "set -- %", "shift %", "f() { echo $1; }; f %", "f() { echo %; }; f",
		"for f in %; do :; done", "for f in a % b; do :; done", "select f in %; do break; done", "for f in %; do for g in a; do :; done; done", "x=(%)", "x+=(a %)", "declare -a x=(%)", "declare %", "export %", "unset %",
		"local %", "readonly %", "alias %", "type %", "hash %", "kill %", "wait %", "let %", "return %", "exit %", "test -e %", "[ -e % ]", "[ % ]", "exec %", "command echo %", "builtin echo %", "eval echo %", "env echo %",
		"nice echo %", "timeout 5 echo %", "xargs echo %", "time echo %", "! echo %", "echo % &", "echo % | frob", "frob | echo %", "(echo %)", "{ echo %; }", "if echo %; then :; fi", "while echo %; do :; done", "until echo %; do :; done",
		"case x in x) echo %;; esac", "echo $(echo %)", "echo `echo %`", "echo \"$(echo %)\"", "cat <(echo %)", "bash -c 'echo %'", "sh -c 'echo %'", "bash -c 'echo \"$@\"' - %", "trap 'echo %' EXIT", "x=$(echo %)", "a=1 echo %", "echo x >a %",
		"echo a b % c", "mapfile x %", "read %", "printf -v x %s %", "pushd %", "cd %", "source %", ". %", "python3 -c x %", "bash %", "frob <a %", "frob <%", "echo ok && echo %", "[[ -n x ]] && echo %", "((1)) && echo %", "coproc echo %",
		"cat <<EOF\n$(echo %)\nEOF", "cat <<<$(echo %)", "echo ${x:-$(echo %)}", "[[ -n $(echo %) ]]", "case $(echo %) in x) :;; esac",
	} {
		for word, dirs := range map[string][]string{
			"/cache/*": {"/cache/"}, "/cache/?": {"/cache/"}, "/cache/[ab]": {"/cache/"}, "/cache/a*b": {"/cache/"}, "/cache/d/*/x": {"/cache/d/"}, `"/cache/"*`: {"/cache/"}, `\/cache/*`: {"/cache/"}, "'/cache'/*": {"/cache/"},
			"/cache/{a,b}*": {"/cache/"}, "/cach*/x": {"/"}, "/cache*": {"/"}, "../cache/*": {"../cache/"}, ".*/x": {"."}, "~/../cache/*": {"/home/cache/", "/home/tool/../cache/"}, "{/cache/*,x}": {""}, `/cache/*"a"`: {""}, "*/../../cache/x": {""},
		} {
			text := strings.ReplaceAll(form, "%", word)
			r := Scan(text, Options{Home: "/home/tool"})
			if !r.Opaque {
				read++
			}
			if !r.Opaque && !slices.ContainsFunc(r.Paths, func(p Path) bool { return !p.Weak && (p.Name == "" || slices.Contains(dirs, p.Name)) }) {
				t.Errorf("%q is no search of %q: %+v", text, dirs, r.Paths)
			}
		}
	}
	if read < 1000 {
		t.Errorf("%d texts are read", read)
	}
	for _, text := range []string{`echo "/cache/*"`, "echo '/cache/*'", `echo /cache/\*`, "[[ x == /cache/* ]]; ls", "case x in /cache/*) ls;; esac", "x=/cache/*; ls", "cat <<<'/cache/*'", "cat <<E\n/cache/*\nE", "echo x # /cache/*"} {
		if r := Scan(text, Options{Home: "/home/tool"}); r.Opaque || len(r.Paths) != 0 {
			t.Errorf("%q: %s %+v", text, r.Why, r.Paths)
		}
	}
}
