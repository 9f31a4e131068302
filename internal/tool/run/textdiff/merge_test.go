package textdiff

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/internal/testrig"
)

func TestMerge(t *testing.T) {
	for _, tt := range []struct{ name, base, ours, theirs, want string }{
		{"one side", "a\nb\nc\n", "a\nb\nc\n", "a\nx\nc\n", "a\nx\nc\n"},
		{"the other", "a\nb\nc\n", "a\nx\nc\n", "a\nb\nc\n", "a\nx\nc\n"},
		{"apart", "a\nb\nc\n", "x\nb\nc\n", "a\nb\ny\n", "x\nb\ny\n"},
		{"same", "a\nb\n", "a\nx\n", "a\nx\n", "a\nx\n"},
		{"same, and more", "a\nb\nc\n", "x\nb\nc\n", "x\nb\ny\n", "x\nb\ny\n"},
		{"different", "a\nb\nc\n", "a\nx\nc\n", "a\ny\nc\n", "!"},
		{"touching", "a\nb\n", "x\nb\n", "a\ny\n", "!"},
		{"touching insertion", "a\nb\n", "a\nnew\nb\n", "a\ny\n", "!"},
		{"changed and removed", "a\nb\nc\n", "a\nc\n", "a\ny\nc\n", "!"},
		{"end of line at the end", "a\nb\nc", "x\nb\nc", "a\nb\nc\n", "x\nb\nc\n"},
		{"both at the end", "a", "a\nb", "a\nc", "!"},
		{"all is new", "", "a\n", "", "a\n"},
		{"both new", "", "a\n", "b\n", "!"},
		{"all went", "a\nb\n", "", "a\nb\n", ""},
		{"nothing", "", "", "", ""},
	} {
		got, ok := Merge([]byte(tt.base), []byte(tt.ours), []byte(tt.theirs))
		if !ok {
			got = "!"
		}
		if got != tt.want {
			t.Errorf("%s: got %q", tt.name, got)
		}
	}
}

// TestMergeIsGits compares with git, whose comparison of lines may differ where some are
// the same: then what comes out may too, and has to be as safe.
func TestMergeIsGits(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git:", err)
	}
	rounds := testrig.Rounds(300)
	dir := t.TempDir()
	clean, conflicts, others := 0, 0, 0
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 7))
		unique := seed%4 != 0
		base := someLines(r, r.IntN(30), unique)
		ours, theirs := changedLines(r, base, unique), changedLines(r, base, unique)
		want, fits := gitMerge(t, dir, join(r, base), join(r, ours), join(r, theirs))
		got, ok := Merge(read(t, dir, "base"), read(t, dir, "ours"), read(t, dir, "theirs"))
		switch {
		case ok && fits && got == want:
			clean++
		case !ok && !fits:
			conflicts++
		case unique:
			t.Fatalf("seed %d: got %q, %v, want %q, %v", seed, got, ok, want, fits)
		default:
			others++
		}
	}
	t.Logf("%d merged, %d conflicts; of %d with equal lines %d are others than git's", clean, conflicts, rounds/4, others)
	if clean < rounds/4 || conflicts < rounds/10 || others > rounds/10 {
		t.Error("that proves nothing")
	}
}

// someLines are random ones; unique ones meet themselves alone.
func someLines(r *rand.Rand, n int, unique bool) (lines []string) {
	for range n {
		if unique {
			lines = append(lines, fmt.Sprint("line ", r.Uint64()))
		} else {
			lines = append(lines, string(rune('a'+r.IntN(6))))
		}
	}
	return lines
}

// changedLines are lines with a few changes.
func changedLines(r *rand.Rand, base []string, unique bool) []string {
	lines := append([]string{}, base...)
	for range r.IntN(4) {
		at := r.IntN(len(lines) + 1)
		gone := min(r.IntN(3), len(lines)-at)
		lines = append(append(append([]string{}, lines[:at]...), someLines(r, r.IntN(3), unique)...), lines[at+gone:]...)
	}
	return lines
}

// join makes a text, of which every fifth does not end its last line.
func join(r *rand.Rand, lines []string) string {
	text := strings.Join(lines, "\n")
	if len(lines) > 0 && r.IntN(5) > 0 {
		text += "\n"
	}
	return text
}

// gitMerge is what git makes of three texts, and leaves them in files.
func gitMerge(t *testing.T, dir, base, ours, theirs string) (merged string, ok bool) {
	t.Helper()
	for name, text := range map[string]string{"base": base, "ours": ours, "theirs": theirs} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("git", "merge-file", "-p", "-q", "ours", "base", "theirs")
	cmd.Dir = dir
	out, err := cmd.Output()
	if code := cmd.ProcessState.ExitCode(); code < 0 || code > 127 { // it counts conflicts to 127
		t.Fatal(err)
	}
	return string(out), err == nil
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
