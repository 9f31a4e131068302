package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/toold/toold/internal/sandbox"
)

// places are those of the parent that exist.
func (t *Tree) places() (list []string) {
	for _, mount := range append([]string{t.v2}, t.v1all...) {
		if _, err := os.Stat(filepath.Join(mount, t.parent)); err == nil {
			list = append(list, mount)
		}
	}
	return list
}

// makeV1 makes the parent on all v1 hierarchies, as sessions do.
func (t *Tree) makeV1() error {
	for _, mount := range t.v1all {
		if err := makeV1(mount, t.parent, false); err != nil {
			return err
		}
	}
	return nil
}

// TestParent: the cgroup above those of the sessions goes with the last daemon that uses
// it, and stays while a session is there.
func TestParent(t *testing.T) {
	tree := newTree(t)
	file := filepath.Join(t.TempDir(), "cgroups")
	use := func() *Parent {
		t.Helper()
		p, err := OpenParent(file, tree.parent)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	end := func(p *Parent, there bool) {
		t.Helper()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if got := tree.places(); (len(got) > 0) != there {
			t.Errorf("it is at %q; want that: %v", got, there)
		}
	}
	first, second := use(), use()
	if err := tree.makeV1(); err != nil {
		t.Fatal(err)
	}
	if err := tree.Claim(&sandbox.Record{ID: sandbox.ID{SessionID: "ses_here"}}); err != nil {
		t.Fatal(err)
	}
	end(first, true)
	end(second, true) // the session stays
	if err := tree.Remove("ses_here"); err != nil {
		t.Fatal(err)
	}
	killed, last, other := use(), use(), use()
	if err := killed.file.Close(); err != nil {
		t.Fatal(err)
	}
	end(last, true)
	end(other, false)
	end(use(), false) // nothing to remove is no error

	for _, name := range []string{".service", ".slice", ".scope"} {
		path := tree.parent + name
		dir := filepath.Join(tree.v2, path)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		p, err := OpenParent(file, path)
		if err == nil {
			err = p.Close()
		}
		if err != nil {
			t.Error(err)
		}
		if err := os.Remove(dir); err != nil {
			t.Errorf("systemd's: %v", err)
		}
	}
}

// TestParentOfMany: daemons that come and go do not take the parent from one that is
// about to make a session.
func TestParentOfMany(t *testing.T) {
	tree := newTree(t)
	file := filepath.Join(t.TempDir(), "cgroups")
	daemon := func(id string) error {
		p, err := OpenParent(file, tree.parent)
		if err != nil {
			return err
		}
		own, err := Open(tree.parent)
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		if err := own.makeV1(); err != nil {
			return fmt.Errorf("make v1: %w", err)
		}
		if err := own.Claim(&sandbox.Record{ID: sandbox.ID{SessionID: id}}); err != nil {
			return fmt.Errorf("make a session: %w", err)
		}
		for _, mount := range own.v1all {
			if err := os.Mkdir(filepath.Join(mount, own.Path(id)), 0o755); err != nil {
				return fmt.Errorf("make a session: %w", err)
			}
		}
		if err := own.RemoveLimits(id); err != nil {
			return err
		}
		if err := own.Remove(id); err != nil {
			return err
		}
		return p.Close()
	}
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			for range 100 {
				if err := daemon(fmt.Sprintf("ses_%d", i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := tree.places(); len(got) > 0 {
		t.Errorf("it is still at %q", got)
	}
}

// TestParentOfTwo: of two daemons that end at once one removes it.
func TestParentOfTwo(t *testing.T) {
	tree := newTree(t)
	file := filepath.Join(t.TempDir(), "cgroups")
	for round := range 200 {
		both := make([]*Parent, 2)
		for i := range both {
			var err error
			if both[i], err = OpenParent(file, tree.parent); err != nil {
				t.Fatal(err)
			}
		}
		if err := tree.prepareParent(); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for _, p := range both {
			wg.Go(func() {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := tree.places(); len(got) > 0 {
			t.Fatalf("round %d: it is still at %q", round, got)
		}
	}
}

// TestParentNeedsItsFile: a link in the place of the file of locks is not followed.
func TestParentNeedsItsFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("elsewhere", filepath.Join(dir, "cgroups")); err != nil {
		t.Fatal(err)
	}
	if p, err := OpenParent(filepath.Join(dir, "cgroups"), "/x"); err == nil {
		t.Error("a link was followed", p.Close())
	}
	if _, err := os.Lstat(filepath.Join(dir, "elsewhere")); err == nil {
		t.Error("a file was made behind the link")
	}
}
