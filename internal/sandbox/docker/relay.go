package docker

import (
	"context"
	"fmt"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/loopdisk"
	"github.com/toold/toold/internal/sandbox/mount"
)

// Relays implements sandbox.Relaying.
func (s *Sandbox) Relays() error { return nil }

// Relay implements sandbox.Relaying. It does not need the Engine.
func (s *Sandbox) Relay(ctx context.Context, c *sandbox.Claim) error {
	base, err := s.base(ctx)
	if err != nil {
		return err
	}
	err = mount.Session{
		Claim: c, ToolUID: base.uid + sandbox.ToolUID, ToolGID: base.gid + sandbox.ToolGID, RootIsRoot: base == (ids{}),
		Staging: s.d.place(s.rec.SessionID).Path,
	}.Relay(s.Proc.Dir())
	if err != nil {
		return fmt.Errorf("sandbox %s: %w", s.rec.SessionID, err)
	}
	return nil
}

// base is what root of the container is on the host. Of a sandbox of an earlier version, which did not
// record that, the Engine says it.
func (s *Sandbox) base(ctx context.Context) (ids, error) {
	if o := s.rec.Owners; o != (loopdisk.Owners{}) {
		return ids{uint32(o.RootUID), uint32(o.RootGID)}, nil
	}
	info, err := s.d.engine.info(ctx)
	if err != nil {
		return ids{}, err
	}
	return remapped(info)
}
