package main

import (
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestShellQuote(t *testing.T) {
	for _, c := range []struct {
		argv []string
		want string
	}{
		{[]string{"go", "test", "./..."}, "go test ./..."},
		{[]string{"bash", "-c", "a | b"}, "bash -c 'a | b'"},
		{[]string{"echo", "", "it's", "a  b"}, `echo '' 'it'\''s' 'a  b'`},
		{[]string{"time", "if", "time"}, `'time' if time`},
		{[]string{"A=b", "cmd"}, `'A=b' cmd`},
		{[]string{"~", "*", "$x", "#"}, `'~' '*' '$x' '#'`},
		{[]string{"echo", "\xff'\\"}, `echo $'\377\047\134'`},
	} {
		if got := shellQuote(c.argv); got != c.want {
			t.Errorf("shellQuote(%q) = %s, want %s", c.argv, got, c.want)
		}
	}
}

// Real bash is the oracle: it must split the quoted line into the same words.
func FuzzShellQuote(f *testing.F) {
	f.Add("a b", "it's")
	f.Add("", "\xff\xfe\\'")
	f.Add("$(id)`id`${x}", "\n\r\t!#~*?[a]{b,c}")
	f.Add("if", "é")
	f.Fuzz(func(t *testing.T, a, b string) {
		if strings.ContainsRune(a+b, 0) {
			t.Skip("no argument has a NUL")
		}
		quoted := shellQuote([]string{a, b})
		if !utf8.ValidString(quoted) {
			t.Fatalf("%q is not UTF-8", quoted)
		}
		out, err := exec.Command("bash", "--noprofile", "--norc", "-c", `printf '%s\0' `+quoted).Output()
		if err != nil {
			t.Fatalf("bash: %v for %s", err, quoted)
		}
		if want := a + "\x00" + b + "\x00"; string(out) != want {
			t.Fatalf("%s gave %q, want %q", quoted, out, want)
		}
	})
}
