package trees

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/toold/toold/internal/worktree/layers"
)

// TestForgetWaits: a tree does not go under somebody who works on it.
func TestForgetWaits(t *testing.T) {
	store, err := layers.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Begin(&layers.Tree{Session: "ses_1"}); err != nil {
		t.Fatal(err)
	}
	s := New(store, nil, slog.New(slog.DiscardHandler), nil)
	release, err := s.locks.take(t.Context(), "ses_1")
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := s.Forget(short, "ses_1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if _, err := store.Get("ses_1"); err != nil {
		t.Error(err)
	}
	release()
	if err := s.Forget(t.Context(), "ses_1"); err != nil {
		t.Error(err)
	}
	if _, err := store.Get("ses_1"); !errors.Is(err, layers.ErrNone) {
		t.Error(err)
	}
}
