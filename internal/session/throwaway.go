package session

import (
	"context"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
)

// Throwaway makes a session of its own for use, and ends it. Calls that are made by call
// are judged by no rule. The error is why there was no session.
func (m *Manager) Throwaway(ctx context.Context, p auth.Principal, r client.SessionCreate, use func(s *client.Session, call func(client.CallCreate) (*client.Call, error))) error {
	if r.Image == "" {
		r.Image = m.neededImage(ctx, p.Tenant)
	}
	s, err := m.Create(ctx, p, r)
	if err != nil {
		return err
	}
	defer func() {
		// Also when the request has ended: nothing of it may stay.
		if _, err := m.End(context.WithoutCancel(ctx), p, s.ID, client.EndOptions{Force: true}); err != nil {
			m.log.Error("end the session of a probe", "session", s.ID, "error", err)
		}
	}()
	use(s, func(r client.CallCreate) (*client.Call, error) {
		return m.calls.Call(ctx, p, s.ID, r, call.Options{Probe: true})
	})
	return nil
}

// neededImage is the image of a throw-away session: the first one where sessions
// must have one, and none where they need none. "" may be refused: whoever has no
// images is told by Create what to do.
func (m *Manager) neededImage(ctx context.Context, tenant string) string {
	images, set := m.cfg.Images[m.cfg.Driver], m.settings.Load()
	if images == nil || m.cfg.Image != "" || !set.RequireImage && !set.Tenants[tenant].RequireImage {
		return ""
	}
	all, err := images.List(ctx)
	if err != nil || len(all) == 0 {
		return ""
	}
	return all[0].Digest
}

// Limits are those of sessions that ask for none.
func (m *Manager) Limits() client.Limits { return m.settings.Load().Limits }
