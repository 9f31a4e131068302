package difftest

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/internal/testrig"
)

// gnu is the diff of GNU diff.
func gnu(t *testing.T, old, now string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"old": old, "now": now} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("diff", "-a", "-u", "-U1", "old", "now")
	cmd.Dir = dir
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatal(err)
	}
	return string(out)
}

// TestOracle: what GNU diff says is taken, and with one byte of it changed it is refused or
// makes another text.
func TestOracle(t *testing.T) {
	if _, err := exec.LookPath("diff"); err != nil {
		t.Skip(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	lines := func() string {
		var b strings.Builder
		for range r.IntN(12) {
			b.WriteString([]string{"a\n", "b\n", "c d\n", "\n"}[r.IntN(4)])
		}
		if r.IntN(3) == 0 {
			b.WriteString("end")
		}
		return b.String()
	}
	for range testrig.Rounds(100) {
		old, now := lines(), lines()
		diff := gnu(t, old, now)
		if diff == "" {
			continue
		}
		if got, err := Apply(old, diff); err != nil || got != now {
			t.Fatalf("%q: %v\n%s", got, err, diff)
		}
		head := strings.Index(diff, "@@")
		for range 20 {
			at := head + r.IntN(len(diff)-head)
			bad := diff[:at] + string("1x -+@\n"[r.IntN(7)]) + diff[at+1:]
			if got, err := Apply(old, bad); bad != diff && err == nil && got == now {
				t.Errorf("taken for %q to %q:\n%s", old, now, bad)
			}
		}
	}
}

// TestFalse: each of these says something that is not so, though what it makes of "a\nb\nc\n" is
// clear.
func TestFalse(t *testing.T) {
	const head = "--- old\n+++ now\n"
	if got, err := Apply("a\nb\nc\n", head); err != nil || got != "a\nb\nc\n" {
		t.Errorf("no hunk: %q, %v", got, err)
	}
	if got, err := Apply("a\nb\nc\n", head+"@@ -1 +1,2 @@\n a\n+x\n@@ -3 +4 @@\n-c\n+d\n"); err != nil || got != "a\nx\nb\nd\n" {
		t.Errorf("two hunks: %q, %v", got, err)
	}
	for what, hunks := range map[string]string{
		"new position":       "@@ -1 +1,2 @@\n a\n+x\n@@ -3 +3 @@\n-c\n+d\n",
		"count":              "@@ -1 +1,3 @@\n a\n+x\n",
		"order":              "@@ -3 +3 @@\n-c\n+d\n@@ -1 +1,2 @@\n a\n+x\n",
		"another old line":   "@@ -1 +1 @@\n-b\n+d\n",
		"no end of a line":   "@@ -1 +1,2 @@\n a\n+x\n\\ No newline at end of file\n",
		"no newline at last": "@@ -3 +3 @@\n-c\n+d",
		"junk at the end":    "@@ -3 +3 @@\n-c\n+d\njunk\n",
		"junk in between":    "@@ -1 +1,2 @@\n a\n+x\njunk\n@@ -3 +4 @@\n-c\n+d\n",
		"a second file":      "@@ -3 +3 @@\n-c\n+d\n--- x\n+++ x\n@@ -1 +1 @@\n-b\n+d\n",
		"no change":          "@@ -3 +3 @@\n c\n",
	} {
		if got, err := Apply("a\nb\nc\n", head+hunks); err == nil {
			t.Errorf("%s: taken, for %q", what, got)
		}
	}
}
