package session

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/store"
)

const (
	// hubBuffer is how many events a reader may lag behind before it is dropped.
	hubBuffer = 1024
	// hubPage is how many stored events are read at a time.
	hubPage = 500
	// maxSubscribers bounds the event streams of one tenant.
	maxSubscribers = 256
)

// hub hands events to who listens. Stored events come from the store, after
// their commit and in the order of their ids; updates and output of running
// calls have no id, are not stored and only reach who listens at the moment.
type hub struct {
	store *store.Store
	// outputs counts subscribers that asked for output, so that the path of
	// output costs nothing while there are none.
	outputs atomic.Int32
	work    sync.WaitGroup // one goroutine for each subscriber

	mu     sync.Mutex // guards the fields below
	closed bool
	subs   map[*subscriber]struct{}
}

// subscriber is one event stream.
type subscriber struct {
	tenant  string
	filter  EventFilter
	events  chan client.Event
	dropped chan struct{} // closed when the hub lets go of it
}

func newHub(st *store.Store) *hub {
	return &hub{store: st, subs: make(map[*subscriber]struct{})}
}

// publish hands out events. It never blocks: a subscriber whose buffer is full
// is let go.
func (h *hub) publish(events []client.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		for _, e := range events {
			if !s.wants(e) {
				continue
			}
			select {
			case s.events <- e:
				continue
			default:
			}
			h.dropLocked(s)
			break
		}
	}
}

func (h *hub) dropLocked(s *subscriber) {
	if _, ok := h.subs[s]; !ok {
		return
	}
	delete(h.subs, s)
	if s.filter.Type == client.EventCallOutput {
		h.outputs.Add(-1)
	}
	close(s.dropped)
}

func (h *hub) drop(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropLocked(s)
}

func (s *subscriber) wants(e client.Event) bool {
	if e.Tenant != s.tenant || s.filter.Session != "" && e.Session != s.filter.Session {
		return false
	}
	if prefix, ok := strings.CutSuffix(s.filter.Type, "*"); ok {
		return strings.HasPrefix(e.Type, prefix) && e.Type != client.EventCallOutput
	}
	if s.filter.Type == "" {
		return e.Type != client.EventCallOutput
	}
	return e.Type == s.filter.Type
}

// subscribe starts a stream. What is stored is read after the live stream was
// joined, so nothing falls between the two.
func (h *hub) subscribe(ctx context.Context, tenant string, f EventFilter) (<-chan client.Event, error) {
	s := &subscriber{tenant: tenant, filter: f, events: make(chan client.Event, hubBuffer), dropped: make(chan struct{})}
	if err := h.join(s); err != nil {
		return nil, err
	}
	out := make(chan client.Event)
	go func() {
		defer h.work.Done()
		defer close(out)
		defer h.drop(s)
		last, ok := h.replay(ctx, s, out)
		switch {
		case ok && f.Stored:
			send(ctx, s, out, client.Event{Type: client.EventEnd})
		case ok:
			s.forward(ctx, last, out)
		}
	}()
	return out, nil
}

func (h *hub) join(s *subscriber) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for other := range h.subs {
		if other.tenant == s.tenant {
			n++
		}
	}
	if n >= maxSubscribers || h.closed {
		return &client.Error{Code: client.CodeOverloaded, Message: "too many event streams are open", Hint: "close some, then try again"}
	}
	h.subs[s] = struct{}{}
	h.work.Add(1)
	if s.filter.Type == client.EventCallOutput {
		h.outputs.Add(1)
	}
	return nil
}

// replay sends what is stored after the filter's id and returns the last id.
func (h *hub) replay(ctx context.Context, s *subscriber, out chan<- client.Event) (last string, ok bool) {
	last = s.filter.After
	if last == "" && !s.filter.Stored {
		return "", true
	}
	for {
		page, err := h.store.Events(ctx, store.EventFilter{
			Tenant: s.tenant, Session: s.filter.Session, Type: s.filter.Type, After: last, Limit: hubPage,
		})
		if err != nil {
			return "", false
		}
		for _, e := range page {
			if !send(ctx, s, out, e) {
				return "", false
			}
			last = e.ID
		}
		if len(page) < hubPage {
			return last, true
		}
	}
}

// forward sends live events, without those that replay has sent.
func (s *subscriber) forward(ctx context.Context, last string, out chan<- client.Event) {
	for {
		select {
		case e := <-s.events:
			if e.ID != "" && e.ID <= last {
				continue
			}
			if !send(ctx, s, out, e) {
				return
			}
		case <-s.dropped:
			return
		case <-ctx.Done():
			return
		}
	}
}

func send(ctx context.Context, s *subscriber, out chan<- client.Event, e client.Event) bool {
	select {
	case out <- e:
		return true
	case <-s.dropped:
		return false
	case <-ctx.Done():
		return false
	}
}

// close ends all streams.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	for s := range h.subs {
		h.dropLocked(s)
	}
	h.mu.Unlock()
	h.work.Wait()
}

// Events implements API.
func (m *Manager) Events(ctx context.Context, p Principal, f EventFilter) (<-chan client.Event, error) {
	if err := p.whole(); err != nil {
		return nil, err
	}
	if f.After != "" && !store.ValidID("evt_", f.After) {
		return nil, invalidRequest("%q is not the id of an event", shown(f.After))
	}
	if f.Session != "" {
		id, err := m.sessionID(ctx, p, f.Session)
		if err != nil {
			return nil, err
		}
		f.Session = id
	}
	if f.Stored {
		m.awaitTold() // what somebody has been told is on record
	}
	return m.hub.subscribe(ctx, p.Tenant, f)
}
