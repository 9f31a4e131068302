package textdiff

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/toold/toold/internal/testrig/difftest"
)

// Hunks of random texts, some with bytes that are no UTF-8, make the new text of the old
// one, and count as many lines as they have.
func TestHunks(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 1))
	for range 5000 {
		old, new, _ := randomChange(rnd)
		if rnd.IntN(3) == 0 {
			new += "\xff\x00\xfe"
		}
		checkHunks(t, old, new)
	}
	old := strings.Repeat("same line\n", 1000)
	checkHunks(t, old, "")
	checkHunks(t, "", old)
}

// Differences far apart do not make one piece of all between them, however many there are.
func TestHunksOfManyChanges(t *testing.T) {
	var old, new strings.Builder
	for i := range 20000 {
		line := "line " + strconv.Itoa(i) + "\n"
		old.WriteString(line)
		if i%40 == 0 {
			line = "changed\n"
		}
		new.WriteString(line)
	}
	if stat := checkHunks(t, old.String(), new.String()); stat != (Stat{500, 500}) {
		t.Errorf("500 lines of 20000 changed, and the diff has %+v", stat)
	}
}

func checkHunks(t *testing.T, old, new string) Stat {
	t.Helper()
	var out bytes.Buffer
	stat := Hunks(&out, []byte(old), []byte(new))
	if (out.Len() == 0) != (old == new) {
		t.Fatalf("%q and %q: %q", old, new, out.String())
	}
	if old == new {
		return stat
	}
	got, err := difftest.Apply(old, "--- f\n+++ f\n"+out.String())
	if err != nil || got != new {
		t.Fatalf("%q to %q: %v\n%s", old, new, err, out.String())
	}
	var count Stat
	for line := range strings.Lines(out.String()) {
		switch line[0] {
		case '+':
			count.Added++
		case '-':
			count.Removed++
		}
	}
	if count != stat || Hunks(nil, []byte(old), []byte(new)) != stat {
		t.Fatalf("counted %+v; there are %+v", stat, count)
	}
	return stat
}

// git takes the hunks too.
func TestHunksInGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("there is no git to compare with")
	}
	rnd, dir := rand.New(rand.NewPCG(7, 2)), t.TempDir()
	for range 100 {
		old, new, _ := randomChange(rnd)
		if old == "" || new == "" || old == new {
			continue
		}
		file := filepath.Join(dir, "f")
		if err := os.WriteFile(file, []byte(old), 0o600); err != nil {
			t.Fatal(err)
		}
		out := bytes.NewBufferString("--- a/f\n+++ b/f\n")
		Hunks(out, []byte(old), []byte(new))
		cmd := exec.Command(git, "apply", "--whitespace=nowarn", "-")
		cmd.Dir, cmd.Stdin = dir, out
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q to %q: %v %s", old, new, err, text)
		}
		if got, _ := os.ReadFile(file); string(got) != new {
			t.Fatalf("%q became %q; want %q", old, got, new)
		}
	}
}
