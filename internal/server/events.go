package server

import (
	"context"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/event"
)

// Events tells what happens. *session.Events implements it.
type Events interface {
	// Events streams what happens from after the given event id on (from now on
	// when ""), until ctx ends. The channel is closed when the reader is too slow.
	Events(ctx context.Context, p auth.Principal, f event.Filter) (<-chan client.Event, error)
}

// eventRoutes are the handlers of routes about events.
type eventRoutes struct{ *Server }

// events streams what happens until the client goes, the daemon stops, or the
// client is too slow. It can then take up the stream with Last-Event-ID. What is on
// record alone ends with an event that says so: a stream that ends without it has
// been cut off.
func (s eventRoutes) events(x *exchange, r *request) error {
	f := event.Filter{
		Session: r.query.Get("session"), Type: r.query.Get("type"), After: r.Header.Get("Last-Event-ID"), Stored: r.flag("stored"),
	}
	if f.After != "" && eventID.wrong(f.After) != "" {
		return invalid("Last-Event-ID is not the id of an event", "such ids begin with evt_")
	}
	if f.Type != "" && strings.IndexFunc(strings.TrimSuffix(f.Type, "*"), notInType) >= 0 {
		return invalid("type is not the type of an event", "such as call.completed, or call.* for all of calls")
	}
	ch, err := s.cfg.API.Events.Events(r.Context(), r.who, f)
	if err != nil {
		return err
	}
	out := &sse{s: s.Server, x: x}
	defer out.close()
	out.open()
	defer out.beating()()
	for e := range ch {
		data, err := encode(e)
		if err != nil {
			return err
		}
		if out.write(e.ID, e.Type, data) != nil {
			return nil // the client is gone or too slow
		}
	}
	return nil
}

func notInType(c rune) bool { return (c < 'a' || c > 'z') && c != '.' && c != '_' }
