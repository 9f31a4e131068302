package oci

import (
	"context"
	"fmt"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/mount"
)

// Relays implements sandbox.Relaying. gVisor's mounts are its own: there the sandbox has to
// be made anew.
func (s *Sandbox) Relays() error {
	if s.rec.Dials {
		return fmt.Errorf("gVisor takes no mount into a running sandbox: %w", sandbox.ErrUnsupported)
	}
	return nil
}

// Relay implements sandbox.Relaying.
func (s *Sandbox) Relay(_ context.Context, c *sandbox.Claim) error {
	if err := s.Relays(); err != nil {
		return err
	}
	base := s.rec.UIDBase
	err := mount.Session{
		Claim: c, ToolUID: base + sandbox.ToolUID, ToolGID: base + sandbox.ToolGID, Staging: s.d.rootsDir(),
	}.Relay(s.Proc.Dir())
	if err != nil {
		return fmt.Errorf("sandbox %s: %w", s.rec.SessionID, err)
	}
	return nil
}
