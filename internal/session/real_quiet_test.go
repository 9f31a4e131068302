package session

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/session/trees"
)

// TestRealQuietGVisor: that gVisor takes no mount into a running sandbox is said in a session's notes,
// and to who asks for what takes one. Calls log nothing of it, though checkpoints are wanted before each.
func TestRealQuietGVisor(t *testing.T) {
	h, log := newRealHouseOfGVisor(t), new(logLines)
	m, stop, err := h.open(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		t.Fatal(err)
	}
	set := *m.settings.Load()
	set.Worktrees.Checkpoint = trees.EachCall
	m.Reload(set)
	s, err := m.Create(t.Context(), owner, client.SessionCreate{Worktree: client.Worktree{Source: source(t), Mode: client.WorktreeOverlay}, IdleTimeout: -1})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(fmt.Sprint(s.Notes), "no checkpoints are made before calls") {
		t.Errorf("notes are %q", s.Notes)
	}
	began := log.String() // what this host lacks
	for n := range 3 {
		if c := realCall(t, m, s.ID, "bash", object{"command": fmt.Sprintf("echo %d >>f; cat f", n)}); c.IsError || c.Error != nil {
			t.Errorf("%+v", c)
		}
	}
	if c, err := m.trees.Changes(t.Context(), owner, s.ID, client.DiffQuery{}); err != nil || len(c.Items) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := m.End(t.Context(), owner, s.ID, client.EndOptions{Discard: true}); err != nil {
		t.Error(err)
	}
	if all := log.String(); all != began {
		t.Errorf("three calls logged:\n%s", strings.TrimPrefix(all, began))
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
