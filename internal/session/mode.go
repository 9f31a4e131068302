package session

import (
	"cmp"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/policy"
)

// settleMode gives a session that names a directory the mode that its tenant or profile
// demands, or else that of the configuration, where it asks for none.
func (s *Settings) settleMode(r *client.SessionCreate, tenant string) error {
	w := &r.Worktree
	if w.Source == "" {
		return nil
	}
	if w.Mode == "" {
		w.Mode = cmp.Or(s.demandedMode(r.Profile, tenant), s.Worktrees.Mode, client.WorktreeBind)
	}
	return s.checkMode(w.Mode, r.Profile, tenant)
}

// demandedMode is the mode that a session of the tenant with the profile must have; ""
// for any.
func (s *Settings) demandedMode(profile, tenant string) client.WorktreeMode {
	return cmp.Or(s.Tenants[tenant].RequireMode, s.Worktrees.Required[cmp.Or(profile, policy.DefaultProfile)])
}

// checkMode refuses a mode of a worktree with a source that is not the demanded one.
func (s *Settings) checkMode(mode client.WorktreeMode, profile, tenant string) error {
	if want := s.Tenants[tenant].RequireMode; want != "" && mode != want {
		return fault.Forbidden.Errorf("sessions of this tenant have worktrees of mode %q (require_mode), and this one has %q", want, shown(string(mode))).
			Next("leave the mode out")
	}
	profile = cmp.Or(profile, policy.DefaultProfile)
	if want := s.Worktrees.Required[profile]; want != "" && mode != want {
		return fault.Forbidden.Errorf("sessions with the profile %s have worktrees of mode %q (require_mode), and this one has %q", shown(profile), want, shown(string(mode))).
			Next("leave the mode out, or choose another profile")
	}
	return nil
}
