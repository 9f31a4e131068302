package run

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toold/toold/internal/tool/run/textdiff"
)

// TestLinesNow: the changed lines, three around them, as read would show them.
func TestLinesNow(t *testing.T) {
	var ten []string
	for i := range 20 {
		ten = append(ten, fmt.Sprint("l", i+1))
	}
	text := strings.Join(ten, "\n") + "\n"
	for _, tt := range []struct{ name, old, new, want string }{
		{"one", text, strings.Replace(text, "l10\n", "new\n", 1), "7\tl7\n8\tl8\n9\tl9\n10\tnew\n11\tl11\n12\tl12\n13\tl13"},
		{"two places", text, strings.NewReplacer("l2\n", "", "l18\n", "a\nb\n").Replace(text), "1\tl1\n2\tl3\n3\tl4\n4\tl5\n…\n14\tl15\n15\tl16\n16\tl17\n17\ta\n18\tb\n19\tl19\n20\tl20"},
		{"what looks like a head", "x\n-- a\n++ /b\n", "x\n++ /c\n++ /b\n", "1\tx\n2\t++ /c\n3\t++ /b"},
		{"no last line end", "a\nb", "a\nc", "1\ta\n2\tc"},
		{"all removed", "a\n", "", ""},
		{"created", "", "a\nb\n", ""},
		{"CRLF", "a\r\nb\r\n", "a\r\nc\r\n", "1\ta\n2\tc"},
		{"a long line", "a\n", strings.Repeat("é", 400) + "\n", "1\t" + strings.Repeat("é", 250) + "…"},
	} {
		old, now := []byte(tt.old), []byte(tt.new)
		diff, _ := textdiff.Unified("/w/f", old, now, textdiff.Between(old, now), MaxDiff)
		want := tt.want
		if want != "" {
			want = "\nThe lines are now:\n" + want
		}
		if got := linesNow(diff, false); got != want {
			t.Errorf("%s: got %q\nwant %q\nof %s", tt.name, got, want, diff)
		}
	}
	old, now := []byte(strings.Repeat("a\n", 3000)), []byte(strings.Repeat("b\n", 3000))
	diff, _ := textdiff.Unified("/w/f", old, now, textdiff.Between(old, now), MaxDiff)
	got := linesNow(diff, false)
	shown := strings.Count(got, "\tb")
	if len(got) > shownDiff+longestNow+200 || !strings.HasSuffix(got, fmt.Sprintf("\n(%d more lines are not shown)", 3000-shown)) {
		t.Errorf("of a long change %d bytes are shown, %d lines: %q", len(got), shown, got[len(got)-80:])
	}
}

// FuzzLinesNow: a diff may have any text, and what is shown is bounded.
func FuzzLinesNow(f *testing.F) {
	f.Add("--- /f\n+++ /f\n@@ -1 +1,2 @@\n a\n+b\n")
	f.Add("@@ -0,0 +9,99999999 @@\n\n\\ x\n")
	f.Fuzz(func(t *testing.T, diff string) {
		if got := linesNow(diff, true); len(got) > len(diff)*12+100 || len(got) > shownDiff+len(diff)+longestNow+200 {
			t.Errorf("%d bytes of %d", len(got), len(diff))
		}
	})
}
