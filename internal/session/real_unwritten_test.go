package session

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/session/trees"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/worktree/layers"
)

// TestRealUnwritten: a daemon that begins with a worktree to be laid anew, and a disk that takes no
// record of it, does not begin, and loses no session. The next one has it, with what was written.
func TestRealUnwritten(t *testing.T) {
	h := newRealHouse(t)
	m, stop, err := h.open(quiet())
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Create(t.Context(), owner, client.SessionCreate{Worktree: client.Worktree{Source: source(t), Mode: client.WorktreeOverlay}, IdleTimeout: -1})
	if err != nil {
		t.Fatal(err)
	}
	if c := realCall(t, m, s.ID, "bash", object{"command": "echo one >one; cat one"}); c.Output != "one\n" {
		t.Fatalf("%q, %v", c.Output, c.Error)
	}
	tree, err := m.cfg.Trees.Get(s.ID)
	if err == nil {
		tree.Unlaid = true // as if it was killed between
		err = m.cfg.Trees.Put(tree)
	}
	if err = errors.Join(err, stop()); err != nil {
		t.Fatal(err)
	}

	records := filepath.Join(h.Dir, "worktrees", "trees")
	testrig.Must(t, unix.Mount(records, records, "", unix.MS_BIND, ""))
	free := func() error { return unix.Unmount(records, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) }
	t.Cleanup(func() { _ = free() })
	testrig.Must(t, unix.Mount("", records, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	if _, _, err := h.open(quiet()); !trees.Unwritten(err) || !errors.Is(err, layers.ErrUnwritten) || !strings.Contains(err.Error(), s.ID) {
		t.Errorf("began, or not for that reason: %v", err)
	}
	testrig.Must(t, free())
	if m, stop, err = h.open(quiet()); err != nil {
		t.Fatal(err)
	}
	if v, err := m.Get(t.Context(), owner, s.ID); err != nil || v.State != client.SessionReady {
		t.Errorf("%+v, %v", v, err)
	}
	if c := realCall(t, m, s.ID, "bash", object{"command": "cat one; echo two >two; cat two"}); c.Output != "one\ntwo\n" {
		t.Errorf("%q, %v", c.Output, c.Error)
	}
	if err := errors.Join(m.EndAll(context.Background()), stop()); err != nil {
		t.Error(err)
	}
}
