package oci

import (
	"fmt"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/control"
)

// Networking implements sandbox.Networking: all of its sandboxes can.
func (d *Driver) Networking(string) error { return nil }

// Network implements sandbox.Networked. gVisor's network is its own, and its agent passes
// connections on.
func (s *Sandbox) Network() (*sandbox.Network, error) {
	if s.rec.Dials {
		relay, err := control.ListenRelay(s.d.bundle(s.rec.SessionID).control(), s.d.agentOf(s.rec))
		if err != nil {
			return nil, fmt.Errorf("network of sandbox %s: %w", s.rec.SessionID, err)
		}
		return &sandbox.Network{Relay: relay}, nil
	}
	return s.Sandbox.Network()
}
