package shell

import (
	"strings"
	"testing"
	"time"
)

// TestLimits checks that what is too much is opaque, and says so at once.
func TestLimits(t *testing.T) {
	full := func(s string) string { return strings.Repeat(s, maxText/len(s)) }
	for _, tc := range []struct{ name, text, why string }{
		{"1 MB", strings.Repeat("a", 1<<20), "it is longer than a command can be"},
		{"many commands", strings.Repeat("a;", maxCommands+1), "it has more than 10000 commands"},
		{"subshells", full("("), "it nests more than can be judged"},
		{"substitutions", full("$("), "it nests more than can be judged"},
		{"braces", full("{ "), "it nests more than can be judged"},
		{"conditions", full("if "), "it nests more than can be judged"},
		{"wrappers", full("env "), "it has wrappers of wrappers beyond what can be judged"},
		{"carriage return", "echo a\rtouch b", "it has a control character, which people do not see"},
		{"escape", "echo \x1b[1m", "it has a control character, which people do not see"},
		{"no-break space", "git\u00a0status", "it has a character that cannot be seen or looks like a space"},
		{"zero width", "git st\u200batus", "it has a character that cannot be seen or looks like a space"},
		{"bidi", "git \u202estatus", "it has a character that cannot be seen or looks like a space"},
		{"look-alike", "git st\u0430tus", "it mixes letters of two alphabets that look alike in one word"},
		{"another alphabet", "\u0430\u0435\u043e x", `аео is an unusual name of a command`},
		{"bytes", "git \xff", "it is not valid UTF-8"},
		{"no end", "cat <<A\nb\n", "it cannot be parsed: 1:5: unclosed here-document `A`"},
		{"nothing", "", "it runs no program that could be named"},
		{"a comment", "# git status", "it runs no program that could be named"},
		{"a backslash", `git status \`, "it ends in the middle of a word"},
	} {
		r := Scan(tc.text, Options{})
		if !r.Opaque || r.Why != tc.why {
			t.Errorf("%s: opaque %v, %q; want %q", tc.name, r.Opaque, r.Why, tc.why)
		}
	}
	if r := Scan(strings.Repeat("a;", maxCommands-1), Options{}); r.Opaque || len(r.Commands) != maxCommands-1 {
		t.Errorf("%d commands: opaque %v, %d found", maxCommands-1, r.Opaque, len(r.Commands))
	}
	if r := Scan("cat "+strings.Repeat("a/b ", 3)+"x$(seq 1)", Options{}); len(r.Paths) != 2 {
		t.Errorf("a path twice: %+v", r.Paths)
	}
	var many strings.Builder
	many.WriteString("cat")
	for i := range 400 {
		many.WriteString(" f" + strings.Repeat("x", i))
	}
	if r := Scan(many.String(), Options{}); len(r.Paths) != maxPaths+1 || r.Paths[maxPaths].Name != "" {
		t.Errorf("%d paths of 400, the last %+v", len(r.Paths), r.Paths[len(r.Paths)-1])
	}
	words := strings.Replace(many.String(), "cat", "frob", 1)
	if r := Scan("cat a b; "+words, Options{}); len(r.Links) != maxPaths-2 || len(r.Paths) != 3 || !r.Paths[2].Weak {
		t.Errorf("%d words of 400, and the paths %+v", len(r.Links), r.Paths)
	}
	if r := Scan("frob a b; frob a c; (cd d; frob a); "+many.String(), Options{}); len(r.Links) != 0 || len(r.Paths) != maxPaths+2 {
		t.Errorf("%d words and %d paths of 400", len(r.Links), len(r.Paths))
	}
}

// TestHostileTextsEnd has texts that are as deep or as wide as they can be.
// Each takes some 0.1 s at most; the bound is for a machine that is very busy.
func TestHostileTextsEnd(t *testing.T) {
	pieces := []string{
		"(", "$(", "{ ", "if ", "! ", "time ", "f() ", "case x in a) ", "for x do ", "$((", "$((-", "$((1**", "((a=", "[[ ! ", "[[ (", "a && ", "a | ", "a; ",
		"`", "\"$(", "${x:-", "\"${x:-", "a[", "${a[", "x=(", "<(", "a \\\n", "<<A ", "cat <<A\n", "#\n", "{a,", "*", "'a'", "\"a\"", "$'a'", "@(", "let -",
		"exec ", "cd a && ", "cd a; ", "bash -c a; ", "sh -c a; ", "echo $(sh -c '", "a >b ", "xargs ", "~", "if a; then ", "-exec ", "$x", "\\a", "a=b ", "é ", "echo  $(", ">a ", "export a=b ", "for x in a; do cd ", "while a; do cd b; ",
	}
	for _, piece := range pieces {
		all := []string{"", "x ", "echo $((", "[[ ", "find "}
		if testing.Short() {
			all = all[:1]
		}
		for _, before := range all {
			text := before + strings.Repeat(piece, (maxText-len(before))/len(piece))
			start := time.Now()
			Scan(text, Options{})
			if before == "" {
				Scan(text, Options{Shell: []string{"/bin/sh"}})
			}
			Canonical(text)
			if d := time.Since(start); d > 10*time.Second {
				t.Errorf("%q after %q, %d bytes: %s", piece, before, len(text), d)
			}
		}
	}
}

// TestShellsInShellsEnd has scripts in scripts, each of which is read twice.
func TestShellsInShellsEnd(t *testing.T) {
	text := "touch a"
	for range maxDepth + 2 {
		next := "sh -c " + strings.NewReplacer(`\`, `\\`, " ", `\ `, ";", `\;`).Replace(text)
		if len(next) >= maxText {
			break
		}
		text = next
	}
	start := time.Now()
	r := Scan(text, Options{Shell: []string{"/bin/sh"}})
	if d := time.Since(start); d > 10*time.Second || len(text) < maxText/4 || r.Why != "it has more scripts than can be judged" {
		t.Errorf("%d bytes: %s, %q", len(text), d, r.Why)
	}
}
