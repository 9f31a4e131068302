package policy

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/toold/toold/internal/tool/run/wildcard"
)

// characters splits text as the matcher does: a byte that is no UTF-8 is one.
func characters(s string) []string {
	var all []string
	for len(s) > 0 {
		_, n := utf8.DecodeRuneInString(s)
		all = append(all, s[:n])
		s = s[n:]
	}
	return all
}

// slowMatch is the meaning of wildcards written down as plainly as possible: a
// table of which prefixes of the pattern match which prefixes of the text.
func slowMatch(pattern, text string) bool {
	p, s := characters(pattern), characters(text)
	match := make([][]bool, len(p)+1)
	for i := range match {
		match[i] = make([]bool, len(s)+1)
		for j := range match[i] {
			switch {
			case i == 0:
				match[i][j] = j == 0
			case p[i-1] == "*":
				match[i][j] = match[i-1][j] || j > 0 && match[i][j-1]
			default:
				match[i][j] = j > 0 && match[i-1][j-1] && (p[i-1] == "?" || p[i-1] == s[j-1])
			}
		}
	}
	return match[len(p)][len(s)]
}

func TestGlob(t *testing.T) {
	for _, tt := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true},
		{"", "x", false},
		{"*", "", true},
		{"**", "x\ny", true},
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"a*b*c", "a-b-b-c", true},
		{"a*b*c", "a-c-b", false},
		{"*b*b*", "ab", false},
		{"?", "", false},
		{"?", "é", true},
		{"?", "\xff", true},
		{"?", "\n", true},
		{"??", "é", false},
		{"a?*?c", "abc", false},
		{"a?*?c", "abbc", true},
		{"*a?c*", "ac abc", true},
		{"*a?c", "xabcabd", false},
		{"*é?*", "xéy", true},
		{"*?\uFFFD*", "a\xff", false},
		{"*?\uFFFD*", "a\uFFFD", true},
		{"[ab]", "a", false},
		{"[ab]", "[ab]", true},
		{`\*`, `\x`, true},
		{"a.c", "abc", false},
	} {
		g := wildcard.Compile(tt.pattern)
		if got := g.Match(tt.text); got != tt.want {
			t.Errorf("%q on %q: got %v", tt.pattern, tt.text, got)
		}
		if got := slowMatch(tt.pattern, tt.text); got != tt.want {
			t.Errorf("%q on %q: the reference says %v", tt.pattern, tt.text, got)
		}
	}
}

// FuzzGlob compares the matcher with the slow one, and the cover of patterns with
// what they match.
func FuzzGlob(f *testing.F) {
	f.Add("*a?b*c", "xxaybzc", "*a*")
	f.Add("**/.env *", "é/.env x", "*.env*")
	f.Add("a?*?", "a\xffb\xe2\x82", "a*")
	f.Add("*?????\uFFFD*", "a\xff\xff\xff\xff\xff", "?*")
	f.Fuzz(func(t *testing.T, p, text, wide string) {
		if len(p) > 200 || len(text) > 1000 || len(wide) > 200 || !utf8.ValidString(p) || !utf8.ValidString(wide) {
			return
		}
		g := wildcard.Compile(p)
		got := g.Match(text)
		if want := slowMatch(p, text); got != want {
			t.Fatalf("%q on %q: got %v, want %v", p, text, got, want)
		}
		if covers(wide, p) && compilePattern(p).match(text) && !compilePattern(wide).match(text) {
			t.Fatalf("%q covers %q, but not for %q", wide, p, text)
		}
	})
}

func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		wide, narrow string
		want         bool
	}{
		{"*", "git *", true},
		{"git *", "git push *", true},
		{"git *", "git", true},
		{"git", "git *", false},
		{"git*", "git *", true},
		{"?", "*", false},
		{"?*", "*", false},
		{"a?c", "a?c", true},
		{"a*c", "a?c", true},
		{"a?c", "a*c", false},
		{"**/x", "x", true},
		{"*/x", "**/x", false},
		{"git push *", "git *", false},
		{"*b*", "a*b*c", true},
		{"a*b", "a*c", false},
	} {
		if got := covers(tt.wide, tt.narrow); got != tt.want {
			t.Errorf("%q covers %q: got %v", tt.wide, tt.narrow, got)
		}
	}
}

// TestHostilePatterns: what would be exponential or quadratic in a careless
// matcher ends. The bound is a hundred times what it takes.
func TestHostilePatterns(t *testing.T) {
	text := strings.Repeat("a", 1<<20)
	start := spent(t)
	for _, p := range []string{
		strings.Repeat("*a", 32) + "b",
		strings.Repeat("*a?", 32) + "b",
		"*" + strings.Repeat("a?", 31) + "b*c",
		"*" + strings.Repeat("a", 4000) + "b*",
		strings.Repeat("?*", 32) + "b",
		strings.Repeat("?", 64) + "*" + strings.Repeat("?", 63) + "b",
	} {
		if err := checkPattern(p); err != nil {
			t.Errorf("%.20q: %v", p, err)
		}
		if compilePattern(p).match(text) {
			t.Errorf("%.20q matches", p)
		}
	}
	if d := spent(t) - start; d > 10*time.Second {
		t.Errorf("took %v", d)
	}
	long := "*" + strings.Repeat("?a", 40) + "*"
	if err := checkPattern(long); err == nil {
		t.Error("a chunk of 80 characters with ? was accepted")
	}
	g := wildcard.Compile(long) // and still means what it says
	if want := slowMatch(long, strings.Repeat("ba", 60)); g.Match(strings.Repeat("ba", 60)) != want || !want {
		t.Errorf("the long chunk: want %v", want)
	}
}
