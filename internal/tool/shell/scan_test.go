package shell

import (
	"slices"
	"strings"
	"testing"
)

// TestOpaque has what opaque texts have, and their harmless neighbours.
func TestOpaque(t *testing.T) {
	for _, tc := range []struct {
		text string
		why  string // "" = not opaque
	}{
		{"set -euo pipefail; a", ""},
		{"set -e -u -o nounset; set -- a b; set +e", ""},
		{"set a b", ""},
		{"set -a; a", "set -a can change how later commands are read"},
		{"set -oe pipefail", "set -oe is not known"},
		{"set -o allexport", "set -o changes how later commands are read"},
		{"set -o", "set -o changes how later commands are read"},
		{"set $x", "set $x can change how later commands are read"},
		{"[ a = b ] && [ ! -f x ] && test -n \"$x\" && [ $# -gt 0 ] && [ \"$?\" -eq 0 ] && [ \"$x\" = y ]", ""},
		{"[ $x = b ]", "test cannot be judged with $x, which may be several words"},
		{"[ $#{a,b} ]", "test cannot be judged with $#{a,b}, which may be several words"},
		{"[ \"$@\" ]", `test cannot be judged with "$@", which may be several words`},
		{"[ \"$x\" -eq 0 ]", "test evaluates subscripts and numbers, which can run commands"},
		{"[ a -a b -o c ]", "test evaluates subscripts and numbers, which can run commands"},
		{"[ \"$x\" \"$y\" ]", "test evaluates subscripts and numbers, which can run commands"},
		{"[[ -f a && ( b == c || ! -d $x ) ]] && a", ""},
		{"[[ $# -eq 0 && 1 -lt 2 ]] && a", ""},
		{"[[ $x -eq 0 ]] && a", "-eq evaluates the values of variables, which can run commands"},
		{"[[ a =~ b ]] && a", "=~ has quoting rules of its own"},
		{"[[ -R x ]] && a", "-R evaluates subscripts, which can run commands"},
		{"printf '%s %d%%\\n' a 1; printf -- a", ""},
		{"printf '%5.3ln' a", "printf can set a variable, whose subscript can run commands"},
		{"printf \"$x\"", "printf can set a variable, whose subscript can run commands"},
		{"echo $((1 + 2 * (3 - 1))) $((-1)) ${x:1:2} ${x: -3} ${a[0]} ${a[@]} ${#a[*]} $((x))", "arithmetic evaluates the values of variables, which can run commands"},
		{"echo $((1 + 2 * (3 - 1))) $((-1)) ${x:1:2} ${x: -3} ${a[0]} ${a[@]} ${#a[*]} $(($# + 1))", ""},
		{"echo ${x@Q} ${x@U} ${x^^} ${x,} ${x//a/b} ${x%.*} ${x##*/} ${x:-a} ${x:+b} ${x?c} ${x:=d}", ""},
		{"echo ${X:=d}", "it sets X, which may be a variable of the environment"},
		{"echo ${PATH:=d}", "it sets PATH, which changes what later commands do"},
		{"echo ${x@A}", "${x@A} can run commands that the variable's value has"},
		{"echo \"${x:-'a'}\"", "it has quotes in an expansion in quotes"},
		{"echo ${x:-'a'} \"${x:-a b}\"", ""},
		{"echo $\"a\"", `$"…" is translated and expanded again`},
		{"echo ${ a;}", "${ …; } is not the same in all versions of bash"},
		{"echo `echo \\`a\\``", "it has quotes inside of backquotes"},
		{"for F in a; do b; done", "it sets F, which may be a variable of the environment"},
		{"for ((;;)); do b; done", ""},
		{"for ((i=0;i<2;i++)); do b; done", "arithmetic evaluates the values of variables, which can run commands"},
		{"let 1", "let evaluates the values of variables, which can run commands"},
		{"export CI=1 LANG=C; readonly c; declare -r x=1; local -a y=(1 2)", ""},
		{"export A=1; a", "it sets A, which may change what programs do"},
		{"export -f a", "export -f can make a variable that evaluates what it is set to"},
		{"export \"$x\"", `export "$x" can make a variable that evaluates what it is set to`},
		{"export LD_PRELOAD=x", "it sets LD_PRELOAD, which may change what programs do"},
		{"nameref x=y", "nameref makes a variable stand for another"},
		{"x=(a [1]=b); x[2]=c; x+=d; a", ""},
		{"x[y]=c; a", "subscripts are evaluated, and what is evaluated can run commands"},
		{"IFS=, a", "it sets IFS, which may change what programs do"},
		{"wait; wait $!; wait 12", ""},
		{"wait $x", "wait with options can set variables or run commands"},
		{"a {fd}>b", "{name}> sets a variable"},
		{"a <&b", "it redirects from what is only known at run time"},
		{"a 2>&1 <&3 >&- 3<&0-", ""},
		{"cat <<A\n$x `a` $(b)\nA", ""},
		{"cat <<A <<B\na\nA\nb\nB", "it begins two here-documents on one line"},
		{"cat <<A$x\na\nA$x", "it cannot be parsed: 1:8: expansions not allowed in heredoc words"},
		{"cat <<'A B'\na\nA B", "a here-document has an unusual delimiter"},
		{"cat <<A\nAB\nA", "a line of a here-document begins with its delimiter"},
		{"x=$(cat <<A\na\nA\n); b", ""},
		{"x=$(cat <<A\nA\n); b", "a here-document in a substitution is empty"},
		{"x=$(cat <<A; git; push\nb\nA\n)", "a command ends with a ; behind a here-document in a substitution"},
		{"x=$(cat <<A\nb\nA\ngit; push)", "a command ends with a ; behind a here-document in a substitution"},
		{"cat <(cat <<'A' && git; push\nb\nA\n)", "a command ends with a ; behind a here-document in a substitution"},
		{"x=$(cat $(cat <<A\nb\nA\n); git; push)", "a command ends with a ; behind a here-document in a substitution"},
		{"x=$(cat <<A 2>&1 | b >&2 && c\nc; d\nA\nd && e\nf); g; h", ""},
		{"(cat <<A\nb\nA\ngit; push)", ""},
		{"cat <<A | git; push\nb\nA\n", ""},
		{"git $x", "which git command it is, $x, is only known at run time"},
		{"npm run $x", "which npm command it is, $x, is only known at run time"},
		{"git log $x", ""},
		{"sudo -s", "sudo: its option -s is not known here"},
		{"timeout $x a", "timeout: where its command begins is only known at run time"},
		{"timeout 5 \"$x\"", "the command's name \"$x\" is only known at run time"},
		{"timeout $(x) a", "timeout: where its command begins is only known at run time"},
		{"nice -n $x a", "nice: where its command begins is only known at run time"},
		{"env A=$x b", "the command's name A=$x is only known at run time"},
		{"env A=\"$x\" b", "it sets A, which may change what programs do"},
		{"env CI=1 b", ""},
		{"env 'A B'=c d", "it sets A B, which may change what programs do"},
		{"env", ""},
		{"xargs", "xargs runs what it reads"},
		{"xargs -0r wc -l", ""},
		{"xargs bash -c a", "xargs gives bash arguments that are not in the text"},
		{"xargs npm run", "xargs gives npm arguments that are not in the text"},
		{"xargs npm run a", ""},
		{"xargs git -C", "xargs gives git arguments that are not in the text"},
		{"xargs -I % a b%", ""},
		{"xargs -I{} {} a", "the command's name {} is only known at run time"},
		{"xargs --replace=% %x a", "the command's name %x is only known at run time"},
		{"xargs --replace a {}", ""},
		{"command -v a; command -V b", ""},
		{"bash -c a b c; bash a.sh; sh -ec 'b'", ""},
		{"bash -i", "bash: its option -i is not known here"},
		{"bash -s", "bash: its option -s is not known here"},
		{"bash", "what bash runs is read from its input"},
		{"bash -c", ""},
		{"bash $x", "what bash runs is only known at run time"},
		{"bash -c $x", "the script of bash -c is only known at run time"},
		{"bash -c -- a", "the script of bash -c is only known at run time"},
		{"zsh -c a", "zsh reads scripts in its own way"},
		{"sh -c 'a &> b'", "it cannot be parsed: 1:3: `&>` redirects are a bash/mksh/zsh feature; tried parsing as posix"},
		{"find . -name *.go -o -name '*.c'", ""},
		{"find . -name *", "find has the argument *, which files of the right names make an action"},
		{"find . -name '*'\"*\"", ""},
		{"find \"$x\"", `find has the argument "$x", which may be an action`},
		{"a ![b]", ""},
		{"> a", "it runs no program that could be named"},
		{"/bin/a b; ./c; d/e", ""},
		{"a; while b; do c; done; until d; do e; done; case x in y) f ;; *) g ;& z) h ;; esac", ""},
		{"time a; time -p b; ! c", ""},
		{"time -- a", "-- is an unusual name of a command"},
		{"%1", "%1 is an unusual name of a command"},
		{"CI=1 if", "if stands where no keyword is expected"},
		{"a # b\nc; # d\n# e", ""},
		{"a \"$(b)#c\" '(d)#' e\\)#", ""},
		{"( a $(b)# c; d\n)", "it has a comment that bash may not take for one"},
		{"$(a $((1))# b\n)", "it has a comment that bash may not take for one"},
		{"(a)# b", "it has a comment that bash may not take for one"},
		{"a $(b)#c", "it has a # after a bracket, which bash may take for a comment"},
		{"a <(b)#c", "it has a # after a bracket, which bash may take for a comment"},
		{"typeset -a x='(a)'", "x='(a)' may be a list for an array, which is expanded again"},
		{"readonly -A x=\"$y\"", `x="$y" may be a list for an array, which is expanded again`},
		{"x[0]=a; readonly x=$(b)", "x=$(b) may be a list for an array, which is expanded again"},
		{"typeset x=$y; bash -c ': ${x[0]:=a}'", "x=$y may be a list for an array, which is expanded again"},
		{"typeset -a x=\\(", `x=\( may be a list for an array, which is expanded again`},
		{"typeset x=$y; readonly z='(a)'", ""},
		{"typeset -a x=a$y z= w='b(' v=\"/$y\"; x=(a)", ""},
		{"a 12345>b", "12345 may be no descriptor"},
		{"a >&99999999999", "99999999999 may be no descriptor"},
	} {
		r := Scan(tc.text, Options{Home: "/home/tool"})
		if r.Why != tc.why {
			t.Errorf("%q: got %q, want %q", tc.text, r.Why, tc.why)
		}
	}
}

