package wildcard

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/toold/toold/internal/testrig"
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

func TestMatch(t *testing.T) {
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
		g := Compile(tt.pattern)
		if got := g.Match(tt.text); got != tt.want {
			t.Errorf("%q on %q: got %v", tt.pattern, tt.text, got)
		}
		if got := slowMatch(tt.pattern, tt.text); got != tt.want {
			t.Errorf("%q on %q: the reference says %v", tt.pattern, tt.text, got)
		}
		if g.String() != tt.pattern {
			t.Errorf("%q is printed as %q", tt.pattern, g.String())
		}
	}
}

// random is a text of few letters, so that patterns often match.
func random(r *rand.Rand, letters string, most int) string {
	all, out := []rune(letters), []rune{}
	for range r.IntN(most + 1) {
		out = append(out, all[r.IntN(len(all))])
	}
	return string(out)
}

// TestOracle: * and ? mean what they mean to bash, which is asked about random patterns and
// texts, all else in them quoted.
func TestOracle(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	var script strings.Builder
	var ours []byte
	matches := 0
	for range testrig.Rounds(5000) {
		letters := "ab/é€[]'\n\\"
		pattern, text := random(r, letters+"**??", 9), random(r, letters, 12)
		if r.IntN(2) == 0 { // a text that the pattern may stand for
			text = strings.NewReplacer("*", random(r, letters, 3), "?", random(r, letters, 1)).Replace(pattern)
		}
		var bashs strings.Builder
		for _, c := range pattern {
			if c == '*' || c == '?' {
				bashs.WriteRune(c)
			} else {
				bashs.WriteString(quote(string(c)))
			}
		}
		if pattern == "" {
			bashs.WriteString("''")
		}
		fmt.Fprintf(&script, "[[ %s == %s ]] && printf y || printf n\n", quote(text), bashs.String())
		g := Compile(pattern)
		if g.Match(text) {
			ours = append(ours, 'y')
			matches++
		} else {
			ours = append(ours, 'n')
		}
	}
	cmd := exec.Command(bash, "--norc")
	cmd.Stdin, cmd.Env = strings.NewReader(script.String()), []string{"LC_ALL=C.UTF-8"}
	theirs, err := cmd.Output()
	if err != nil || len(theirs) != len(ours) {
		t.Fatalf("bash answered %d of %d: %v", len(theirs), len(ours), err)
	}
	if matches < len(ours)/20 {
		t.Errorf("only %d of %d match: they show little", matches, len(ours))
	}
	lines := strings.SplitAfter(script.String(), "printf n\n")
	for i := range ours {
		if ours[i] != theirs[i] {
			t.Errorf("we say %c, bash says %c: %s", ours[i], theirs[i], lines[i])
		}
	}
}

// FuzzMatch compares the matcher with the slow one, and Part with what matches.
func FuzzMatch(f *testing.F) {
	f.Add("*a?b*c", "xxaybzc")
	f.Add("**/.env *", "é/.env x")
	f.Add("a?*?", "a\xffb\xe2\x82")
	f.Add("*?????\uFFFD*", "a\xff\xff\xff\xff\xff")
	f.Add("*"+strings.Repeat("?a", 40)+"*", strings.Repeat("ba", 60))
	f.Fuzz(func(t *testing.T, p, text string) {
		if len(p) > 200 || len(text) > 1000 || !utf8.ValidString(p) {
			return
		}
		g := Compile(p)
		got := g.Match(text)
		if want := slowMatch(p, text); got != want {
			t.Fatalf("%q on %q: got %v, want %v", p, text, got, want)
		}
		if part := g.Part(); got && !strings.Contains(text, part) || strings.ContainsAny(part, "*?/") {
			t.Fatalf("%q matches %q, which has no %q", p, text, part)
		}
	})
}

// TestRandom is FuzzMatch on patterns that are more often close to the text.
func TestRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range testrig.Rounds(20_000) {
		p, text := random(r, "ab/é**??", 90), random(r, "ab/é", 120)
		if r.IntN(2) == 0 { // a text with some characters made wild
			p = strings.Map(func(c rune) rune { return []rune{c, c, c, '?', '*'}[r.IntN(5)] }, text)
		}
		if r.IntN(4) == 0 {
			text = strings.ReplaceAll(text, "é", "\xe9")
		}
		g := Compile(p)
		if got, want := g.Match(text), slowMatch(p, text); got != want {
			t.Fatalf("%q on %q: got %v, want %v", p, text, got, want)
		}
	}
}

func TestPart(t *testing.T) {
	for pattern, want := range map[string]string{
		"": "", "*": "", "?*/": "", "*.env": ".env", "**/secret/*.key": "secret", "a?bc": "bc", "ab*cd": "ab", "/etc/x": "etc",
	} {
		g := Compile(pattern)
		if got := g.Part(); got != want {
			t.Errorf("%q has the part %q, want %q", pattern, got, want)
		}
	}
}

// TestHostile: what would be exponential or quadratic in a careless matcher ends. The
// bound is a hundred times what it takes.
func TestHostile(t *testing.T) {
	for _, text := range []string{strings.Repeat("a", 1<<20), strings.Repeat("é", 1<<19)} {
		letter := text[:len(text)>>20]
		begin := testrig.Spent(t)
		for _, p := range []string{
			strings.Repeat("*a", 32) + "b",
			strings.Repeat("*a?", 32) + "b",
			"*" + strings.Repeat("a?", 31) + "b*c",
			"*" + strings.Repeat("a", 4000) + "b*",
			strings.Repeat("?*", 32) + "b",
			strings.Repeat("?", MaxChunk) + "*" + strings.Repeat("?", MaxChunk-1) + "b",
		} {
			g := Compile(strings.ReplaceAll(p, "a", letter))
			if g.Match(text) {
				t.Errorf("%.20q matches", p)
			}
		}
		if d := testrig.Spent(t) - begin; d > 10*time.Second {
			t.Errorf("took %v", d)
		}
	}
}

// TestLongChunk: a part with a ? that is longer than MaxChunk means what it says.
func TestLongChunk(t *testing.T) {
	g := Compile("*" + strings.Repeat("?a", 40) + "*")
	for _, text := range []string{strings.Repeat("ba", 60), strings.Repeat("ba", 39), strings.Repeat("ab", 40), "é" + strings.Repeat("ba", 40)} {
		if got, want := g.Match(text), slowMatch(g.String(), text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

// BenchmarkBits is the slowest kind of part of a pattern on a megabyte.
func BenchmarkBits(b *testing.B) {
	text := string(bytes.Repeat([]byte("a"), 1<<20))
	g := Compile("*" + strings.Repeat("a?", 31) + "b*")
	b.SetBytes(1 << 20)
	for b.Loop() {
		g.Match(text)
	}
}
