package worktree_test

import (
	"os"
	"testing"

	"github.com/toold/toold/internal/worktree"
)

// TestSourceByLink: where a root is a symbolic link, a source is what it leads to. Where it was none, a
// link that leads there is not the directory.
func TestSourceByLink(t *testing.T) {
	root, outside := tree(t)
	pin := func(path string) worktree.Source {
		d, err := worktree.Pin(path, worktree.Rules{Roots: []string{path}})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		return d.Source
	}
	is := func(when string, s worktree.Source, want string) {
		t.Helper()
		if got, err := s.Astray(t.Context()); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", when, got, err, want)
		}
	}
	relink := func(to, path string) {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
	}
	s := pin(root + "/escape")
	is("a link", s, "")
	relink("../outside", root+"/escape")
	is("another link that leads there", s, "")
	relink("project", root+"/escape")
	is("it leads elsewhere", s, "another directory is there")
	relink("file", root+"/escape")
	is("it leads to a file", s, "a file or a link is there")
	relink("nowhere", root+"/escape")
	is("it leads nowhere", s, "nothing is there")
	if err := os.Remove(root + "/escape"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(outside, root+"/escape"); err != nil {
		t.Fatal(err)
	}
	is("the directory itself", s, "")

	s = pin(root + "/other")
	if err := os.Rename(root+"/other", root+"/moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("moved", root+"/other"); err != nil {
		t.Fatal(err)
	}
	is("a link in its place", s, "a file or a link is there")
}
