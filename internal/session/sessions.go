package session

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/store"
)

// Get implements server.Sessions.
func (m *Manager) Get(ctx context.Context, p auth.Principal, id string) (*client.Session, error) {
	if err := p.Whole(); err != nil {
		return nil, err
	}
	if s, err := m.find(p, id); err == nil {
		v := s.snapshot(ctx)
		v.Todos = s.Row().Tasks.List
		return v, nil
	}
	row, err := m.stored(ctx, p, id)
	if err != nil {
		return nil, err
	}
	row.Todos = row.Tasks.List
	return m.past(ctx, row)
}

// past is a session that is over, as clients see it.
func (dm *daemon) past(ctx context.Context, row *store.Session) (*client.Session, error) {
	n, err := dm.store.CountCalls(ctx, row.ID)
	if err != nil {
		return nil, dm.internal("count calls", err)
	}
	row.Usage.Calls = n
	row.Worktree.KeptUntil = dm.keptUntil(row)
	row.Notes = append(row.Notes, cutOff(dm.trees, &row.Session)...)
	return &row.Session, nil
}

// List implements server.Sessions. It goes by the store, so that what it shows does not
// change its order while pages are read.
func (m *Manager) List(ctx context.Context, p auth.Principal, f client.SessionQuery) (client.List[client.Session], error) {
	list := client.List[client.Session]{Items: []client.Session{}}
	if err := p.Whole(); err != nil {
		return list, err
	}
	if f.After != "" && !store.ValidID("ses_", f.After) {
		return list, fault.Invalid.Errorf("after %q is not the id of a session", shown(f.After))
	}
	limit := call.ListLimit(f.Limit)
	sf := store.SessionFilter{
		Tenant: p.Of(), State: f.State, After: f.After, Limit: limit + 1,
		Live: !f.All && f.State != client.SessionEnded && f.State != client.SessionLost,
	}
	for {
		rows, err := m.store.Sessions(ctx, sf)
		if err != nil {
			return list, m.internal("list sessions", err)
		}
		for _, row := range rows {
			if !hasLabels(row.Labels, f.Labels) {
				continue
			}
			if len(list.Items) == limit {
				list.Next = list.Items[limit-1].ID
				return list, nil
			}
			v, err := m.show(ctx, p, row)
			if err != nil {
				return list, err
			}
			list.Items = append(list.Items, *v)
		}
		if len(rows) < sf.Limit {
			return list, nil
		}
		sf.After = rows[len(rows)-1].ID
	}
}

// show prefers what is live over what is stored.
func (m *Manager) show(ctx context.Context, p auth.Principal, row *store.Session) (*client.Session, error) {
	if s, err := m.find(p, row.ID); err == nil {
		return s.snapshot(ctx), nil
	}
	return m.past(ctx, row)
}

func hasLabels(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Patch implements server.Sessions.
func (m *Manager) Patch(ctx context.Context, p auth.Principal, id string, r client.SessionPatch) (*client.Session, error) {
	if err := p.Whole(); err != nil {
		return nil, err
	}
	s, err := m.notOver(ctx, p, id)
	if err != nil {
		return nil, err
	}
	if r.Profile != nil {
		if err := m.court.Check(s.tenant.Name, *r.Profile); err != nil {
			return nil, err
		}
		if w := s.Row().Worktree; w.Source != "" {
			if err := m.settings.Load().checkMode(w.Mode, *r.Profile, s.tenant.Name); err != nil {
				return nil, err
			}
		}
	}
	if r.TTL != nil {
		if err := checkTTL(*r.TTL); err != nil {
			return nil, err
		}
	}
	before, profile := s.toolSet(), s.Row().Profile
	err = s.write(client.EventSessionUpdated, func(row *store.Session) error {
		row.Labels = patched(row.Labels, r.Labels)
		if r.Profile != nil {
			row.Profile = *r.Profile
		}
		if r.TTL != nil {
			row.TTL = *r.TTL
			row.Expires, row.Until = expiry(time.Now().UTC().Truncate(time.Millisecond), *r.TTL)
		}
		return checkLabels(row.Labels)
	})
	if err != nil {
		return nil, m.internal("change session "+s.id, err)
	}
	if s.Row().Profile != profile {
		s.judge.Anew()
		s.rulesChanged(m.settings.Load().network(s.tenant.Name).TLS)
	}
	s.tellTools(before)
	wake(s)
	return s.snapshot(ctx), nil
}

// patched is have with the changes of a patch; an empty value removes a label.
func patched(have, changes map[string]string) map[string]string {
	labels := maps.Clone(have)
	if labels == nil {
		labels = make(map[string]string)
	}
	for k, v := range changes {
		labels[k] = v
		if v == "" {
			delete(labels, k)
		}
	}
	return labels
}

// End implements server.Sessions.
func (m *Manager) End(ctx context.Context, p auth.Principal, id string, o client.EndOptions) (*client.Session, error) {
	if err := p.Whole(); err != nil {
		return nil, err
	}
	s, row, err := m.liveOrOver(ctx, p, id)
	if err != nil {
		return nil, err
	}
	if s == nil { // ending one again that is over changes nothing, but for what it has changed
		return m.endedAs(ctx, p, row, o)
	}
	if err := s.end(ctx, ending{state: client.SessionEnded, reason: "ended by request", force: o.Force, keep: o.Keep}); err != nil {
		return nil, m.internal(fmt.Sprintf("end session %s", s.id), err)
	}
	ended := s.Row()
	ended.Usage.Calls = s.calls.Total()
	return m.endedAs(ctx, p, &ended, o)
}

// endedAs drops what a session that is over has changed, where that is wanted, and gives
// the session.
func (m *Manager) endedAs(ctx context.Context, p auth.Principal, row *store.Session, o client.EndOptions) (*client.Session, error) {
	if o.Discard && row.Worktree.Mode == client.WorktreeOverlay {
		if err := m.trees.Drop(ctx, p, row); err != nil {
			return nil, m.internal("discard the changes of session "+row.ID, err)
		}
	}
	row.Worktree.KeptUntil = m.keptUntil(row)
	return &row.Session, nil
}
