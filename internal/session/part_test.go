package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/needs"
)

// faultyPart notes when it is closed, and fails at one step, when it has done all that
// there is to do.
type faultyPart struct {
	part
	fails  string
	closed *[]string
}

func (f faultyPart) result(step string, err error) error {
	if f.fails == step {
		return errors.Join(err, errors.New("boom"))
	}
	return err
}

func (f faultyPart) claim(ctx context.Context, pl *plan) error {
	return f.result("claim", f.part.claim(ctx, pl))
}

func (f faultyPart) open(ctx context.Context, s *Session, pl *plan) error {
	return f.result("open", f.part.open(ctx, s, pl))
}

func (f faultyPart) adopt(ctx context.Context, s *Session) error {
	return f.result("adopt", f.part.adopt(ctx, s))
}

func (f faultyPart) close(s *Session, e ending, left error) ([]string, error) {
	*f.closed = append(*f.closed, fmt.Sprintf("%T", f.part))
	notes, err := f.part.close(s, e, left)
	return notes, f.result("close", err)
}

// openFaulty opens a daemon with images of its own, in which one part fails at a step. It
// gives the parts that are closed.
func (h *house) openFaulty(t *testing.T, fails int, step string) (pics *gallery, closed *[]string) {
	t.Helper()
	pics, closed = newGallery(), new([]string)
	h.pics = map[string]Images{"fake": pics}
	m := h.build()
	for i, p := range m.parts {
		f := faultyPart{part: p, closed: closed}
		if i == fails {
			f.fails = step
		}
		m.parts[i] = f
	}
	if err := m.start(t, func(uint32) (string, error) { return "", nil }); err != nil {
		t.Fatal(err)
	}
	return pics, closed
}

// TestPartFails has each part fail at each step. All parts are closed then, once and
// backwards, and nothing of the session is left but what may still be in use.
func TestPartFails(t *testing.T) {
	needs.OpenAt2(t)
	for i, p := range partsOf(nil) {
		for _, step := range []string{"claim", "open", "adopt", "close"} {
			t.Run(fmt.Sprintf("%T/%s", p, step), func(t *testing.T) { partFails(t, i, step) })
		}
	}
}

func partFails(t *testing.T, fails int, step string) {
	h := newHouse(t)
	pics, closed := h.openFaulty(t, fails, step)
	s, err := h.m.Create(t.Context(), root, client.SessionCreate{
		Image: "tools:1", LeasePID: leaseHolder(t).Process.Pid,
		Worktree: client.Worktree{Mode: client.WorktreeBind, Source: t.TempDir()},
	})
	codes := map[string]client.Code{"claim": client.CodeInternal, "open": client.CodeSandboxFailed}
	if codeOfErr(err) != codes[step] {
		t.Fatalf("create: %v", err)
	}
	switch step {
	case "adopt":
		h.stop()
		pics, closed = h.openFaulty(t, fails, step)
		if s, err := h.m.Get(t.Context(), root, s.ID); err != nil || s.State != client.SessionLost || !strings.HasSuffix(s.Reason, "boom") {
			t.Errorf("session %+v, %v", s, err)
		}
	case "close":
		s, err := h.m.End(t.Context(), root, s.ID, client.EndOptions{})
		if err != nil || s.State != client.SessionEnded || !strings.Contains(fmt.Sprint(s.Notes), "gc --dry-run") {
			t.Errorf("session %+v, %v", s, err)
		}
	}
	var want []string
	for _, p := range slices.Backward(partsOf(nil)) {
		if step != "claim" { // then there is no session
			want = append(want, fmt.Sprintf("%T", p))
		}
	}
	if !slices.Equal(*closed, want) {
		t.Errorf("closed %v, want %v", *closed, want)
	}
	// Image and uids are kept for something that is left of a part closed before them.
	kept := func(p part) bool { return step == "close" && fails > slices.Index(partsOf(nil), p) }
	if got := pics.holders() > 0; got != kept(runImage{}) {
		t.Errorf("the image is held: %v", got)
	}
	h.checkLeft(t, kept(uids{}), step == "adopt")
}

// checkLeft checks what is left of the only session that there was: besides its range, under
// quarantine, and its outputs nothing ever is.
func (h *house) checkLeft(t *testing.T, quarantined, outputs bool) {
	t.Helper()
	if n := len(h.host.boxes); n != 0 {
		t.Errorf("%d sandboxes", n)
	}
	held, _, err := h.store.Leases(t.Context())
	if err != nil || (len(held) > 0) != quarantined || quarantined && !held[0].Quarantined {
		t.Errorf("leases %+v, %v", held, err)
	}
	dirs, err := os.ReadDir(filepath.Join(h.dir, "output"))
	if err != nil || (len(dirs) > 0) != outputs {
		t.Errorf("outputs %v, %v", dirs, err)
	}
	if n := len(h.m.live()); n != 0 {
		t.Errorf("%d sessions", n)
	}
}
