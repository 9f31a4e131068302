package docker

import (
	"fmt"

	"github.com/toold/toold/internal/sandbox"
)

// Networking implements sandbox.Networking: an Engine's containers on this host can.
func (d *Driver) Networking(string) error { return nil }

// Networking implements sandbox.Networking.
func (r *Remote) Networking(string) error {
	return fmt.Errorf("network: the Docker Engine is on another host (%s), whose network namespaces this daemon cannot enter; take a runtime of this host: %w",
		r.d.engine.host, sandbox.ErrUnsupported)
}
