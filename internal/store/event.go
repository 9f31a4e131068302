package store

import (
	"context"
	"strings"
	"time"

	"github.com/toold/toold/client"
)

// AddEvent adds an event. Its id is made at the end of the transaction, so that
// ids, rows and what OnEvents hears have one order.
func (tx *Tx) AddEvent(e client.Event) { tx.events = append(tx.events, e) }

// eventsOf lists the events of entries.
func eventsOf(entries []*Entry) []client.Event {
	var all []client.Event
	for _, e := range entries {
		if e == nil {
			continue
		}
		for _, v := range e.events {
			all = append(all, v.event)
		}
	}
	return all
}

// EventFilter selects events, oldest first.
type EventFilter struct {
	Tenant  string // "" = all
	Session string // "" = all
	Type    string // exact, or a prefix with a trailing "*"; "" = all
	After   string // an id
	Limit   int
}

const sqlEvents = `SELECT id, time, type, tenant, session, call, data FROM events
	WHERE id > ? AND (? = '' OR tenant = ?) AND (? = '' OR session = ?) AND substr(type, 1, ?) = ? ORDER BY id LIMIT ?`

// Events lists stored events.
func (s *Store) Events(ctx context.Context, f EventFilter) (_ []client.Event, err error) {
	defer naming(&err, "list events")
	b, err := s.settle(ctx)
	if err != nil {
		return nil, err
	}
	want, n := f.Type, 1<<20 // longer than any type: the whole must be equal
	if prefix, ok := strings.CutSuffix(f.Type, "*"); ok {
		want, n = prefix, len(prefix)
	} else if f.Type == "" {
		n = 0
	}
	all, err := list(ctx, &s.rd, sqlEvents, func(scan scanner) (client.Event, error) {
		var r eventRow
		err := scan(&r.id, &r.time, &r.typ, &r.tenant, &r.session, &r.call, &r.data)
		return r.event(), err
	}, f.After, f.Tenant, f.Tenant, f.Session, f.Session, n, want, f.Limit)
	if err != nil {
		return nil, err
	}
	if b != nil {
		if len(all) > 0 {
			f.After = all[len(all)-1].ID // it may have been moved in the meantime
		}
		for i := range b.events {
			if r := &b.events[i]; len(all) < f.Limit && r.matches(&f) {
				all = append(all, r.event())
			}
		}
	}
	return all, nil
}

func (e *eventRow) event() client.Event {
	return client.Event{
		ID: e.id, Type: e.typ, Time: time.UnixMicro(e.time).UTC(), Tenant: e.tenant, Session: e.session, Call: e.call, Data: e.data,
	}
}
