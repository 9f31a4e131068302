package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox/loopdisk"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/worktree/layers"
)

// TestRealFullAtRecovery: a daemon that was killed in a checkpoint of a session whose disk has no room to
// finish it does not end the session. It can be read and compared, says why it is not written to, and
// when it is over its changes are there.
func TestRealFullAtRecovery(t *testing.T) {
	h := newRealHouse(t)
	m, stop, err := h.open(quiet())
	testrig.Must(t, err)
	if err := m.cfg.Trees.Bounded(); err != nil {
		testrig.Must(t, stop())
		testrig.Skipf(t, "loop", "no disks in files: %v", err)
	}
	s, err := m.Create(t.Context(), owner, client.SessionCreate{Worktree: client.Worktree{Source: source(t), Mode: client.WorktreeOverlay}, IdleTimeout: -1})
	testrig.Must(t, err)
	if c := realCall(t, m, s.ID, "bash", object{"command": "echo one >one; cat one"}); c.Output != "one\n" {
		t.Fatalf("%q, %v", c.Output, c.Error)
	}
	_, err = m.cfg.Trees.Freeze(s.ID, layers.Checkpoint{Cause: "api"}) // as if it was killed before this was laid
	testrig.Must(t, err)
	fillDisk(t, m, s.ID)
	testrig.Must(t, stop())

	if m, stop, err = h.open(quiet()); err != nil {
		t.Fatal(err)
	}
	v, err := m.Get(t.Context(), owner, s.ID)
	if err != nil || v.State != client.SessionReady || v.Reason != "disk" || !strings.Contains(strings.Join(v.Notes, "\n"), "fills its disk") {
		t.Fatalf("%+v, %v", v, err)
	}
	if c := realCall(t, m, s.ID, "read", object{"file_path": "one"}); c.IsError || c.Error != nil || !strings.Contains(c.Output, "one") {
		t.Errorf("read: %q, %v", c.Output, c.Error)
	}
	if c := realCall(t, m, s.ID, "bash", object{"command": "echo two >one"}); c.Error == nil || !strings.Contains(c.Error.Message, "fills its disk") || c.Error.Hint == "" {
		t.Errorf("wrote: %q, %v", c.Output, c.Error)
	}
	if c, err := m.trees.Changes(t.Context(), owner, s.ID, client.DiffQuery{}); err != nil || c.Files != 1 {
		t.Errorf("changes: %+v, %v", c, err)
	}
	if _, err := m.End(t.Context(), owner, s.ID, client.EndOptions{Force: true}); err != nil {
		t.Error(err)
	}
	if c, err := m.trees.Changes(t.Context(), owner, s.ID, client.DiffQuery{}); err != nil || c.Files != 1 {
		t.Errorf("changes when it is over: %+v, %v", c, err)
	}
	if _, err := m.trees.Fork(t.Context(), owner, s.ID, client.ForkRequest{Name: "fork"}); err != nil {
		t.Error(err)
	}
	if err := errors.Join(m.EndAll(context.Background()), stop()); err != nil {
		t.Error(err)
	}
}

// fillDisk takes all that a session's disk has, with what is kept for new layers.
func fillDisk(t *testing.T, m *Manager, session string) {
	t.Helper()
	tree, err := m.cfg.Trees.Get(session)
	testrig.Must(t, err)
	opened, err := m.cfg.Trees.OpenLayers(tree.Layers()[:1])
	testrig.Must(t, err)
	defer opened.Close()
	root, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d/..", opened.Files[0].Fd()), os.O_RDONLY, 0)
	testrig.Must(t, err)
	defer root.Close()
	if _, err := os.Stat(filepath.Join(fmt.Sprintf("/proc/self/fd/%d", root.Fd()), "reserve")); err != nil {
		t.Fatal(err)
	}
	fill, err := os.Create(fmt.Sprintf("/proc/self/fd/%d/fill", root.Fd()))
	testrig.Must(t, err)
	defer fill.Close()
	for spent := false; ; {
		for size := 1 << 20; size >= 1; size /= 2 {
			for err = nil; err == nil; {
				_, err = fill.Write(make([]byte, size))
			}
			if !errors.Is(err, unix.ENOSPC) {
				t.Fatal(err)
			}
		}
		testrig.Must(t, fill.Sync())
		if spent {
			return
		}
		err := loopdisk.Spend(root)
		if spent = errors.Is(err, unix.ENOSPC); err != nil && !spent {
			t.Fatal(err)
		}
	}
}
