package session

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/store"
)

// TestRealStillBeingMade: where the database says that a session is being made, which another daemon
// died of or which an older copy says of one that was made since, what it has changed is kept with
// its checkpoints, and a fork goes on from there.
func TestRealStillBeingMade(t *testing.T) {
	h := newRealHouse(t)
	src := source(t)
	open := func() (*Manager, func() error) {
		t.Helper()
		m, stop, err := h.open(slog.New(slog.NewTextHandler(logTo{t}, &slog.HandlerOptions{Level: slog.LevelWarn})))
		if err != nil {
			t.Fatal(err)
		}
		return m, stop
	}
	m, stop := open()
	var ids []string
	for _, name := range []string{"made", "new"} {
		v, err := m.Create(t.Context(), owner, client.SessionCreate{Name: name, Worktree: client.Worktree{Source: src, Mode: client.WorktreeOverlay}, IdleTimeout: -1})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, v.ID)
	}
	realCall(t, m, "made", "bash", object{"command": "echo one >one"})
	if _, err := m.trees.Checkpoint(t.Context(), owner, "made", client.CheckpointCreate{Name: "one"}); err != nil {
		t.Fatal(err)
	}
	realCall(t, m, "made", "bash", object{"command": "echo two >two"})
	for _, id := range ids {
		m.mu.RLock()
		s := m.sessions[id]
		m.mu.RUnlock()
		if err := s.write("", func(r *store.Session) error { r.State, r.Record = client.SessionCreating, nil; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	m, stop = open()
	for i, kept := range []bool{true, false} {
		v, err := m.Get(t.Context(), owner, ids[i])
		if err != nil || v.State != client.SessionLost || (v.Worktree.KeptUntil != nil) != kept {
			t.Errorf("session %d: %+v, %v; want kept %v", i, v, err, kept)
		}
	}
	fork, err := m.trees.Fork(t.Context(), owner, ids[0], client.ForkRequest{Name: "fork"})
	if err != nil {
		t.Fatal(err)
	}
	if c := realCall(t, m, fork.ID, "bash", object{"command": "cat one two"}); strings.TrimSpace(c.Output) != "one\ntwo" {
		t.Errorf("the fork has %q", c.Output)
	}
	if list, err := m.trees.Checkpoints(t.Context(), owner, ids[0]); err != nil || len(list.Items) == 0 || list.Items[0].Name != "one" {
		t.Errorf("checkpoints %+v, %v", list, err)
	}
	if err := m.EndAll(t.Context()); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
