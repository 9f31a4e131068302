package session

import (
	"context"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
)

// Doctor implements API: what the drivers see of the host and, with probe, what
// a throw-away session sees from inside.
func (m *Manager) Doctor(ctx context.Context, p Principal, probe bool) (*client.Doctor, error) {
	if err := p.admin(); err != nil {
		return nil, err
	}
	d := &client.Doctor{Checks: []client.Check{}}
	for _, driver := range m.cfg.Drivers {
		if pr, ok := driver.(sandbox.Prober); ok {
			d.Checks = append(d.Checks, pr.Host(ctx)...)
		}
	}
	return d, nil
}
