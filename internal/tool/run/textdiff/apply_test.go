package textdiff

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/toold/toold/internal/testrig/difftest"
)

// pieces are what random texts are made of: identical lines, line breaks of both
// kinds, empty lines, characters of several bytes.
var pieces = []string{
	"\n", "\n", "\n", "\r\n", "\r", "a", "b", "same line\n", "same line\n", "}\n", "é", "日本", "\t", " ", "+", "-", "@@ -1 +1 @@\n", "\\ No newline\n",
}

func randomText(rnd *rand.Rand, most int) string {
	var b strings.Builder
	for range rnd.IntN(most + 1) {
		b.WriteString(pieces[rnd.IntN(len(pieces))])
	}
	return b.String()
}

// randomChange makes two texts and says where they differ: in several places of
// one line, in lines beside each other and far away, also by nothing.
func randomChange(rnd *rand.Rand) (old, new string, changes []Change) {
	var a, b strings.Builder
	for range 1 + rnd.IntN(8) {
		common := randomText(rnd, 1+rnd.IntN(40))
		a.WriteString(common)
		b.WriteString(common)
		c := Change{OldStart: a.Len(), NewStart: b.Len()}
		was := randomText(rnd, rnd.IntN(6))
		is := was
		if rnd.IntN(8) > 0 {
			is = randomText(rnd, rnd.IntN(6))
		}
		a.WriteString(was)
		b.WriteString(is)
		c.OldEnd, c.NewEnd = a.Len(), b.Len()
		changes = append(changes, c)
	}
	if rnd.IntN(3) > 0 {
		tail := randomText(rnd, 30)
		a.WriteString(tail)
		b.WriteString(tail)
	}
	return a.String(), b.String(), changes
}

// check proves that a diff says what became of the old text.
func check(t *testing.T, old, new string, changes []Change) string {
	t.Helper()
	diff, stat := Unified("f", []byte(old), []byte(new), changes, 1<<30)
	if len(changes) == 0 {
		if diff != "" || old != new {
			t.Fatalf("no changes from %q to %q: %q", old, new, diff)
		}
		return diff
	}
	got, err := difftest.Apply(old, diff)
	if err != nil || got != new {
		t.Fatalf("%q became %q by %+v; the diff makes %q of it, %v:\n%s", old, new, changes, got, err, diff)
	}
	if lines([]byte(new))-lines([]byte(old)) != stat.Added-stat.Removed {
		t.Fatalf("%q became %q: %+v", old, new, stat)
	}
	return diff
}

// A diff applied to the old text gives the new one, whatever has changed.
func TestDiffApplies(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for i := range 5000 {
		old, new, changes := randomChange(rnd)
		diff := check(t, old, new, changes)
		check(t, old, new, Between([]byte(old), []byte(new)))
		if i%100 == 0 {
			check(t, "", new, Between(nil, []byte(new)))
			check(t, old, "", Between([]byte(old), nil))
			others(t, old, new, diff)
		}
	}
}

// Regions that are too large to be compared line by line are right too.
func TestLargeDiffApplies(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		var old, new strings.Builder
		var changes []Change
		for i := range 30 {
			common := fmt.Sprintf("%d\n", i) + randomText(rnd, 20)
			was, is := strings.Repeat("x", rnd.IntN(30)), strings.Repeat("y\n", rnd.IntN(500))
			old.WriteString(common)
			new.WriteString(common)
			changes = append(changes, Change{old.Len(), old.Len() + len(was), new.Len(), new.Len() + len(is)})
			old.WriteString(was)
			new.WriteString(is)
		}
		check(t, old.String(), new.String(), changes)
	}
}

// others applies a diff by the programs that people use.
func others(t *testing.T, old, new, diff string) {
	t.Helper()
	if old == new || old == "" || new == "" {
		return // both programs take these for files that are made or removed
	}
	for _, program := range [][]string{
		{"patch", "-s", "-p0", "--fuzz=0", "--binary"}, {"git", "apply", "-p0", "--whitespace=nowarn"},
	} {
		if _, err := exec.LookPath(program[0]); err != nil {
			t.Logf("not compared with %s: %v", program[0], err)
			continue
		}
		dir := t.TempDir()
		file := filepath.Join(dir, "f")
		if err := os.WriteFile(file, []byte(old), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program[0], program[1:]...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(diff)
		said, err := cmd.CombinedOutput()
		got, _ := os.ReadFile(file)
		if err != nil || string(got) != new {
			t.Fatalf("%s: %v %s: %q became %q and not %q:\n%s", program[0], err, said, old, got, new, diff)
		}
	}
}

// FuzzDiff replaces every from of a text by to. The diff applied to the one gives the
// other, and a diff that is cut stays within its limit.
func FuzzDiff(f *testing.F) {
	f.Fuzz(func(t *testing.T, old, from, to string) {
		if !utf8.ValidString(old) || !utf8.ValidString(from) || !utf8.ValidString(to) {
			t.Skip("a diff is valid text, whatever the texts are")
		}
		new, changes := replaceAll(old, from, to)
		check(t, old, new, changes)
		check(t, old, to, Between([]byte(old), []byte(to)))
		for _, limit := range []int{0, 100, 1000} {
			if diff, _ := Unified("f", []byte(old), []byte(new), changes, limit); len(diff) > limit+1000 {
				t.Fatalf("%d bytes with a limit of %d", len(diff), limit)
			}
		}
	})
}

// replaceAll is strings.ReplaceAll, with the places.
func replaceAll(old, from, to string) (string, []Change) {
	var changes []Change
	var b bytes.Buffer
	for at := 0; from != ""; {
		i := strings.Index(old[at:], from)
		if i < 0 {
			break
		}
		b.WriteString(old[at : at+i])
		changes = append(changes, Change{at + i, at + i + len(from), b.Len(), b.Len() + len(to)})
		b.WriteString(to)
		at += i + len(from)
	}
	if len(changes) == 0 {
		return old, nil
	}
	last := changes[len(changes)-1].OldEnd
	b.WriteString(old[last:])
	return b.String(), changes
}
