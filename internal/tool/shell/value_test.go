package shell

import (
	"slices"
	"strings"
	"testing"
)

// pathsOf are the paths that r names, and "?" for those that are not known.
func pathsOf(list []Path) string {
	var all []string
	for _, p := range list {
		name := p.Name
		if name == "" {
			name = "?"
		}
		if p.Below {
			name += "*"
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return strings.Join(all, " ")
}

// TestValues has what is known of variables, and what is not.
func TestValues(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, paths, writes string }{
		{"f=src/a; cat $f", "src/a", ""},
		{"f='a b'; cat $f \"$f\"", "a b a b", ""},
		{"f=a; f=$f/b; cat ${f}.c ${f##*/} ${f%/*} ${f%b}x", "a/b.c b a a/x", ""},
		{"for f in a b; do cat $f.c; done; cat $f", "a.c b.c ?", ""},
		{"for f in *.c; do cat \"$f\"; cp \"$f\" \"x/${f%.c}.o\"; done", ". x/ x/.o", ""},
		{"for f in *.c; do cat $f; done", "?", ""}, // a file may be called "a /m/s.c"
		{"OUT=o; echo hi > $OUT; cat $OUT", "o", "o"},
		{"x=a; (x=b; cat $x); cat $x; x=c & cat $x; true | x=d; cat $x", "b a", ""},
		{"x=a; if b; then x=c; fi; cat $x", "c a", ""},
		{"x=a; b && x=c; cat $x; b || x=d; cat $x", "c a d", ""},
		{"x=a; while b; do cat $x; x=c; done", "?", ""},
		{"x=a; while b; do cat $x; read x; done", "?", ""},
		{"x=a; cat ${x:-b} ${x:+c} ${y:-d} ${x:=e}", "?", ""},
		{"x=a; x+=b; cat $x", "?", ""},
		{"x=(a b); cat \"${x[@]}\" ${x[1]} $x a${x[@]}b", "a b ?", ""},
		{"x=a; x=b cat $x; cat $x", "a ?", ""},
		{"x=a; export x; cat $x", "?", ""},
		{"readonly x=a; x=b; cat $x", "?", ""},
		{"x=a; read x; cat $x", "?", ""},
		{"x=a; eval b; cat $x", "?", ""},
		{"f() { x=b; }; x=a; f; cat $x", "?", ""},
		{"IFS=:; x=a:/m; cat $x", "?", ""},
		{"x=a; bash -c 'cat $x'", "?", ""},
		{"bash -c 'x=a; cat $x'", "a", ""},
		{"x='/m/*'; cat $x; echo > $x", "/m/", "?"},
		{"x='/m/s a'; echo > $x", "", "?"},
		{"x='~/a'; cat $x; y=~/a; cat $y", "./~/a /home/tool/a", ""},
		{"cat $HOME/a \"$HOME\"/b ${HOME}", "/home/tool/a /home/tool/b /home/tool", ""},
		{"HOME=/m; cat $HOME/a", "?", ""},
		{"cd $HOME/a; cat b $PWD/c", "/home/tool/a /home/tool/a/b b /home/tool/a/c c", ""},
		{"D=$PWD; cd web && cat $D/x \"$D\"", "web x .", ""},
		{"cd src && cd $OLDPWD && cat a; cd src && cd - && cat b", "src . a src/src b src/b", ""},
		{"pushd d && cat a && popd && cat b", "d d/a b", ""},
		{"cd $(pwd)/d && cat a", "d d/a", ""},
		{"R=$(cd d && pwd); cat $R/a", "d d/a /a", ""},
		{"cat ${f:-a} $f", "?", ""},
		{"cat ${TMPDIR:-/tmp}/x", "/tmp/x", ""},
		{"d=$(mktemp -d) && cat $d/x && echo > $d/y", "/tmp/", "/tmp/*"},
		{"d=$(mktemp -d); cat $d/m/s", "/tmp/ /m/s", ""},
		{"cat /m/$(seq 1 3)/$(date +%s) ${#x} $((1))", "/m/ /m// .", ""},
		{"cat $(basename /m/s) $(dirname /m/s)", "s /m", ""},
		{"find . -name '*.go' | while read -r f; do head $f; done", ". ?", ""},
		{"find /m | while read f; do cat \"$f\"; done", "/m ?", ""}, // a name may have a line break, and a path behind it
		{"git ls-files | while read -r f; do cat \"$f\"; done", ".", ""},
		{"git ls-files -z | while read -r f; do cat \"$f\"; done", "?", ""},
		{"git ls-files d | sort | tail -1 | while read f; do cat \"$f\" $f; done", ". ?", ""},
		{"for f in *; do cat \"$f\"; basename \"$f\" | while read g; do cat \"$g\"; done; done", ". ?", ""},
		{"for i in 1 2 {3..9}; do cat x$i; done", "x1 x2 .", ""},
		{"cat x | while read f; do cat $f; done", "x ?", ""},
		{"find a | while read f; do read f < b; cat $f; done", "a b ?", ""},
		{"find -L a | while read f; do cat $f; done", "?", ""},
		{"cat $(git ls-files '*.go' | head -3) $(git ls-files ../m) $(git ls-files :/)", "../m :/ ?", ""},
		{"cat \"$(git ls-files a)\"", ".", ""},
		{"cat $(git diff --name-only /m/a /m/b)", "/m/a /m/b ?", ""},
		{"cat $(echo a) $(cat b)", "b ?", ""},
		{"cat $(ls -l)", "?", ""},
		{"cat $(ls /m)", "/m ?", ""},
		{"cat .* .*/m/s .[!.]* .[.]/x", "? .", ""},
		{"x=.*; cat $x", "?", ""},
		{"cat $1 $@ $* $z", "?", ""},
	} {
		r := Scan(tc.text, Options{Home: "/home/tool"})
		if got := pathsOf(r.Paths); got != tc.paths {
			t.Errorf("%s: paths %q, want %q", tc.text, got, tc.paths)
		}
		if got := pathsOf(r.Writes); got != tc.writes {
			t.Errorf("%s: writes %q, want %q", tc.text, got, tc.writes)
		}
	}
}

// TestBoundsOfValues: what a text says of its variables stays small, however it grows.
func TestBoundsOfValues(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"doubled":  "x=a" + strings.Repeat("; x=$x$x", 200) + "; cat $x",
		"branches": "x=a" + strings.Repeat("; b && x=$x/b || x=$x/c", 200) + "; cat $x",
		"list":     "for x in " + strings.Repeat("a$x$y ", 1000) + "; do cat $x; done",
		"product":  strings.Repeat("for x in 1 2 3 4; do y=$y$x; ", 50) + "cat $y$y$y$y" + strings.Repeat("; done", 50),
	} {
		r := Scan(text, Options{Home: "/home/tool"})
		if !strings.Contains(pathsOf(r.Paths), "?") {
			t.Errorf("%s: %q", name, pathsOf(r.Paths))
		}
	}
}