// TestShells has what is opaque because of the shell that reads it.
func TestShells(t *testing.T) {
	for _, tc := range []struct {
		shell, text, why string
	}{
		{"/bin/bash --noprofile --norc -e", "a $'b'; time c; [[ -f d ]]; e 10>f", ""},
		{"/bin/bash -O extglob", "a", "bash: its option -O is not known here"},
		{"/bin/sh", "a && b | c; for x in d; do e; done; f \"$g\" >h 2>&1; cd i", ""},
		{"/bin/sh", `$'\'; touch FLAG #'`, "the command's name $'\\'; touch FLAG #' is only known at run time"},
		{"dash", `a $'\'; touch FLAG #'`, "bash and dash read it differently"},
		{"dash", "builtin exit; cat a", "bash and dash read it differently"},
		{"ash", "cat $'a'", "bash and ash read it differently"},
		{"sh", "a 10>b", "10 may be no descriptor"},
		{"sh", "a `b &>c`", "it cannot be parsed: 1:6: `&>` redirects are a bash/mksh/zsh feature; tried parsing as posix"},
		{"bash", "sh -c 'builtin exit; cat a'", "bash and sh read it differently"},
		{"sh", "bash -c \"a &>b\"", ""},
		{"/opt/ksh", "a", "ksh reads scripts in its own way"},
		{"bash", "mksh -c a", "mksh reads scripts in its own way"},
	} {
		r := Scan(tc.text, Options{Shell: strings.Fields(tc.shell)})
		if r.Why != tc.why {
			t.Errorf("%s -c %q: got %q, want %q", tc.shell, tc.text, r.Why, tc.why)
		}
	}
	r := Scan(`a $'\'; touch FLAG #'`, Options{Shell: []string{"sh"}})
	if !slices.ContainsFunc(r.Commands, func(c Command) bool { return c.Text == "touch FLAG" }) {
		t.Errorf("what a POSIX shell runs is not listed: %v", r.Commands)
	}
}

