package session

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/toold/toold/client"
)

// treeOf is what a directory has, as git knows it: of each path its content, after an x if
// its owner may execute it.
func treeOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		if d.Type() == fs.ModeSymlink {
			to, err := os.Readlink(p)
			all[rel] = "-> " + to
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content, err := os.ReadFile(p)
		all[rel] = fmt.Sprintf("%v %s", info.Mode()&0o100 != 0, content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// twoHands is a session and a person who change one tree.
type twoHands struct {
	*applyRig
	rand    *rand.Rand
	session string
	begin   string // a copy of the source as the session began with it
}

// command changes something at random, in sh.
func (h *twoHands) command(who string) string {
	file := func() string { return fmt.Sprintf("d%d/f%d", h.rand.IntN(3), h.rand.IntN(4)) }
	f, line := file(), 1+h.rand.IntN(12)
	switch h.rand.IntN(9) {
	case 0, 1:
		return fmt.Sprintf("[ -h %[1]s ] || [ ! -f %[1]s ] || sed -i '%[2]ds/$/ %[3]s/' %[1]s", f, line, who)
	case 2, 3:
		return fmt.Sprintf("[ -h %[1]s ] || [ ! -f %[1]s ] || echo %[2]s%[3]d >>%[1]s", f, who, line)
	case 4:
		return fmt.Sprintf("if [ -f %[1]s ] || [ -h %[1]s ]; then unlink %[1]s; fi", f)
	case 5:
		return fmt.Sprintf("if [ -x %[1]s ]; then chmod 644 %[1]s; elif [ -f %[1]s ]; then chmod 755 %[1]s; fi", f)
	case 6:
		return fmt.Sprintf("if [ -f %[1]s ] && [ ! -e %[2]s ]; then mv %[1]s %[2]s; fi", f, file())
	case 7:
		return fmt.Sprintf("echo %[2]s >d%[1]d/new%[3]d", h.rand.IntN(3), who, h.rand.IntN(4))
	}
	return fmt.Sprintf("if [ -f %[1]s ] || [ -h %[1]s ]; then unlink %[1]s; fi; ln -s %[2]s d0/link%[3]d || true", f, who, line)
}

// theirs does it in the source.
func (h *twoHands) theirs() {
	what := h.command("theirs")
	for strings.Contains(what, "unlink") || strings.Contains(what, "mv ") {
		what = h.command("theirs") // what is gone before the session replaces it leaves no trace: see the decision record
	}
	c := exec.Command("sh", "-euc", what)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: alice.UID, Gid: alice.GID}}
	c.Dir = h.src
	if out, err := c.CombinedOutput(); err != nil {
		h.t.Fatalf("%q: %v: %s", c.Args, err, out)
	}
}

// patch gives a patch and what it says of itself.
func (a *applyRig) patch(session string, q client.DiffQuery) (text []byte, stale int) {
	a.t.Helper()
	r, err := a.m.trees.Diff(a.t.Context(), owner, session, q)
	a.must(err)
	text, err = io.ReadAll(r)
	a.must(err)
	stale = r.(interface{ Stale() int }).Stale()
	a.must(r.Close())
	return text, stale
}

// TestRealBothSides: whatever a session and a person do to one tree, the patch makes of what
// the session began with what the session has, and touches nothing that is the person's. What
// it cannot say it names, and leaves out.
func TestRealBothSides(t *testing.T) {
	a := newApplyRig(t)
	set := *a.m.settings.Load()
	set.Policy = rules(t, "[permission]\nbash = \"allow\"\nexternal_directory = \"allow\"\ndoom_loop = \"allow\"\n") // nobody answers here
	a.m.Reload(set)
	for seed := range uint64(3) {
		h := &twoHands{applyRig: a, rand: rand.New(rand.NewPCG(seed, 7))}
		h.round(fmt.Sprint("seed", seed))
	}
}

func (h *twoHands) round(name string) {
	t := h.t
	h.src = t.TempDir()
	h.must(os.Chmod(filepath.Dir(h.src), 0o755))
	for i := range 12 {
		p := fmt.Sprintf("%s/d%d/f%d", h.src, i%3, i/3)
		h.must(errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(strings.Repeat("1\n2\n3\n", 4)), 0o644)))
	}
	h.begin = t.TempDir()
	for _, c := range [][]string{{"chown", "-R", fmt.Sprintf("%d:%d", alice.UID, alice.GID), h.src}, {"cp", "-a", h.src + "/.", h.begin}} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", c, err, out)
		}
	}
	h.session = h.applyRig.session(name)
	for range 8 {
		command := h.command("mine")
		h.bash(h.session, command)
		h.changed(h.session) // looks, so that all bases are kept that can be
		h.theirs()
	}
	h.check(name)
	_ = h.end(h.session)
}

