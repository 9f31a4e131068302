package session

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/needs"
)

// TestPrivateDaemon: its admin is bound by the host, and nobody else by less than
// the configuration says.
func TestPrivateDaemon(t *testing.T) {
	needs.OpenAt2(t)
	dir := t.TempDir()
	elsewhere, mount := filepath.Join(dir, "work"), filepath.Join(dir, "cache")
	for _, d := range []string{elsewhere, mount} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ask := client.SessionCreate{
		Worktree: client.Worktree{Source: elsewhere}, Mounts: []client.Mount{{Source: mount, Target: "/cache"}},
		Limits: client.Limits{Memory: 256 << 20},
	}
	admin := auth.Principal{UID: 0, Tenant: "a", Admin: true}
	for _, private := range []bool{false, true} {
		h := newHouse(t)
		h.set.Private = private
		h.set.WorktreeRoots, h.set.MountRoots = []string{"/srv"}, nil
		h.set.Tenants = map[string]Tenant{"a": {Roots: []string{"/srv"}, MaxLimits: client.Limits{Memory: 64 << 20}}}
		h.open()
		if _, err := h.m.Create(t.Context(), admin, ask); private != (err == nil) {
			t.Errorf("private %v, its admin: %v", private, err)
		}
		for _, part := range []client.SessionCreate{{Worktree: ask.Worktree}, {Mounts: ask.Mounts}, {Limits: ask.Limits}} {
			if _, err := h.m.Create(t.Context(), alice, part); err == nil {
				t.Errorf("private %v: somebody else got %+v", private, part)
			}
		}
	}
}
