package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/needs"
)

// TestMode: who names a directory and no mode gets the mode of the configuration, or the
// one that tenant or profile demand; another one is refused.
func TestMode(t *testing.T) {
	needs.OpenAt2(t)
	h := newHouse(t)
	dir := t.TempDir()
	h.set.WorktreeRoots = []string{dir}
	h.set.Worktrees = Worktrees{Mode: client.WorktreeRO, Required: map[string]client.WorktreeMode{"plan": client.WorktreeBind, "ci": ""}}
	h.set.Tenants = map[string]Tenant{"b": {RequireMode: client.WorktreeBind}, "c": {RequireMode: client.WorktreeRO}}
	h.open()
	a := mounter
	in := func(tenant string) auth.Principal { p := a; p.Tenant = tenant; return p }
	for _, tt := range []struct {
		who            auth.Principal
		profile, asked string
		want           client.WorktreeMode
		err            string
	}{
		{a, "", "", client.WorktreeRO, ""},
		{a, "", "bind", client.WorktreeBind, ""},
		{a, "plan", "", client.WorktreeBind, ""},
		{a, "plan", "ro", "", `sessions with the profile plan have worktrees of mode "bind" (require_mode), and this one has "ro"`},
		{a, "ci", "bind", client.WorktreeBind, ""},
		{in("b"), "", "", client.WorktreeBind, ""},
		{in("b"), "", "ro", "", `sessions of this tenant have worktrees of mode "bind" (require_mode), and this one has "ro"`},
		{in("c"), "plan", "", "", `the profile plan have worktrees of mode "bind"`},
	} {
		w := client.Worktree{Source: dir, Mode: client.WorktreeMode(tt.asked)}
		s, err := h.m.Create(t.Context(), tt.who, client.SessionCreate{Profile: tt.profile, Worktree: w})
		switch {
		case tt.err != "":
			if codeOfErr(err) != client.CodeForbidden || !strings.Contains(fmt.Sprint(err), tt.err) {
				t.Errorf("%+v: %v", tt, err)
			}
		case err != nil || s.Worktree.Mode != tt.want:
			t.Errorf("%+v: %+v, %v", tt, s, err)
		}
	}
	if s := h.create(in("b"), client.SessionCreate{}); s.Worktree.Mode != client.WorktreeEmpty {
		t.Errorf("a session without a directory has the mode %q", s.Worktree.Mode)
	}
}

// TestModeOfProfileLater: no session comes to a profile without the mode that it demands.
func TestModeOfProfileLater(t *testing.T) {
	needs.OpenAt2(t)
	h := newHouse(t)
	dir := t.TempDir()
	h.set.WorktreeRoots = []string{dir}
	h.set.Worktrees.Required = map[string]client.WorktreeMode{"plan": client.WorktreeRO}
	h.open()
	patch := func(s *client.Session) error {
		plan := "plan"
		_, err := h.m.Patch(t.Context(), mounter, s.ID, client.SessionPatch{Profile: &plan})
		return err
	}
	if err := patch(h.create(mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir}})); codeOfErr(err) != client.CodeForbidden {
		t.Errorf("a session that writes to its source came to a profile that reads: %v", err)
	}
	if err := patch(h.create(mounter, client.SessionCreate{Worktree: client.Worktree{Source: dir, Mode: client.WorktreeRO}})); err != nil {
		t.Error(err)
	}
	if err := patch(h.create(mounter, client.SessionCreate{})); err != nil {
		t.Error(err)
	}
}
