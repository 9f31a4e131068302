package textdiff

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestUnified(t *testing.T) {
	tests := []struct{ name, old, new, want string }{
		{"same", "a\n", "a\n", ""},
		{"line", "a\nb\nc\n", "a\nB\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"},
		{"part of a line", "a\nbxd\nc\n", "a\nbyd\nc\n", "@@ -1,3 +1,3 @@\n a\n-bxd\n+byd\n c\n"},
		{"created", "", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n"},
		{"emptied", "a\n", "", "@@ -1 +0,0 @@\n-a\n"},
		{"inserted", "a\nb\n", "a\nx\nb\n", "@@ -1,2 +1,3 @@\n a\n+x\n b\n"},
		{"removed", "a\nx\nb\n", "a\nb\n", "@@ -1,3 +1,2 @@\n a\n-x\n b\n"},
		{"no newline", "a\nb", "a\nc", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n"},
		{"newline added", "a", "a\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"},
	}
	for _, tt := range tests {
		got, _ := Unified("f", []byte(tt.old), []byte(tt.new), Between([]byte(tt.old), []byte(tt.new)), 1<<20)
		want := tt.want
		if want != "" {
			want = "--- f\n+++ f\n" + want
		}
		if got != want {
			t.Errorf("%s:\n%s\nwant:\n%s", tt.name, got, want)
		}
	}
}

func TestStatAndLimit(t *testing.T) {
	old := []byte(strings.Repeat("old line\n", 100000))
	new := []byte(strings.Repeat("new line\n", 90000))
	diff, stat := Unified("f", old, new, Between(old, new), 5000)
	if stat != (Stat{90000, 100000}) {
		t.Errorf("stat = %+v", stat)
	}
	if len(diff) > 5200 || !strings.Contains(diff, "diff cut here: in all 90000 lines added, 100000 removed") {
		t.Errorf("%d bytes, ends with %q", len(diff), diff[max(0, len(diff)-100):])
	}
	wide := []byte(strings.Repeat("é", 100000))
	diff, _ = Unified("f", wide, nil, Between(wide, nil), 5000)
	if len(diff) > 5200 || !utf8.ValidString(diff) || !strings.Contains(diff, "cut") {
		t.Errorf("one long line: %d bytes, %q", len(diff), diff[max(0, len(diff)-100):])
	}
}

// Random changes give diffs that patch turns into the new text.
func TestPatchAgrees(t *testing.T) {
	patch, err := exec.LookPath("patch")
	if err != nil {
		t.Skip("there is no patch program to compare with")
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 100 {
		var old, new strings.Builder
		var changes []Change
		for n := range 60 {
			line := fmt.Sprintf("line %d\n", n)
			if rnd.IntN(12) == 0 {
				from, to := old.Len(), new.Len()
				old.WriteString(strings.Repeat("was\n", rnd.IntN(3)))
				new.WriteString(strings.Repeat("is\n", rnd.IntN(3)))
				changes = append(changes, Change{from, old.Len(), to, new.Len()})
			}
			old.WriteString(line)
			new.WriteString(line)
		}
		diff, _ := Unified("f", []byte(old.String()), []byte(new.String()), changes, 1<<20)
		if old.String() == new.String() {
			continue
		}
		dir := t.TempDir()
		if err := os.WriteFile(dir+"/f", []byte(old.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(patch, "-s", "-p0", "--fuzz=0", dir+"/f")
		cmd.Stdin = strings.NewReader(diff)
		out, err := cmd.CombinedOutput()
		got, _ := os.ReadFile(dir + "/f")
		if err != nil || string(got) != new.String() {
			t.Fatalf("run %d: patch: %v %s\n%s", i, err, out, diff)
		}
	}
}

// Lines of a region that is too large to be compared are counted, not listed.
func TestManyShortLines(t *testing.T) {
	old := bytes.Repeat([]byte{'\n'}, 8<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	diff, stat := Unified("f", old, []byte("x"), Between(old, []byte("x")), 10<<10)
	runtime.ReadMemStats(&after)
	if stat.Removed != 8<<20 || stat.Added != 1 || len(diff) > 11<<10 || !strings.Contains(diff, "diff cut here") {
		t.Errorf("%+v, %d bytes", stat, len(diff))
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("took %d bytes of memory", got)
	}
}
