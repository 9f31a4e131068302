package session

import (
	"errors"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
)

// TestForbiddenDirectory: who is refused a directory is told those that he may use, and which setting an admin
// would change: that of his own tenant where it has one.
func TestForbiddenDirectory(t *testing.T) {
	t.Parallel()
	ask := client.SessionCreate{Worktree: client.Worktree{Source: "/usr/share"}}
	mount := client.SessionCreate{Mounts: []client.Mount{{Source: "/usr/share", Target: "/cache"}}}
	for what, tt := range map[string]struct {
		all, own []string
		ask      client.SessionCreate
		next     string
	}{
		"own roots": {[]string{"/srv"}, []string{"/a", "/b"}, ask, "use a directory below /a or /b; an admin can add others to [tenant." + alice.Tenant + "] roots of the configuration"},
		"roots":     {[]string{"/srv"}, nil, ask, "use a directory below /srv; an admin can add others to [worktrees] roots of the configuration"},
		"none":      {nil, nil, ask, "an admin can add directories to [worktrees] roots of the configuration"},
		"a mount":   {[]string{"/srv"}, []string{"/a"}, mount, "an admin can add directories to [worktrees] mounts of the configuration"},
	} {
		h := newHouse(t)
		h.set.WorktreeRoots, h.set.MountRoots = tt.all, nil
		h.set.Tenants = map[string]Tenant{alice.Tenant: {Roots: tt.own}}
		h.open()
		_, err := h.m.Create(t.Context(), alice, tt.ask)
		if e, ok := errors.AsType[*fault.Error](err); !ok || e.Kind != fault.Forbidden || e.Hint != tt.next {
			t.Errorf("%s: %v", what, err)
		}
	}
}
