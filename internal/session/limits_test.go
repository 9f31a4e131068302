package session

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/needs"
)

func TestDefaultsAndMaxima(t *testing.T) {
	set := testSettings()
	set.Limits.PIDs, set.Limits.Calls = 100, 4
	most := client.Limits{PIDs: 400, Calls: 8}
	ten := Tenant{Limits: client.Limits{PIDs: 50}, MaxLimits: client.Limits{PIDs: 200, Calls: 2}}
	for _, tt := range []struct {
		name        string
		ten         Tenant
		asked, want client.Limits
		says        string
	}{
		{"nothing asked", Tenant{}, client.Limits{}, client.Limits{PIDs: 100, Calls: 4}, ""},
		{"above the default", Tenant{}, client.Limits{PIDs: 400}, client.Limits{PIDs: 400, Calls: 4}, ""},
		{"above the maximum", Tenant{}, client.Limits{PIDs: 401}, client.Limits{}, "is 401; the most that a session may ask for is 400"},
		{"of a tenant", ten, client.Limits{}, client.Limits{PIDs: 50, Calls: 2}, ""},
		{"above the tenant's default", ten, client.Limits{PIDs: 200}, client.Limits{PIDs: 200, Calls: 2}, ""},
		{"above the tenant's maximum", ten, client.Limits{PIDs: 201}, client.Limits{}, "is 201; the most that a session may ask for is 200"},
		{"no way around it", ten, client.Limits{Calls: 3}, client.Limits{}, "limits.max.calls of the tenant"},
	} {
		l := tt.asked
		err := fillLimits(&l, &set, tt.ten, most, "")
		if tt.says != "" {
			e, ok := errors.AsType[*fault.Error](err)
			if !ok || e.Hint == "" || !strings.Contains(e.Err.Error()+e.Hint, tt.says) {
				t.Errorf("%s: %v, want %q and a next step", tt.name, err, tt.says)
			}
			continue
		}
		if err != nil || l.PIDs != tt.want.PIDs || l.Calls != tt.want.Calls {
			t.Errorf("%s: %+v, %v", tt.name, l, err)
		}
	}
}

// TestHostIsTheLastMaximum: what the host does not have is refused before anything
// is made.
func TestHostIsTheLastMaximum(t *testing.T) {
	h := newHouse(t)
	h.open()
	set := testSettings()
	for name, l := range map[string]client.Limits{
		"cpus": {CPUs: 1e6}, "memory": {Memory: 1 << 60}, "pids": {PIDs: 1 << 40}, "open_files": {OpenFiles: 1 << 40}, "disk": {Disk: 1 << 60},
	} {
		err := fillLimits(&l, &set, Tenant{}, client.Limits{}, h.m.cfg.OutputDir)
		if e, ok := errors.AsType[*fault.Error](err); !ok || !strings.Contains(e.Err.Error(), "limits."+name+" is ") || !strings.Contains(e.Err.Error(), "this host has") || e.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

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
