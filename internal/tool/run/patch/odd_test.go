package patch

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/internal/testrig"
)

// changed is a hunk of a test: lines around a change of a text.
type changed struct {
	at             int // its first line, from 0
	above, old     []string
	insert, behind []string
}

func (h changed) lines() string {
	var b strings.Builder
	for _, part := range []struct {
		op   string
		list []string
	}{{" ", h.above}, {"-", h.old}, {"+", h.insert}, {" ", h.behind}} {
		for _, l := range part.list {
			b.WriteString(part.op + l + "\n")
		}
	}
	return b.String()
}

// TestOddForms: a patch in a form that its makers did not mean to write makes the same tree as in the
// plain form, or is a conflict as that is.
func TestOddForms(t *testing.T) {
	t.Parallel()
	r, applied, conflicts, named := rand.New(rand.NewPCG(9, 0)), 0, 0, 0
	for range testrig.Rounds(2000) {
		text := make([]string, 6+r.IntN(20))
		for i := range text {
			text[i] = fmt.Sprintf("%s%d", strings.Repeat(" ", r.IntN(2)), r.IntN(3*len(text)))
		}
		var hunks []changed
		for at := 0; at < len(text); {
			h := changed{at: at + r.IntN(4)}
			n := h.at
			take := func(most int) []string {
				from := min(n, len(text))
				n = min(n+r.IntN(most+1), len(text))
				return text[from:max(n, from)]
			}
			h.above, h.old, h.insert, h.behind = take(2), take(2), []string{fmt.Sprint("new", at)}, take(2)
			if len(h.above)+len(h.old)+len(h.behind) > 0 {
				hunks = append(hunks, h)
			}
			at = n + 1 + r.IntN(6)
		}
		if len(hunks) == 0 {
			continue
		}
		tree := map[string]string{"f": strings.Join(text, "\n") + "\n"}
		body, bare, wrong, twice, once := "", "", "", "", true
		for _, h := range hunks {
			first := strings.TrimSpace(slices.Concat(h.above, h.old, h.behind)[0])
			n := 0
			for _, line := range text {
				if strings.TrimSpace(line) == first {
					n++
				}
			}
			once = once && n == 1
			body += "@@\n" + h.lines()
			bare += []string{"@@\n", "@@ ... @@\n", "@@ @@\n"}[r.IntN(3)] + h.lines()
			wrong += fmt.Sprintf("@@ -%d,%d +%d,%d @@\n", r.IntN(9), 50+r.IntN(9), r.IntN(9), 50+r.IntN(9)) + h.lines()
			twice += "@@ " + first + "\n" + h.lines()
		}
		envelope := func(body string) string {
			return "*** Begin Patch\n*** Update File: f\n" + body + "*** End Patch\n"
		}
		want, wrongly := apply(t.Context(), envelope(body), tree)
		indented := strings.NewReplacer("*** Begin", "  *** Begin", "*** Update", " *** Update", "*** End", "\t*** End").Replace(envelope(body))
		for name, odd := range map[string]string{
			"the place of it":     strings.Replace(envelope(body), "\n", "\n*** Environment ID: local\n", 1),
			"blanks before marks": indented,
			"bare @@":             "--- a/f\n+++ b/f\n" + bare,
			"git's, bare @@":      "diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n" + bare,
			"wrong counts":        "--- f\n+++ f\n" + wrong,
		} {
			got, err := apply(t.Context(), odd, tree)
			if (err == nil) != (wrongly == nil) || !maps.Equal(got, want) {
				t.Fatalf("%s: %q, %v; the plain form: %q, %v\n%s\nof %q", name, got["f"], err, want["f"], wrongly, odd, tree["f"])
			}
		}
		// Where that line is there twice, the one behind "@@" may be another one than the first below.
		if got, err := apply(t.Context(), envelope(twice), tree); once && (err != nil || !maps.Equal(got, want)) {
			t.Fatalf("@@ with the first line: %q, %v, want %q\n%s\nof %q", got["f"], err, want["f"], twice, tree["f"])
		} else if once {
			named++
		}
		if applied++; wrongly != nil {
			conflicts++
		}
	}
	if named == 0 || conflicts == 0 || conflicts > applied*3/4 {
		t.Errorf("of %d patches %d are conflicts, %d name a line once", applied, conflicts, named)
	}
}