// TestPaths has what arguments and redirections name.
func TestPaths(t *testing.T) {
	for _, tc := range []struct {
		text   string
		paths  []string // "" = not known
		writes []string
	}{
		{"cat a 'b c' -- -d", []string{"a", "b c", "-d"}, nil},
		{"cat a; cat a", []string{"a"}, nil},
		{"diff <(cat a) <(sort b) >c; while read x; do d; done < <(cat e)", []string{"a", "b", "e"}, []string{"c"}},
		{"cat x<(cat a) >(tee b)", []string{"a", "b", "", ""}, nil},
		{"x a b/c .d ~/e ../f g", []string{"b/c", ".d", "/home/tool/e", "../f"}, nil},
		{"cat '~/a' ~bob/b ~+", []string{"./~/a", "", ""}, nil},
		{"x --out=a/b -I../c -O2 --level=3 k=/v of=w", []string{"a/b", "../c", "/v", "w"}, nil},
		{"x --out=$y/z -I$z/y k=~/a", []string{"", "", "/home/tool/a"}, nil},
		{"curl https://a/b file:///c ftp://d", []string{"file:///c", "/c"}, nil},
		{"grep -rn a/b c; grep -e x d; sed s/a/b/ e; rg -f pats f", []string{"c", "d", "e", "pats", "f"}, nil},
		{"cat *.go src/*.c /etc/*/x {a,b} d/{a,b}", []string{".", "src/", "/etc/", ".", "d/"}, nil},
		{"cat */../x", []string{""}, nil},
		{"cat {/etc/passwd,x}", []string{""}, nil},
		{"cat {a,../b}", []string{""}, nil},
		{"cat $x \"$y/z\"", []string{"", ""}, nil},
		{"echo /etc/passwd; printf /x", nil, nil},
		{"./run a; d/x", []string{"./run", "d/x"}, nil},
		{"/usr/bin/cat a", []string{"a"}, nil},
		{"a <b 2>c >>d &>e <>f >|g", []string{"b"}, []string{"c", "d", "e", "f", "g"}},
		{"a >/dev/null 2>/dev/stderr </dev/null", nil, nil},
		{"a >$x >&b", nil, []string{"", "b"}},
		{"git diff --output=a x; git -C d log --outp b; git diff --output-indicator-new=c", []string{"a", "d", "b"}, []string{"a", "b"}},
		// What is open for reading is written by its descriptor's name.
		{"a <b >/dev/stdout 2>/dev/fd/2 3</dev/null", []string{"b"}, nil},
		{"a 1<b >/dev/stdout", []string{"b"}, []string{""}},
		{"{ a >/dev/fd/2; } 2<b; c >/dev/stdout", []string{"b"}, []string{""}},
		{"a <b 3<&0- 1>&03 >/proc/self/fd/1", []string{"b"}, []string{""}},
		{"a 1<b |& c; d 2>>/dev/stderr", []string{"b"}, []string{""}},
		{"a 2</dev/stdin >/dev/stderr; sh -c 'b <c'", []string{"c"}, []string{""}},
		{"a 1<$x &>/dev/stdout", []string{""}, []string{""}},
		{"a 3<b >/dev/fd/3 >/dev//stdout", []string{"b"}, []string{"/dev/fd/3", "/dev//stdout"}},
		{"cd /dev && a >fd/1", []string{"/dev"}, []string{"/dev/fd/1"}},
		{"a >''", nil, nil},
		{"a >b* <c*", []string{"."}, []string{""}},
		{"find a b -name c -newer d/e", []string{"a", "b", "d/e"}, nil},
		{"cd a; cat b", []string{"a", "a/b", "b"}, nil},
		{"cd a && cat b; cat c", []string{"a", "a/b", "a/c", "c"}, nil},
		{"cd a || exit 1; cat b", []string{"a", "a/b"}, nil},
		{"cd a || exit 1 2; cat b", []string{"a", "a/b", "b"}, nil},
		{"cd a && cd ../.. && cat b", []string{"a", "a/../..", "../b"}, nil},
		{"cd /x && cat b; cat /c", []string{"/x", "/x/b", "/c"}, nil},
		{"cd && cat b", []string{"/home/tool/b"}, nil},
		{"cd - && cat b", []string{"-", ""}, nil},
		{"cd $x && cat b /c", []string{"", "", "/c"}, nil},
		{"cd a b && cat c", []string{"", ""}, nil},
		{"(cd a; cat b); cat c", []string{"a", "a/b", "b", "c"}, nil},
		{"cd a | cat b; cd c & cat d", []string{"a", "b", "c", "d"}, nil},
		{"pushd a && cat b", []string{"a", ""}, nil},
		{"for x in 1; do cat a; cd b; done; cat c", []string{"", "", ""}, nil},
		{"for x in 1; do cat a; done", []string{"a"}, nil},
		{"if cd a; then cat b; else cat c; fi", []string{"a", "a/b", "c"}, nil},
		{"cd a; cd b; cd c; cat d", []string{"a", "a/b", "b", "a/b/c", "b/c", "a/c", "c", ""}, nil},
		{"env -C x cat a", []string{"x", ""}, nil},
		// A redirection that fails keeps its command from running.
		{"exit <a; cat b", []string{"a", "b"}, nil},
		{"exit 1 >a; cat b", []string{"b"}, []string{"a"}},
		{"{ exit; } <a; cat b", []string{"a", "b"}, nil},
		{"{ cd x; } <a; cat b", []string{"a", "x", "x/b", "b"}, nil},
		{"! { cd x; } <a && cat b", []string{"a", "x", "x/b", "b"}, nil},
		// An error in an expression ends the line and nothing else.
		{"{ : $((1/0)); exit; }; cat a\ncat b", []string{"b"}, nil},
		{"cd /x; : ${y:1:-9}; cd /z\ncat a", []string{"/x", "/z", ""}, nil},
		{"readonly x; x=1; exit\ncat a", []string{"a"}, nil},
		{"x=1; exit\ncat a", nil, nil},
		{"[[ -f x ]] || exit 1\ncd a || exit 1\nx=$((1+1))\ncat b", []string{"a", "a/b"}, nil},
		{"for x in a; do cat $x || exit 1; cat b; done", []string{"", "b"}, nil},
		{"sh -c 'cd a; cat b'; cat c", []string{"a", "a/b", "b", "c"}, nil},
		{"find a -exec cat b \\; -execdir cat c +", []string{"", "b", "", "a"}, nil},
		{"xargs cat a", []string{"", "a"}, nil},
	} {
		r := Scan(tc.text, Options{Home: "/home/tool"})
		if got := names(r.Paths); !slices.Equal(got, tc.paths) {
			t.Errorf("%q: paths %q, want %q", tc.text, got, tc.paths)
		}
		if got := names(r.Writes); !slices.Equal(got, tc.writes) {
			t.Errorf("%q: writes %q, want %q", tc.text, got, tc.writes)
		}
	}
	if r := Scan("cat ~/a; cd; cat b", Options{}); !slices.Equal(names(r.Paths), []string{"", "", ""}) {
		t.Errorf("without a home: %q", names(r.Paths))
	}
	if r := Scan("cd a; cd ..; cat b; cd ..; cat c", Options{Workdir: "w"}); !slices.Contains(names(r.Paths), "") {
		t.Errorf("up from a directory that may be a link: %q", names(r.Paths))
	}
}

