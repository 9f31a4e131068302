package patch

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/toold/toold/internal/testrig"
)

// TestWrongCounts: whatever the numbers behind "@@" say, a diff is applied with all its lines, or not at all.
func TestWrongCounts(t *testing.T) {
	t.Parallel()
	r, applied, refused := rand.New(rand.NewPCG(11, 0)), 0, 0
	for range testrig.Rounds(1000) {
		tree, want := map[string]string{}, map[string]string{}
		var right, wrong strings.Builder
		git := r.IntN(2) == 0
		for f := range 1 + r.IntN(3) {
			name, n := fmt.Sprint("f", f), 4+r.IntN(20)
			old := make([]string, n)
			for i := range old {
				old[i] = fmt.Sprintf("%s%d", []string{"", "- ", "+ ", " "}[r.IntN(4)], i)
			}
			head := fmt.Sprintf("--- a/%s\n+++ b/%s\n", name, name)
			if git {
				head = fmt.Sprintf("diff --git a/%s b/%s\nindex 1..2 100644\n", name, name) + head
			}
			right.WriteString(head)
			wrong.WriteString(head)
			var after []string
			at, moved := 0, 0
			for at < n {
				h := changed{at: at}
				take := func(most int) []string {
					from := at
					at = min(at+r.IntN(most+1), n)
					return old[from:at]
				}
				h.above, h.old, h.insert, h.behind = take(2), take(3), []string{fmt.Sprint("new", at)}, take(2)
				were := len(h.above) + len(h.old) + len(h.behind)
				if were == 0 {
					continue
				}
				after = append(append(append(after, h.above...), h.insert...), h.behind...)
				are := were - len(h.old) + 1
				fmt.Fprintf(&right, "@@ -%d,%d +%d,%d @@\n%s", h.at+1, were, h.at+1+moved, are, h.lines())
				fmt.Fprintf(&wrong, "@@ -%d,%d +%d,%d @@\n%s", h.at+1, max(were+r.IntN(5)-2, 0), h.at+1+moved, max(are+r.IntN(5)-2, 0), h.lines())
				moved += are - were
				gap := min(at+r.IntN(4), n)
				after, at = append(after, old[at:gap]...), gap
			}
			tree[name], want[name] = strings.Join(old, "\n")+"\n", strings.Join(after, "\n")+"\n"
		}
		if git && r.IntN(2) == 0 { // as git format-patch writes it
			right.WriteString("-- \n2.40.1\n")
		}
		if got, err := apply(t.Context(), right.String(), tree); err != nil || !maps.Equal(got, want) {
			t.Fatalf("right: %v, %q\n%s\nof %q", err, got, right.String(), tree)
		}
		switch got, err := apply(t.Context(), wrong.String(), tree); {
		case err != nil:
			refused++
		case !maps.Equal(got, want):
			t.Fatalf("%q, want %q\n%s\nof %q", got, want, wrong.String(), tree)
		default:
			applied++
		}
	}
	if applied < refused {
		t.Errorf("%d applied, %d refused", applied, refused)
	}
}

// TestLinesBeyondCounts: lines that no hunk has are applied where their place is the only one, or named.
func TestLinesBeyondCounts(t *testing.T) {
	t.Parallel()
	tree := map[string]string{"f": "a\nc\n"}
	both := map[string]string{"f": "b\nd\n"}
	first := map[string]string{"f": "b\nc\n"}
	const head = "--- a/f\n+++ b/f\n@@ -1,1 +1,1 @@\n-a\n+b\n"
	for patch, want := range map[string]map[string]string{
		head + "-c\n+d\n":     both,
		head + "\n-c\n+d\n":   nil, // the blank line is not there
		head + "foo\n-c\n+d":  nil,
		head + "-- \n2.4\n":   first,
		head + "-- \n2.4\n+d": nil,
		head + "+x\n":         {"f": "b\nx\nc\n"},
		"Subject: x\n\n- an item\n--- \n f | 2 +-\n\n" + head:                                 first,
		"commit 0123abc\n\n    words\n\n" + head + "\ncommit 0123abd\n\n    words\n\n" + head: nil, // a is gone by then
		head + "\n":  first,
		head + " \n": first,
	} {
		got, err := apply(t.Context(), patch, tree)
		if (err == nil) != (want != nil) || want != nil && !maps.Equal(got, want) {
			t.Errorf("%q: %q, %v", patch, got, err)
		}
	}
	_, err := Parse(head + "foo\n-c\n+d")
	if want := `line 7 of the patch: -c is in no hunk`; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v", err)
	}
}
