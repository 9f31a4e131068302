// Package event delivers events to listeners: stored events and momentary ones,
// in one stream.
package event

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/store"
)

const (
	// Buffer is how many events a reader may lag behind before it is dropped.
	Buffer = 1024
	// pageLen is how many stored events are read at a time.
	pageLen = 500
	// MaxStreams bounds the event streams of one tenant.
	MaxStreams = 256
)

// Filter selects events.
type Filter struct {
	Session string
	Type    string // exact, or a prefix with a trailing "*"
	After   string // the id of the last event that was seen; "" for from now on
	// Stored ends the stream after what is on record, with a client.EventEnd.
	Stored bool
}

// New makes an event of a session, or of a call of it where call is not "". data is
// one of our own structs, which JSON can say.
func New(typ, tenant, session, call string, data any) client.Event {
	b, err := json.Marshal(data)
	if err != nil {
		b = nil // only our own plain structs come here
	}
	return client.Event{Type: typ, Time: time.Now().UTC(), Tenant: tenant, Session: session, Call: call, Data: b}
}

// Hub hands events to who listens. Stored events come from the store, after
// their commit and in the order of their ids; updates and output of running
// calls have no id, are not stored and only reach who listens at the moment.
type Hub struct {
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
	filter  Filter
	events  chan client.Event
	dropped chan struct{} // closed when the hub lets go of it
}

// NewHub makes a hub that reads what is stored from st. Whoever makes it has st
// tell Publish of what it stores.
func NewHub(st *store.Store) *Hub {
	return &Hub{store: st, subs: make(map[*subscriber]struct{})}
}

// Publish hands out events. It never blocks: a subscriber whose buffer is full
// is let go.
func (h *Hub) Publish(events []client.Event) {
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

// WantsOutput reports whether anybody listens to the output of running calls.
func (h *Hub) WantsOutput() bool { return h.outputs.Load() > 0 }

func (h *Hub) dropLocked(s *subscriber) {
	if _, ok := h.subs[s]; !ok {
		return
	}
	delete(h.subs, s)
	if s.filter.Type == client.EventCallOutput {
		h.outputs.Add(-1)
	}
	close(s.dropped)
}

func (h *Hub) drop(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropLocked(s)
}

func (s *subscriber) wants(e client.Event) bool {
	if s.tenant != "" && e.Tenant != s.tenant || s.filter.Session != "" && e.Session != s.filter.Session {
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

// Subscribe starts a stream of a tenant's events, of all tenants' for "", until ctx ends. The channel is closed
// when its reader is too slow. What is stored is read after the live stream was
// joined, so nothing falls between the two.
func (h *Hub) Subscribe(ctx context.Context, tenant string, f Filter) (<-chan client.Event, error) {
	s := &subscriber{tenant: tenant, filter: f, events: make(chan client.Event, Buffer), dropped: make(chan struct{})}
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

func (h *Hub) join(s *subscriber) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for other := range h.subs {
		if other.tenant == s.tenant {
			n++
		}
	}
	if n >= MaxStreams || h.closed {
		return fault.Overloaded.Errorf("too many event streams are open").Next("close some, then try again")
	}
	h.subs[s] = struct{}{}
	h.work.Add(1)
	if s.filter.Type == client.EventCallOutput {
		h.outputs.Add(1)
	}
	return nil
}

// replay sends what is stored after the filter's id and returns the last id.
func (h *Hub) replay(ctx context.Context, s *subscriber, out chan<- client.Event) (last string, ok bool) {
	last = s.filter.After
	if last == "" && !s.filter.Stored {
		return "", true
	}
	for {
		page, err := h.store.Events(ctx, store.EventFilter{
			Tenant: s.tenant, Session: s.filter.Session, Type: s.filter.Type, After: last, Limit: pageLen,
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
		if len(page) < pageLen {
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

// Close ends all streams.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	for s := range h.subs {
		h.dropLocked(s)
	}
	h.mu.Unlock()
	h.work.Wait()
}
