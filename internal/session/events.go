package session

import (
	"context"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/store"
)

// Events tells what happens.
type Events struct{ *roster }

// Events implements server.Events.
func (e *Events) Events(ctx context.Context, p auth.Principal, f event.Filter) (<-chan client.Event, error) {
	if err := p.Whole(); err != nil {
		return nil, err
	}
	if f.After != "" && !store.ValidID("evt_", f.After) {
		return nil, fault.Invalid.Errorf("%q is not the id of an event", shown(f.After))
	}
	if f.Session != "" {
		id, err := e.SessionID(ctx, p, f.Session)
		if err != nil {
			return nil, err
		}
		f.Session = id
	}
	if f.Stored {
		e.AwaitTold() // what somebody has been told is on record
	}
	return e.hub.Subscribe(ctx, p.Of(), f)
}
