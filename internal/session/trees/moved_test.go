package trees

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/worktree"
	"github.com/toold/toold/internal/worktree/layers"
)

// move does what an overlay does where a session moves d of the source to e.
func (o *one) move(t *testing.T) *layers.Tree {
	t.Helper()
	tree := o.change(t)
	e := filepath.Join(o.store.Dir(), "layers", tree.Upper, "root", "e")
	testrig.Must(t, os.Mkdir(e, 0o755))
	if err := unix.Lsetxattr(e, "trusted.overlay.redirect", []byte("d"), 0); errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("needs root and extended attributes: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return tree
}

// TestSourceHangs: where the source of a session does not answer, what works with its tree is over
// in time, and no directory of it that the session has moved counts as whole.
func TestSourceHangs(t *testing.T) {
	needs.OpenAt2(t)
	s, o := newOne(t)
	tree := o.move(t)
	dir, abort := testrig.Hanging(t)
	tree.Source = worktree.Source{Path: dir + "/source", Device: 1, Inode: 1}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if f, err := tree.Source.Open(over); !errors.Is(err, beneath.ErrStuck) {
		t.Fatalf("open: %v, %v", f, err)
	}
	look := func(what string) {
		t.Helper()
		m, err := s.moved(t.Context(), tree)
		if err != nil || len(m.lost) != 1 || len(m.unknown) != 1 || m.mergeable() == nil {
			t.Errorf("%s: %+v, %v", what, m, err)
			return
		}
		var f *fault.Error
		if err := complete(m, client.ApplyRequest{}); !errors.As(err, &f) || f.Kind != fault.Overloaded || f.Hint == "" {
			t.Errorf("%s: apply: %v", what, err)
		}
		if err := complete(m, client.ApplyRequest{Paths: []string{"other"}}); err != nil {
			t.Errorf("%s: apply of something else: %v", what, err)
		}
		if err := s.keepMoved(t.Context(), tree); err == nil {
			t.Errorf("%s: it was kept", what)
		}
	}
	look("while it hangs")
	abort()
	testrig.Eventually(t, "the open that was left behind ends", func() bool {
		f, err := tree.Source.Open(t.Context())
		return f == nil && !errors.Is(err, beneath.ErrStuck)
	})
	look("after its program has died")
	look("and once more")
}

// TestLookFails: whatever keeps the daemon from looking into a moved directory of the source, it does
// not take what it has not seen for unchanged.
func TestLookFails(t *testing.T) {
	needs.OpenAt2(t)
	top := t.TempDir()
	testrig.Must(t, os.MkdirAll(filepath.Join(top, "d/1/2/3"), 0o755))
	since := layers.Now()
	layers.After(since)
	testrig.Must(t, os.WriteFile(filepath.Join(top, "d/1/2/3/new"), nil, 0o644))
	root, err := os.Open(top)
	testrig.Must(t, err)
	defer root.Close()
	var was unix.Rlimit
	testrig.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	said := map[string]int{}
	for limit := range uint64(64) {
		l := sourceLook{ctx: t.Context(), root: int(root.Fd()), since: since, left: maxBelow}
		few := was
		few.Cur = limit
		testrig.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
		p := l.at(&layers.Moved{Path: "e", From: "d"})
		testrig.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
		if p.why == "" || p.gone || p.unknown != strings.Contains(p.why, unix.EMFILE.Error()) {
			t.Errorf("with %d descriptors: %+v", limit, p)
		}
		said[p.why]++
	}
	if len(said) < 2 {
		t.Errorf("it was never short of descriptors, or always: %v", said)
	}
}
