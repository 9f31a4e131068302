package session

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
)

// This file carries out the recipe for a part of docs/architecture.md on one that is a file
// for each session.

// 1. A file in `internal/session` with a type that embeds `nothing` and has those methods of
// `session.part` that it needs.
type diary struct {
	nothing //nolint:unused // this one happens to need them all
	m       *Manager
	dir     string
}

func (d diary) file(session string) string { return filepath.Join(d.dir, session) }

// 2. `claim` checks what a request names and keeps it in the plan. It makes nothing.
func (d diary) claim(_ context.Context, pl *plan) error {
	if pl.req.Name == "nameless" {
		return fault.Invalid.Errorf("name %q: no diary has it", pl.req.Name)
	}
	pl.notes = append(pl.notes, "has a diary")
	return nil
}

// 3. `open` makes the part; the store has the session by then. `adopt` takes the part over
// after a restart.
func (d diary) open(_ context.Context, s *Session, _ *plan) error {
	return os.WriteFile(d.file(s.id), nil, 0o600)
}

func (d diary) adopt(_ context.Context, s *Session) error {
	_, err := os.Stat(d.file(s.id))
	return err
}

// 4. `close` removes the part, also where there is nothing to remove.
func (d diary) close(s *Session, _ ending, _ error) (notes []string, err error) {
	if err := os.Remove(d.file(s.id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return []string{"its diary is closed"}, nil
}

// 5. `leftovers` lists what ended sessions have left, each with a way to remove it.
func (d diary) leftovers(context.Context) (all []leftover, err error) {
	entries, err := os.ReadDir(d.dir)
	for _, e := range entries {
		if id := e.Name(); d.m.liveByID(id) == nil {
			all = append(all, leftover{
				Garbage: client.Garbage{Kind: "diary", Name: id, Session: id},
				remove:  func() error { return os.Remove(d.file(id)) },
			})
		}
	}
	return all, err
}

// openWithDiary opens a daemon whose sessions have diaries.
func (h *house) openWithDiary(t *testing.T, dir string) {
	t.Helper()
	m := h.build()
	// 6. A place in `session.partsOf`, behind the parts that it needs. `TestPartFails` then has it
	// fail at each step.
	m.parts = append(m.parts, diary{m: m, dir: dir})
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestExamplePart: a part is claimed, opened, adopted, closed and collected in the loops of
// sessions, which know nothing of it.
func TestExamplePart(t *testing.T) {
	h, dir := newHouse(t), t.TempDir()
	h.openWithDiary(t, dir)
	if _, err := h.m.Create(t.Context(), root, client.SessionCreate{Name: "nameless"}); codeOfErr(err) != client.CodeInvalidRequest {
		t.Errorf("a claim that is refused: %v", err)
	}
	s := h.create(root, client.SessionCreate{})
	wantDiaries(t, dir, s.ID)
	h.stop()
	h.openWithDiary(t, dir)
	if now, err := h.m.Get(t.Context(), root, s.ID); err != nil || now.State != client.SessionReady || !slices.Contains(now.Notes, "has a diary") {
		t.Errorf("after a restart the session is %+v, %v", now, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ses_left"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := h.m.Collector.GC(t.Context(), root, client.GCRequest{})
	if want := (client.Garbage{Kind: "diary", Name: "ses_left", Session: "ses_left", Removed: true}); err != nil || !slices.Contains(got, want) {
		t.Errorf("collected %+v, %v", got, err)
	}
	wantDiaries(t, dir, s.ID)
	if ended, err := h.m.End(t.Context(), root, s.ID, client.EndOptions{}); err != nil || !slices.Contains(ended.Notes, "its diary is closed") {
		t.Errorf("the session is %+v, %v", ended, err)
	}
	wantDiaries(t, dir)
}

func wantDiaries(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("diaries %v, %v, want %v", got, err, want)
	}
}
