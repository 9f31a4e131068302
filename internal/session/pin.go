package session

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/thread"
	"github.com/toold/toold/internal/worktree"
)

// worktreeRules say which directories p may have as a worktree.
func (s *Settings) worktreeRules(p auth.Principal) worktree.Rules {
	roots, setting := s.WorktreeRoots, "[worktrees] roots"
	if own := s.Tenants[p.Tenant].Roots; len(own) > 0 {
		roots, setting = own, "[tenant."+p.Tenant+"] roots"
	}
	if s.free(p) {
		roots = nil
	}
	return worktree.Rules{Roots: roots, Setting: setting, AnyRoot: p.Admin}
}

// mountRules say which directories may be a mount, or the beginning of a cache.
func (s *Settings) mountRules() worktree.Rules {
	return worktree.Rules{Roots: s.MountRoots, Setting: "[worktrees] mounts"}
}

// allowed says what may be used instead of a directory that rules forbid.
func allowed(r worktree.Rules) string {
	switch {
	case len(r.Roots) > 0:
		return "use a directory below " + strings.Join(r.Roots, " or ") + "; an admin can add others to " + r.Setting + " of the configuration"
	case r.AnyRoot:
		return "use another directory"
	}
	return "an admin can add directories to " + r.Setting + " of the configuration"
}

// pinMount opens the source of a mount that a request asks for.
func (dm *daemon) pinMount(pl *plan, mt *client.Mount) (*worktree.Directory, error) {
	rules := pl.set.mountRules()
	if pl.set.free(pl.p) {
		rules = worktree.Rules{AnyRoot: true}
	}
	seen := mt.Seen
	mt.Seen = "" // in requests alone
	d, err := dm.pinDirectory(pl.p, rules, mt.Source)
	if seen != "" && errors.Is(err, fs.ErrNotExist) {
		return nil, otherMounts("mount source", mt.Source, "there is none")
	}
	if err != nil {
		return nil, fmt.Errorf("mount source: %w", err)
	}
	if err := checkSeen("mount source", mt.Source, seen, d.File); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// mountOf is a pinned directory as a sandbox shows it.
func mountOf(d *worktree.Directory, target string) sandbox.Mount {
	return sandbox.Mount{Source: d.File, Target: target, UID: d.UID, GID: d.GID}
}

// pinDirectory opens a directory that a session of p's may be given. Administrators
// have toold's own rights on it, everyone else has theirs.
func (dm *daemon) pinDirectory(p auth.Principal, rules worktree.Rules, source string) (*worktree.Directory, error) {
	rules.Private = []string{filepath.Dir(dm.cfg.OutputDir)}
	if !p.Admin {
		rules.User = &thread.User{UID: p.UID, GID: p.GID, Groups: p.Groups}
	}
	d, err := dm.pins.Pin(p.UID, source, rules)
	for _, refusal := range []struct {
		is   error
		kind fault.Kind
		hint string
	}{
		{worktree.ErrForbidden, fault.Forbidden, allowed(rules)},
		{worktree.ErrNotAllowed, fault.Forbidden, "name a directory that you can open yourself, or ask its owner or an admin for access"},
		{worktree.ErrReadOnly, fault.Forbidden, `use mode "ro", or ask its owner or an admin for write access`},
		{worktree.ErrInvalidPath, fault.BadPath, "give the absolute path of a directory, without symbolic links"},
		{worktree.ErrUnresponsive, fault.BadPath, "see that the program or the network behind this directory works, or use another directory"},
	} {
		if errors.Is(err, refusal.is) {
			return nil, refusal.kind.Errorf("%w", err).Next(refusal.hint)
		}
	}
	return d, err
}
