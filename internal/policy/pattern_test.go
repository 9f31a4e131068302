package policy

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/toold/toold/internal/testrig"
)

// FuzzCovers: what a pattern covers, it matches too.
func FuzzCovers(f *testing.F) {
	f.Add("*a?b*c", "xxaybzc", "*a*")
	f.Add("**/.env *", "é/.env x", "*.env*")
	f.Add("a?*?", "a\xffb\xe2\x82", "a*")
	f.Add("*?????\uFFFD*", "a\xff\xff\xff\xff\xff", "?*")
	f.Fuzz(func(t *testing.T, p, text, wide string) {
		if len(p) > 200 || len(text) > 1000 || len(wide) > 200 || !utf8.ValidString(p) || !utf8.ValidString(wide) {
			return
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
	start := testrig.Spent(t)
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
	if d := testrig.Spent(t) - start; d > 10*time.Second {
		t.Errorf("took %v", d)
	}
	long := "*" + strings.Repeat("?a", 40) + "*"
	if err := checkPattern(long); err == nil {
		t.Error("a chunk of 80 characters with ? was accepted")
	}
}