func (h *twoHands) check(name string) {
	t := h.t
	c, err := h.m.trees.Changes(t.Context(), owner, h.session, client.DiffQuery{Limit: 1000})
	h.must(err)
	stale := make(map[string]bool)
	for i := range c.Items {
		stale[c.Items[i].Path] = c.Items[i].Stale
	}
	text, left := h.patch(h.session, client.DiffQuery{})
	began, now := treeOf(t, h.begin), treeOf(t, h.src)
	apply := exec.Command("git", "apply", "--whitespace=nowarn")
	apply.Dir, apply.Stdin = h.begin, bytes.NewReader(text)
	if out, err := apply.CombinedOutput(); err != nil && len(text) > 0 {
		t.Errorf("%s: git apply: %v: %s\n%s\n%+v", name, err, out, text, c.Items)
		return
	}
	copied := t.TempDir()
	unpack := exec.Command("base64", "-d")
	unpack.Stdin = strings.NewReader(h.bash(h.session, "tar c . | base64"))
	tarball, err := unpack.Output()
	h.must(err)
	untar := exec.Command("tar", "x", "-C", copied)
	untar.Stdin = bytes.NewReader(tarball)
	h.must(untar.Run())
	mine, got := treeOf(t, copied), treeOf(t, h.begin)
	paths := slices.Compact(slices.Sorted(func(yield func(string) bool) {
		for _, m := range []map[string]string{began, now, mine, got} {
			for p := range maps.Keys(m) {
				if !yield(p) {
					return
				}
			}
		}
	}))
	for _, p := range paths {
		switch want := mine[p]; {
		case got[p] == want:
		case (mine[p] == now[p] || stale[p]) && got[p] == began[p]:
		default:
			t.Errorf("%s: %s is %q with the patch; it was %q, is %q in the session and %q in the source; stale %v (%d)\n%s", name, p, got[p], began[p], want, now[p], stale[p], left, text)
		}
		if stale[p] && now[p] == began[p] && now[p] != "" {
			t.Errorf("%s: %s is stale and nobody touched it", name, p)
		}
	}
}

// TestRealForkKnowsTheBeginning: a fork goes from what its session began with.
func TestRealForkKnowsTheBeginning(t *testing.T) {
	a := newApplyRig(t)
	a.write("f", "1\n2\n3\n4\n5\n6\n")
	id := a.session("s")
	a.bash("s", "sed -i s/6/six/ f")
	a.changed(id) // looks
	fork, err := a.m.trees.Fork(t.Context(), owner, id, client.ForkRequest{Name: "fork"})
	a.must(err)
	a.write("f", "1\nmine\n3\n4\n5\n6\n")
	text, stale := a.patch(fork.ID, client.DiffQuery{})
	if stale != 0 || strings.Contains(string(text), "mine") || !strings.Contains(string(text), "+six") {
		t.Errorf("%d are stale in\n%s", stale, text)
	}
	if v := a.apply(fork.ID, client.ApplyRequest{Merge: true}); !slices.Equal(v.Merged, []string{"f"}) {
		t.Errorf("got %+v", v)
	}
	a.holds("f", "1\nmine\n3\n4\n5\nsix\n")
}

// TestRealNoBase: what nobody knows the beginning of is named, counted and left out, whatever
// page it is on; a checkpoint that has the file itself has nothing to do with the source.
func TestRealNoBase(t *testing.T) {
	a := newApplyRig(t)
	for _, n := range []string{"a", "b", "c"} {
		a.write(n, "1\n2\n3\n")
	}
	id := a.session("s")
	a.bash("s", "echo mine >>a; echo mine >>b; echo mine >>c")
	a.changed(id)
	cp, err := a.m.trees.Checkpoint(t.Context(), owner, id, client.CheckpointCreate{})
	a.must(err)
	a.bash("s", "echo more >>a")
	a.changed(id)
	for _, n := range []string{"a", "c"} {
		a.write(n, "theirs\n")
	}
	a.must(os.RemoveAll(a.m.cfg.Trees.ApplyDir(id)))
	text, stale := a.patch(id, client.DiffQuery{})
	if stale != 2 || strings.Contains(string(text), "theirs") || !strings.Contains(string(text), "b/b") {
		t.Errorf("%d are stale in\n%s", stale, text)
	}
	page, err := a.m.trees.Changes(t.Context(), owner, id, client.DiffQuery{Limit: 1})
	a.must(err)
	if len(page.Items) != 1 || page.Stale != 2 || page.Files != 3 {
		t.Errorf("a page of one: %+v", page)
	}
	if text, stale := a.patch(id, client.DiffQuery{Against: cp.ID}); stale != 0 || !strings.Contains(string(text), "+more") {
		t.Errorf("against the checkpoint %d are stale in\n%s", stale, text)
	}
}