// TestOddFormsOfFiles: a diff without right numbers may also add, delete and move files.
func TestOddFormsOfFiles(t *testing.T) {
	t.Parallel()
	tree := map[string]string{"a": "1\n2\n3\n", "b": "x\n"}
	for _, tt := range []struct {
		patch string
		want  map[string]string // nil: it is no patch
	}{
		{"--- /dev/null\n+++ b/n\n@@\n+1\n+2\n--- a/b\n+++ /dev/null\n@@\n-x\n--- a/a\n+++ b/a\n@@\n-2\n+two\n", map[string]string{"a": "1\ntwo\n3\n", "n": "1\n2\n"}},
		{"--- a/a\n+++ b/c\n@@\n 1\n-2\n+two\n", map[string]string{"c": "1\ntwo\n3\n", "b": "x\n"}},
		{"--- a/a\n+++ b/a\n@@\n 3\n+4\n\\ No newline at end of file\n", map[string]string{"a": "1\n2\n3\n4", "b": "x\n"}},
		{"--- a/a\r\n+++ b/a\r\n@@\r\n-2\r\n+two\r\n", map[string]string{"a": "1\ntwo\n3\n", "b": "x\n"}},
		{"--- a/a\n+++ b/a\n@@\n+0\n", nil}, // anywhere
		{"--- a/a\n+++ b/a\n@@\n-2\n+two\nand more\n", nil},
		{"old mode 100644\nnew mode 100755\n--- a/a\n+++ b/a\n@@\n-2\n+two\n", nil},
	} {
		got, err := apply(t.Context(), tt.patch, tree)
		if (err == nil) != (tt.want != nil) || !maps.Equal(got, tt.want) {
			t.Errorf("%q: got %q, %v", tt.patch, got, err)
		}
	}
}

// TestOddNewFiles: no line that a diff removes becomes part of a new file, and none that stays is deleted with one,
// as for git apply.
func TestOddNewFiles(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 1))
	tree := map[string]string{"old": "1\n2\n"}
	for range testrig.Rounds(500) {
		var body, added strings.Builder
		kinds := map[byte]int{}
		for i := range 1 + r.IntN(6) {
			op := "+++ -"[r.IntN(5)]
			if kinds[op]++; r.IntN(3) == 0 {
				body.WriteString([]string{"@@\n", "@@ -0,0 +1,9 @@\n", "@@ ... @@\n"}[r.IntN(3)])
			}
			fmt.Fprintf(&body, "%c%d\n", op, i)
			if op != '-' {
				fmt.Fprintf(&added, "%d\n", i)
			}
		}
		if kinds['+']+kinds['-'] == 0 {
			continue
		}
		patch := "--- /dev/null\n+++ b/new\n@@ -0,0 +1,99 @@\n" + body.String()
		got, err := apply(t.Context(), patch, tree)
		switch {
		case kinds['-'] > 0 && err == nil:
			t.Fatalf("lines are removed from a new file: %q\n%s", got["new"], patch)
		case err == nil && got["new"] != added.String():
			t.Fatalf("%q\n%s", got["new"], patch)
		}
		patch = "--- a/old\n+++ /dev/null\n@@ -1,99 +0,0 @@\n" + body.String()
		if got, err := apply(t.Context(), patch, tree); err == nil && kinds['+']+kinds[' '] > 0 {
			t.Fatalf("lines stay in a file that is deleted: %q\n%s", got, patch)
		}
	}
	for patch, want := range map[string]string{
		"--- /dev/null\n+++ b/n\n@@\n+1\n-2\n+3\n":          `line 3 of the patch: n is a new file, whose old one is /dev/null, and has lines that are removed`,
		"--- a/old\n+++ /dev/null\n@@\n-1\n+2\n":            `line 3 of the patch: old is deleted, as its new one is /dev/null, and has lines that stay or are added`,
		"--- /dev/null\n+++ b/n\n@@ -0,0 +1,9 @@\n+1\n-2\n": `n is a new file`,
	} {
		if _, err := apply(t.Context(), patch, tree); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", patch, err, want)
		}
	}
}
