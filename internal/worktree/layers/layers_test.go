package layers

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/worktree"
)

// rig is a store with a tree whose source is a directory of the test's.
func rig(t *testing.T) (*Store, *Tree) {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "worktrees"))
	if err != nil {
		t.Fatal(err)
	}
	return s, begin(t, s, "ses_1", nil)
}

func begin(t *testing.T, s *Store, session string, lower []string) *Tree {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tree := &Tree{Session: session, Source: must[worktree.Source](t)(worktree.SourceOf(dir, f)), Since: Now(), Lower: lower}
	if err := s.Begin(tree); err != nil {
		t.Fatal(err)
	}
	return tree
}

// write does what an overlay would: it puts a file into the upper layer.
func write(t *testing.T, s *Store, tree *Tree, name string) {
	t.Helper()
	root := filepath.Join(s.layers(), tree.Upper, "root")
	if err := errors.Join(os.MkdirAll(root, 0o755), os.WriteFile(filepath.Join(root, name), []byte(name), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// A checkpoint freezes what was written since the one before it, and costs no layer where
// that is nothing.
func TestFreeze(t *testing.T) {
	s, tree := rig(t)
	first := tree.Upper
	tree = must[*Tree](t)(s.Freeze("ses_1", Checkpoint{Cause: "request"}))
	if tree.Upper != first || tree.Unlaid || len(tree.Lower) != 0 {
		t.Errorf("a checkpoint of nothing: %+v", tree)
	}
	write(t, s, tree, "a")
	tree = must[*Tree](t)(s.Freeze("ses_1", Checkpoint{Name: "one", Cause: "request"}))
	if tree.Upper == first || !tree.Unlaid || !slices.Equal(tree.Lower, []string{first}) {
		t.Errorf("after a change: %+v", tree)
	}
	if _, err := s.Freeze("ses_1", Checkpoint{Name: "one"}); !errors.Is(err, ErrTaken) {
		t.Errorf("the same name again: %v", err)
	}
	one := must[*Checkpoint](t)(tree.Checkpoint("one"))
	if byID := must[*Checkpoint](t)(tree.Checkpoint(one.ID)); byID != one || !slices.Equal(one.Layers, []string{first}) {
		t.Errorf("checkpoint %+v, by its id %+v", one, byID)
	}
	if _, err := tree.Checkpoint(""); !errors.Is(err, ErrNone) {
		t.Errorf("a checkpoint without a name was found by none: %v", err)
	}
	again := must[*Tree](t)(s.Get("ses_1"))
	if len(again.Checkpoints) != 2 || again.Upper != tree.Upper {
		t.Errorf("read again: %+v", again)
	}
}

// A layer goes with the last tree or checkpoint that names it.
func TestSweep(t *testing.T) {
	needs.OpenAt2(t)
	s, tree := rig(t)
	write(t, s, tree, "a")
	first := tree.Upper
	tree = must[*Tree](t)(s.Freeze("ses_1", Checkpoint{Name: "one"}))
	fork := begin(t, s, "ses_2", tree.Lower)
	write(t, s, tree, "b")
	left := tree.Upper
	tree = must[*Tree](t)(s.Reset("ses_1"))
	there := func(layer string) bool {
		_, err := os.Stat(filepath.Join(s.layers(), layer))
		return err == nil
	}
	sweep := func() {
		t.Helper()
		if err := s.Sweep(); err != nil {
			t.Fatal(err)
		}
	}
	sweep()
	if there(left) || !there(first) || !there(tree.Upper) || !there(fork.Upper) {
		t.Error("what was reset is there, or something else is not")
	}
	must[*Tree](t)(s.Drop("ses_1", "one"))
	if _, err := s.Drop("ses_1", "one"); !errors.Is(err, ErrNone) {
		t.Errorf("dropped twice: %v", err)
	}
	sweep()
	if !there(first) {
		t.Error("the fork's layer is gone")
	}
	if err := s.Remove("ses_2"); err != nil {
		t.Fatal(err)
	}
	// One that a killed daemon was about to remove.
	if err := os.Mkdir(filepath.Join(s.layers(), removing+"l_x"), 0o700); err != nil {
		t.Fatal(err)
	}
	sweep()
	if there(first) || there(fork.Upper) || there(removing+"l_x") || !there(tree.Upper) {
		t.Error("layers of nobody are there, or one that is used is not")
	}
}

// A tree that cannot be read keeps all layers.
func TestSweepUnreadable(t *testing.T) {
	s, tree := rig(t)
	if err := os.WriteFile(s.file("ses_9"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove("ses_1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(); err == nil {
		t.Error("nothing was said of it")
	}
	if _, err := os.Stat(filepath.Join(s.layers(), tree.Upper)); err != nil {
		t.Error(err)
	}
}

// What nobody changed leaves nothing, and what somebody did stays when the session ends.
func TestEnd(t *testing.T) {
	s, _ := rig(t)
	if err := s.End("ses_1", time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get("ses_1"); !errors.Is(err, ErrNone) {
		t.Errorf("it is there: %v", err)
	}
	tree := begin(t, s, "ses_2", nil)
	write(t, s, tree, "a")
	over := ended(t, s, "ses_2")
	if over.Ended.IsZero() || !slices.Equal(over.Layers(), []string{tree.Upper}) {
		t.Errorf("at the end: %+v", over)
	}
	over = must[*Tree](t)(s.Freeze("ses_2", Checkpoint{Name: "late"}))
	if over.Unlaid || over.Upper != tree.Upper || !slices.Equal(over.Checkpoints[0].Layers, over.Layers()) {
		t.Errorf("a checkpoint after the end: %+v", over)
	}
	over = must[*Tree](t)(s.Reset("ses_2"))
	if over.Unlaid || len(over.Layers()) != 0 {
		t.Errorf("reset after the end: %+v", over)
	}
}

func ended(t *testing.T, s *Store, session string) *Tree {
	t.Helper()
	if err := s.End(session, time.Now()); err != nil {
		t.Fatal(err)
	}
	return must[*Tree](t)(s.Get(session))
}

// TestEndWithCheckpoints: what was discarded can come back after the end, while a checkpoint
// has it; checkpoints of nothing keep nothing.
func TestEndWithCheckpoints(t *testing.T) {
	s, _ := rig(t)
	if _, err := s.Freeze("ses_1", Checkpoint{}); err != nil {
		t.Fatal(err)
	}
	if err := s.End("ses_1", time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get("ses_1"); !errors.Is(err, ErrNone) {
		t.Errorf("a tree of nothing stays: %v", err)
	}
	write(t, s, begin(t, s, "ses_2", nil), "a")
	layer := must[*Tree](t)(s.Freeze("ses_2", Checkpoint{Name: "one"})).Checkpoints[0].Layers
	must[*Tree](t)(s.Reset("ses_2"))
	ended(t, s, "ses_2")
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	back := must[*Tree](t)(s.Restore("ses_2", must[*Checkpoint](t)(must[*Tree](t)(s.Get("ses_2")).Checkpoint("one")).ID))
	if len(layer) != 1 || !slices.Equal(back.Layers(), layer) {
		t.Errorf("restored after the end: %v, want %v", back.Layers(), layer)
	}
	if _, err := os.Stat(filepath.Join(s.layers(), layer[0])); err != nil {
		t.Error(err)
	}
}

// TestHold: a layer that somebody looks at stays, though its tree has gone.
func TestHold(t *testing.T) {
	needs.OpenAt2(t)
	s, tree := rig(t)
	write(t, s, tree, "a")
	one, two := s.Hold([]string{tree.Upper}), s.Hold(nil, []string{tree.Upper})
	if err := s.Remove("ses_1"); err != nil {
		t.Fatal(err)
	}
	there := func() bool {
		t.Helper()
		if err := s.Sweep(); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(filepath.Join(s.layers(), tree.Upper))
		return err == nil
	}
	one()
	one() // once counts
	if !there() {
		t.Error("it went under its second holder")
	}
	if two(); there() {
		t.Error("it stayed")
	}
}

// A source is the directory that it was, by whatever name; another one in its place is not.
func TestSource(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "src")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	f := must[*os.File](t)(os.Open(path))
	defer f.Close()
	src := must[worktree.Source](t)(worktree.SourceOf(path, f))
	again := must[*os.File](t)(src.Open(t.Context()))
	_ = again.Close()
	if err := errors.Join(os.Rename(path, path+".moved"), os.Mkdir(path, 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := src.Open(t.Context()); err == nil {
		t.Error("another directory was taken for it")
	}
	if err := errors.Join(os.Remove(path), os.Symlink(path+".moved", path)); err != nil {
		t.Fatal(err)
	}
	if _, err := src.Open(t.Context()); err == nil {
		t.Error("a link to it was followed")
	}
}

// TestHostileNames: a session is no path.
func TestHostileNames(t *testing.T) {
	s, _ := rig(t)
	for _, name := range []string{"", "..", "../trees/ses_1", "/etc/passwd", "ses_1/../ses_1"} {
		if _, err := s.Get(name); !errors.Is(err, ErrNone) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