// TestAstray: where a text sets a variable by which the shell finds directories, what depends on it is only known at
// run time, wherever that stands.
func TestAstray(t *testing.T) {
	t.Parallel()
	for _, set := range []string{
		"HOME=/m", "export HOME=/m", "declare -x HOME=/m", `export "HO"ME=/m`, `export 'HOME=/m'`, "read HOME <f", `read -r "H"OME`, "read $x", "for HOME in /m; do :; done", "printf -v HOME /m", "unset HOME", "mapfile HOME <f",
		"declare -n h=HOME", "declare -g \"$x\"", "eval HOME=/m", `eval "$x"`, "trap 'HOME=/m' EXIT", "f() { HOME=/m; }", "${HOME:=/m}", "HOME+=/m", "HOME[0]=/m", "if x; then HOME=/m; fi", "(HOME=/m)", ": $((HOME=5))", "CDPATH=/m", "OLDPWD=/m", "PWD=/m", "DIRSTACK[0]=/m",
		"sh -c 'HOME=/m'", "exec {HOME}<f", "getopts a HOME", "HOME=/m :", "env HOME=/m :", "readonly HOME=/m", "local HOME=/m", "typeset HOME",
	} {
		for _, text := range []string{set + "; @@", "@@; " + set, "while x; do @@; " + set + "; done", "f() { @@; }; " + set + "; f"} {
			for _, use := range []string{"cat ~/s", "cat ~", "cd; cat s", "cd s && cat t", "cd -; cat s", "cat <~/s", "popd", "cd", "cd -"} {
				command := strings.Replace(text, "@@", use, 1)
				if r := Scan(command, Options{Home: "/home/tool"}); !slices.Contains(names(r.Paths), "") {
					t.Errorf("%q: paths %+v", command, r.Paths)
				}
			}
			command := strings.Replace(text, "@@", "echo x >~/s", 1)
			if r := Scan(command, Options{Home: "/home/tool"}); !slices.Contains(names(r.Writes), "") {
				t.Errorf("%q: writes %+v", command, r.Writes)
			}
		}
	}
	for _, text := range []string{"cat ~/s", "export JAVA_HOME=/m; cat ~/s", "x=$HOME; cat ~/s", "export PATH=$HOME/bin:$PATH; cat ~/s", "cd s && cat t", "read -r line; cat ~/s", "set -e; cd; cat s", "echo HOME; cat ~/s", "unset x; cat ~/s"} {
		if r := Scan(text, Options{Home: "/home/tool"}); slices.Contains(names(r.Paths), "") {
			t.Errorf("%q: paths %+v", text, r.Paths)
		}
	}
	for _, text := range []string{"HOME=/m sh -c 'cat ~/s'", "env HOME=/m sh -c 'cat ~/s'", "sudo sh -c 'cat ~/s'", "cat ~+/s", "cat ~-/s", "cat ~1", "cat ~root/s", "cd ~+; cat s", "cd ~-"} {
		if r := Scan(text, Options{Home: "/home/tool"}); !slices.Contains(names(r.Paths), "") {
			t.Errorf("%q: paths %+v", text, r.Paths)
		}
	}
}

