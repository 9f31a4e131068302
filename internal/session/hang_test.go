package session

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/session/room"
	"github.com/toold/toold/internal/testrig"
)

// TestHangingWorktree: a worktree whose file system hangs keeps neither the disks of others from
// being watched nor the daemon from its end.
func TestHangingWorktree(t *testing.T) {
	t.Parallel()
	hangs, _ := testrig.Hanging(t)
	small := testrig.SmallTree(t, 8<<20)
	h := newHouse(t)
	h.set.HostFree = room.Floor{Bytes: 8 << 20} // of a small disk the 8th
	h.open()
	ids := map[string]string{}
	for _, tree := range []string{hangs, small} {
		dir := filepath.Join(t.TempDir(), "tree")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		s := h.create(auth.Principal{UID: alice.UID, Tenant: alice.Tenant, Admin: true}, client.SessionCreate{Worktree: client.Worktree{Source: dir, Mode: client.WorktreeBind}})
		ids[tree] = s.ID
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(tree+"/", dir); err != nil { // as if it were mounted there
			t.Fatal(err)
		}
	}
	waits, writes := h.background(ids[hangs], "hold"), h.background(ids[small], "hold")
	for id := range ids {
		box := h.host.box(ids[id])
		testrig.Eventually(t, "it holds", func() bool { return box.holding.Load() == 1 })
	}
	if err := os.WriteFile(filepath.Join(small, "full"), bytes.Repeat([]byte{1}, 7<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	testrig.Eventually(t, "the worktree that hangs is looked at", testrig.Waited(t, hangs))
	h.finished(writes.ID)
	testrig.Eventually(t, "the writer to the full disk was stopped for that", func() bool { return h.m.DiskRoom().Stopped == 1 })
	if c, err := h.store.Call(t.Context(), waits.ID); err != nil || c.Status != client.CallRunning {
		t.Errorf("the other one: %+v, %v", c, err)
	}
	for name, look := range map[string]func(){
		"sweeper":               func() { h.m.Collector.sweep(t.Context()) },
		"recovery of worktrees": func() { h.m.trees.RecoverAll(t.Context()) },
		"leftovers":             func() { _, _ = h.m.Collector.collect(t.Context(), client.GCRequest{DryRun: true}) },
		"checks":                func() { h.m.Checks(t.Context()) },
		"ready":                 func() { h.m.Ready(t.Context()) },
		"count of worktrees":    func() { h.m.Usage.Worktrees() },
		"disks":                 func() { h.m.DiskRoom() },
		"memory of the host":    func() { h.m.MemoryRoom() },
	} {
		over := make(chan struct{})
		go func() {
			defer close(over)
			look()
		}()
		select {
		case <-over:
		case <-time.After(testrig.Patience):
			t.Fatalf("%s: it waits for the worktree that hangs", name)
		}
	}
	h.stop() // ends
	h.open()
}

// TestCloseNames: what does not end with the daemon is named, and not waited for.
func TestCloseNames(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	m := h.open()
	m.stuck = time.Millisecond
	end := make(chan struct{})
	m.work.Go("look at a worktree", func() { <-end })
	if err := m.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "look at a worktree") {
		t.Errorf("close: %v", err)
	}
	close(end)
	m.stuck = stuckTime
}
