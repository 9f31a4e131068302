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
	dir := t.TempDir()
	h.set.MountRoots = []string{dir}
	h.open()
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
	for name, mt := range map[string]client.Mount{
		"another one":             {Source: dir, Target: "/m", Seen: seen(other)},
		"there is none":           {Source: filepath.Join(dir, "none"), Target: "/m", Seen: seen(other)},
		"for toold it is another": {Source: dir, Target: "/m", Mode: client.MountCow, Seen: seen(other)},
	} {
		s, err := h.m.Create(t.Context(), root, client.SessionCreate{Mounts: []client.Mount{mt}})
		if codeOfErr(err) != client.CodeInvalidPath || !strings.Contains(err.Error(), name) {
			t.Errorf("a mount, %s: %+v, %v", name, s, err)
		}
	}
	asked := []client.Mount{{Source: dir, Target: "/m", Seen: seen(dir)}}
	if s, err := h.m.Create(t.Context(), root, client.SessionCreate{Key: "k", Mounts: asked}); err != nil || s.Mounts[0].Seen != "" || asked[0].Seen == "" {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := h.m.Create(t.Context(), root, client.SessionCreate{Key: "k", Mounts: []client.Mount{{Source: dir, Target: "/m"}}}); err != nil || s.Mounts[0].Target != "/m" {
		t.Errorf("with the same key: %+v, %v", s, err)
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