func names(list []Path) []string {
	var all []string
	for _, p := range list {
		if !p.Matched {
			all = append(all, p.Name)
		}
	}
	return all
}

// TestWeak: programs that come to files which the text does not name, and words that may match a link.
func TestWeak(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"xargs cat": "weak", "xargs -n 1 env X=1 cat": "weak", "find . -exec cat {} +": "weak", "ls | xargs go vet": "", "xargs python3 x.py": "", "xargs dd": "weak", "xargs curl": "weak", "wc --f=a": "weak", "xargs -I{} sh -c 'cat {}'": "weak", "xargs sh -c 'python3 x.py'": "",
		"find -L .": "weak", "find . -follow": "weak", "find . -name L": "", "find -files0-from a": "weak", "ls -lL": "weak", "ls -la": "", "dir -RL": "weak", "du --deref a": "weak",
		"grep -rn x": "", "grep -Rn x": "weak", "grep --dereference-r x": "weak", "rg x": "", "rg -L x": "weak", "rg --follow x": "weak", "cp -r a b": "", "cp -rL a b": "weak",
		"tar chf a b": "weak", "tar cf a path/h": "", "tar -xf archive": "", "tar xf h": "", "tar cf a -T b": "weak", "tar -c --files-from=a": "weak", "rsync -a a b": "", "rsync -aL a b": "weak",
		"rsync --copy-unsafe-links a b": "weak", "diff a b": "", "diff -ru a b": "weak", "sort a": "", "sort --files0-from=a": "weak", "wc --files0 a": "weak", "file -f a": "weak", "sha256sum -c a": "weak",
		"cpio -o": "weak", "curl -sK a": "weak", "wget -i a": "weak", "scp -r a b": "weak", "zip -r a b": "weak", "zip a b": "",
		"cat *": "matched", "cat a*": "matched", "cat d/*/f": "matched", "cat {a,b}": "matched", "cat a": "", "cat 'a*'": "", "cat <a*": "matched", "echo *": "", "echo d/*": "", "echo d/*/*": "matched",
		"for f in d/*/; do :; done": "matched", "for f in *; do :; done": "", "x=(d/*/*)": "matched", "go vet d/*/x": "", "rm -f e/x*/f": "matched", "tee a*": "matched",
	} {
		got := ""
		for _, p := range Scan(text, Options{}).Paths {
			switch {
			case p.Matched:
				got += "matched"
			case p.Weak:
				got += "weak"
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestLinks has the words of commands that may be the names of links.
func TestLinks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"frob a b": "a b", "frob a ./b c/d /e ~/f": "a", "frob --x=a -xb c=d @e": "a b d c=d @e e", "frob $x *a \"$y\"z": "", "frob a{b,c} {d,e}f {g,h}{i,j} {k..m} 'n'{o,p}": "ab ac df ef", "frob --x={a,b}": "a b", "'frob' \"a b\" c\\ d": "a b c d",
		"frob https://a/b c:d": "c:d", "frob ''": "", "cat a b=c": "c", "cat -na": "", "frob -na": "a", "echo a; tr b c; seq 1": "", "git commit -qm x": "commit x", "curl a -d b": "", "find a -name b ! -type f": "", "find a -exec frob b \\;": "b",
		"grep a b -e c": "", "sh -c 'frob a'": "a", "bash -c 'frob \"$1\"' a b": "a b", "bash -e a": "a", "xargs frob a": "a", "timeout 5 frob a": "a", "env -C e X=b nice -n 5 timeout -k 1 5 true": "", "/usr/bin/time -f b frob a": "a", "bash -ec 'frob a' b": "a b", "bash -eb a": "b a", "cd d && frob a": "d/a", "cd d; frob a": "d/a a", "cd /d && frob a": "/d/a", "frob a; frob a b": "a b", "frob a >b <c": "a",
		"pushd d; frob a": "", ". d; frob a": "d", "x=a; frob $x": "", "f() { frob a; }; f b": "b",
	} {
		var got []string
		for _, l := range Scan(text, Options{}).Links {
			got = append(got, l.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]bool{"pushd d; frob a": true, "for i in a; do frob a; cd d; done": true, "f() { frob a; }; f": true, ". d; frob a": false, "frob a": false} {
		if r := Scan(text, Options{}); slices.ContainsFunc(r.Paths, func(p Path) bool { return p.Weak }) != want {
			t.Errorf("%s: %+v", text, r.Paths)
		}
	}
}

// TestSave has the patterns that "always" offers.
func TestSave(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"ls -l", "ls *"},
		{"git checkout -b x", "git checkout -b x"},
		{"git -C a checkout x", ""},
		{"git stash apply x", "git stash apply *"},
		{"git", "git"},
		{"npm run dev --port 1", "npm run dev *"},
		{"npm test", "npm test *"},
		{"docker compose logs -f", "docker compose logs *"},
		{"docker ps", "docker ps *"},
		{"python3.12 x.py", ""},
		{"node -e x", ""},
		{"bash x.sh", ""},
		{"env a", ""},
		{"sudo ls", ""},
		{"make all", "make all"},
		{"./gradlew build", "./gradlew build"},
		{"A=1 ls", ""},
		{"'ls' x", ""},
		{"eval x", ""},
		{"> y ls", ""},
		{"ls > y", "ls *"},
	} {
		if r := Scan(tc.text, Options{}); r.Commands[0].Save != tc.want {
			t.Errorf("%q: %q, want %q", tc.text, r.Commands[0].Save, tc.want)
		}
	}
}