// TestWide has what names a path where something of a person's can be reached.
func TestWide(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, paths string }{
		{"fold s; base64 --in=s; shuf -fs; dd if=s of=t", "s if=s if of=t of t"},
		{"echo s /m/s; printf '%s' /m/s", ""},
		{"echo /m/*; for f in /n/*; do :; done; x=(/o/*); : p*/q", "/m/ /n/ /o/ ."},
		{"x=/m; echo $x/*", "/m/"},
		{"echo $x/*; echo $x", "?"},
		{"xargs cat", "?"},
		{"find d | xargs cat", "d ?"},
		{"git ls-files | xargs cat", "ls-files ?"}, // xargs parts names, too
		{"find d | xargs -I{} cp {} t", "d {} ? t"},
		{"seq 3 | xargs echo", ""},
		{"find -L . ; grep -R x d; grep -rn x d; rg -L x; tar -chf a.tar d; cp -rL d e", "? . d n hf a.tar L e"},
		{"git commit -m \"$(cat m)\"; git commit -am \"$x\"; curl -H \"a: $x\" http://h/$x", "m commit"},
		{"git show $x", "show ?"},
		{"docker run -v $PWD:/app a:/m/s", "run . /app a:/m/s a /m/s"},
		{"gcc -I/m -o=../t @/m/args x,y", "/m ../t @/m/args /m/args x,y x y"},
		{"[ -n $x ] && [ \"$x\" = /m/s ] && [ -f /m/s ] && [ a -nt b ]", "/m/s a b"},
		{"make X=$x; head -n$x", "?"},
		{"python3 -c 'print(1) /m/s ./a'", "print(1) /m/s ./a /m/s"},
		{"kill $!; exit $rc", ""},
		{"/m/prog a; ./b", "/m/prog a ./b"},
	} {
		r := Scan(tc.text, Options{Home: "/home/tool", Wide: true})
		if got := pathsOf(r.Paths); got != tc.paths {
			t.Errorf("%s: paths %q, want %q", tc.text, got, tc.paths)
		}
	}
}
