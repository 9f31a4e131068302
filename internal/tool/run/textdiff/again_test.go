package textdiff

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/testrig/difftest"
)

// TestAgain: a diff that is made again, beside those of other files, is the one between the
// first text and the last, whatever came between.
func TestAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	text := func(most int) []byte {
		var b strings.Builder
		for range r.IntN(most) {
			b.WriteString([]string{"a\n", "b\n", "-- x\n", "++ /f\n", "--- /f\n", "+++ /f\n", "@@ -1 +1 @@\n", "\n", "c\r\n"}[r.IntN(9)])
		}
		if r.IntN(3) == 0 {
			b.WriteString("end")
		}
		return []byte(b.String())
	}
	change := func(from []byte) []byte {
		lines := strings.SplitAfter(string(from), "\n")
		for range 1 + r.IntN(3) {
			i := r.IntN(len(lines))
			lines[i] = []string{"new\n", "", lines[i] + "more\n", "-- x\n"}[r.IntN(4)]
		}
		return []byte(strings.Join(lines, ""))
	}
	section := func(name string, from, to []byte) (string, Stat) {
		return Unified(name, from, to, Between(from, to), 1<<20)
	}
	shown := 0
	for range testrig.Rounds(3000) {
		old := text(40)
		mid := change(old)
		now := change(mid)
		first, was := section("/f", old, mid)
		if first == "" {
			continue
		}
		x, y := text(8), text(8)
		head, _ := section("/e", x, y)
		tail, _ := section("/g", y, x)
		head, tail = "created: /e\n"+head, "deleted: /g\n"+tail
		want, is := section("/f", old, now)
		got, gotWas, gotIs, ok := Again(head+first+tail, "/f", mid, now, 1<<20)
		if !ok || gotWas != was || gotIs != is {
			t.Fatalf("%v, %v to %v, want %v to %v, of\n%s", ok, gotWas, gotIs, was, is, head+first+tail)
		}
		if want != "" {
			mine := strings.TrimSuffix(strings.TrimPrefix(got, head), tail)
			if made, err := difftest.Apply(string(old), mine); err != nil || made != string(now) {
				t.Fatalf("%v: it makes %q of %q, want %q:\n%s", err, made, old, now, got)
			}
			shown++
		}
		if got != head+want+tail {
			t.Fatalf("got\n%s\nwant\n%s", got, head+want+tail)
		}
		// What does not lead to the text is never made again.
		other := change(mid)
		if again, _, _, ok := Again(first, "/f", other, now, 1<<20); ok && string(other) != string(mid) {
			if want, err := difftest.Apply(string(old), first); err == nil && want == string(other) {
				continue
			}
			// The change lies where the diff does not look.
			if made, err := difftest.Apply(undone(t, first, other), again); again != "" && (err != nil || made != string(now)) {
				t.Fatalf("%v: %q of\n%s", err, made, again)
			}
		}
	}
	if shown == 0 {
		t.Error("nothing was shown")
	}
}

// undone is the text that a diff leads from.
func undone(t *testing.T, diff string, to []byte) string {
	t.Helper()
	u := undoing{diff: strings.SplitAfter(diff, "\n")[2:], text: splitLines(to)}
	if !u.hunks() {
		t.Fatal("it does not lead there")
	}
	return string(u.old)
}

// TestAgainNot: diffs that are cut, of other files, or no diffs.
func TestAgainNot(t *testing.T) {
	mid, now := []byte("a\nb\nc\n"), []byte("a\nB\nc\n")
	diff, _ := Unified("/f", []byte("a\nc\n"), mid, Between([]byte("a\nc\n"), mid), 1<<20)
	for name, d := range map[string]string{
		"nothing": "", "another file": strings.ReplaceAll(diff, "/f", "/g"), "cut": diff[:len(diff)-3], "cut at a line": diff[:len(diff)-len(" c\n")],
		"not its text": strings.Replace(diff, "+b", "+x", 1), "a large number": strings.Replace(diff, "+1,3", "+1,99999999999999999999", 1),
		"another place": strings.Replace(diff, "+1,3", "+2,3", 1), "more behind it": diff + "… diff cut here: in all 9 lines added, 0 removed\n", "an odd mark": strings.Replace(diff, "+b", "*b", 1),
	} {
		if got, _, _, ok := Again(d, "/f", mid, now, 1<<20); ok {
			t.Errorf("%s: %q", name, got)
		}
	}
	if _, _, _, ok := Again(diff, "/f", mid, now, 1<<20); !ok {
		t.Error("and the diff itself is not taken")
	}
}

// FuzzAgain: no diff from a sandbox does harm.
func FuzzAgain(f *testing.F) {
	f.Add("--- /f\n+++ /f\n@@ -1 +1,2 @@\n a\n+b\n", "a\nb\n", "c")
	f.Add("--- /f\n+++ /f\n@@ -0,0 +9,99999999 @@\n", "", "c")
	f.Fuzz(func(_ *testing.T, diff, before, now string) {
		_, _, _, _ = Again(diff, "/f", []byte(before), []byte(now), 1000)
	})
}
