package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/client"
)

// TestSeenElsewhere: a client that sees another directory at the path of a worktree than toold does
// is told so, and gets no session over it.
func TestSeenElsewhere(t *testing.T) {
	h := newHouse(t)
	h.open()
	dir := t.TempDir()
	seen := func(path string) string {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return client.SeenAs(info)
	}
	other := t.TempDir()
	for name, w := range map[string]client.Worktree{
		"another one":   {Source: dir, Mode: client.WorktreeRO, Seen: seen(other)},
		"there is none": {Source: filepath.Join(dir, "none"), Mode: client.WorktreeRO, Seen: seen(other)},
	} {
		s, err := h.m.Create(t.Context(), root, client.SessionCreate{Worktree: w})
		if codeOfErr(err) != client.CodeInvalidPath || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	for _, w := range []client.Worktree{
		{Source: dir, Mode: client.WorktreeRO, Seen: seen(dir)}, {Source: dir, Mode: client.WorktreeRO}, {Seen: "1:2"},
	} {
		s, err := h.m.Create(t.Context(), root, client.SessionCreate{Worktree: w})
		if err != nil || s.Worktree.Seen != "" {
			t.Errorf("%+v: %+v, %v", w, s, err)
		}
	}
}
