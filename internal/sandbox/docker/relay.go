package docker

import (
	"context"
	"fmt"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/mount"
)

// Relays implements sandbox.Relaying.
func (s *Sandbox) Relays() error { return nil }

// Relay implements sandbox.Relaying.
func (s *Sandbox) Relay(ctx context.Context, c *sandbox.Claim) error {
	info, err := s.d.engine.info(ctx)
	if err != nil {
		return err
	}
	base, err := remapped(info)
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
