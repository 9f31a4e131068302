// Package stream sends the events of a call to its listeners: as they happen, and again
// to those who reconnect.
package stream

import (
	"sync"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/plain"
)

const (
	// listenerBytes is how much a listener may lag behind, and one event more.
	listenerBytes = 1 << 20
	// listenerTime is how long output waits for a listener that lags, before
	// the listener is cut off. Nothing else waits. A busy host may keep one that
	// reads from it for longer than a second.
	listenerTime = 5 * time.Second
)

// Listener hands the events of a call to a function, which may block: its queue
// is bounded, and a goroutine of its own calls it.
type Listener struct {
	fn    func(client.Event)
	agent bool          // it holds a session's token
	cut   chan struct{} // closed when it was too slow
	ended chan struct{} // closed when fn is not called any more

	mu     sync.Mutex // guards the fields below
	queue  []client.Event
	bytes  int           // that were put and not yet delivered
	closed bool          // nothing more comes
	wake   chan struct{} // closed and renewed when something changes
}

// NewListener makes a listener that hands its events to fn.
func NewListener(fn func(client.Event)) *Listener {
	l := &Listener{fn: fn, cut: make(chan struct{}), ended: make(chan struct{}), wake: make(chan struct{})}
	go l.deliver()
	return l
}

func (l *Listener) wakeLocked() {
	close(l.wake)
	l.wake = make(chan struct{})
}

// deliver is the listener's goroutine.
func (l *Listener) deliver() {
	defer close(l.ended)
	for {
		l.mu.Lock()
		for len(l.queue) == 0 {
			wake := l.wake
			if l.closed {
				l.mu.Unlock()
				return
			}
			l.mu.Unlock()
			<-wake
			l.mu.Lock()
		}
		e := l.queue[0]
		l.queue[0] = client.Event{}
		l.queue = l.queue[1:]
		l.mu.Unlock()
		l.fn(e)
		l.mu.Lock()
		l.bytes -= len(e.Data)
		l.wakeLocked()
		l.mu.Unlock()
	}
}

// put adds an event. A listener that has more than enough is cut off, but for
// the last event of a call.
func (l *Listener) put(e client.Event, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if l.bytes > listenerBytes && !last {
		l.cutLocked()
		return
	}
	l.queue = append(l.queue, e)
	l.bytes += len(e.Data)
	l.wakeLocked()
}

func (l *Listener) cutLocked() {
	l.closed = true
	l.queue = nil
	close(l.cut)
	l.wakeLocked()
}

// await waits for room in the queue, at most listenerTime.
func (l *Listener) await() {
	var late <-chan time.Time
	for {
		l.mu.Lock()
		wake, full := l.wake, l.bytes > listenerBytes && !l.closed
		l.mu.Unlock()
		if !full {
			return
		}
		if late == nil {
			t := time.NewTimer(listenerTime)
			defer t.Stop()
			late = t.C
		}
		select {
		case <-wake:
		case <-late:
			return
		}
	}
}

// Close waits until what is queued was delivered, and lets nothing more in.
func (l *Listener) Close() {
	l.mu.Lock()
	l.closed = true
	l.wakeLocked()
	l.mu.Unlock()
	<-l.ended
}

// TooSlow is closed when the listener was cut off; never for no listener.
func (l *Listener) TooSlow() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.cut
}

// Sender sends the events of one call to those who listen to it. Output is sent by one
// goroutine at a time.
type Sender struct {
	// Event makes an event of the call.
	Event func(typ string, data any) client.Event
	// Hub hears of output, too.
	Hub *event.Hub
	// Split: stdout and stderr are apart.
	Split bool

	// carry is an unfinished UTF-8 sequence at the end of the last output event,
	// told the end of the last output that was sent; of stdout and stderr where
	// those are apart. They belong to the goroutine that takes the output.
	carry [2][]byte
	told  [2]int64

	mu        sync.Mutex // guards listeners
	listeners map[*Listener]struct{}
}

// Heard reports whether somebody listens.
func (s *Sender) Heard() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.listeners) > 0
}

// Tell sends an event to who listens to this call. It does not wait for them.
func (s *Sender) Tell(typ string, data any) { s.tellAs("", typ, data, nil) }

// TellApart is Tell for an event of which agents hear something else; nil: they hear the same.
func (s *Sender) TellApart(typ string, data, toAgent any) { s.tellAs("", typ, data, toAgent) }

// tellAs is TellApart for an event that a stream can be taken up after, by its id.
func (s *Sender) tellAs(id, typ string, data, toAgent any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.listeners) == 0 {
		return
	}
	e := s.Event(typ, data)
	e.ID = id
	ofAgents := e
	if toAgent != nil {
		ofAgents.Data = s.Event(typ, toAgent).Data
	}
	last := typ == string(client.CallCompleted) || typ == string(client.CallError)
	for l := range s.listeners {
		if l.agent {
			l.put(ofAgents, last)
		} else {
			l.put(e, last)
		}
	}
}

// pace lets output wait a moment for those who listen.
func (s *Sender) pace() {
	s.mu.Lock()
	all := make([]*Listener, 0, len(s.listeners))
	for l := range s.listeners {
		all = append(all, l)
	}
	s.mu.Unlock()
	for _, l := range all {
		l.await()
	}
}

// streamNames are the two streams of a split output, in the order of their data.
var streamNames = [2]string{"stdout", "stderr"}

// Output sends output that begins at offset of the whole. A UTF-8 sequence that is cut by
// the end of p waits for its rest, unless this is the last of it.
func (s *Sender) Output(offset int64, stderr bool, p []byte) {
	i, stream := 0, ""
	if s.Split {
		if stderr {
			i = 1
		}
		stream = streamNames[i]
		offset = s.told[i]
		s.told[i] += int64(len(p))
	}
	hub := s.Hub.WantsOutput()
	if !hub && !s.Heard() {
		s.carry[i] = nil
		return
	}
	p = append(s.carry[i], p...)
	offset -= int64(len(s.carry[i]))
	n := len(p) - plain.PartialRune(p)
	s.carry[i] = append([]byte(nil), p[n:]...)
	s.send(stream, offset, p[:n], hub)
}

// Flush sends what Output held back; total is the length of the whole.
func (s *Sender) Flush(total int64) {
	for i, p := range s.carry {
		if len(p) == 0 {
			continue
		}
		stream, end := "", total
		if s.Split {
			stream, end = streamNames[i], s.told[i]
		}
		s.carry[i] = nil
		s.send(stream, end-int64(len(p)), p, s.Hub.WantsOutput())
	}
}

func (s *Sender) send(stream string, offset int64, p []byte, hub bool) {
	if len(p) == 0 {
		return
	}
	chunk := client.NewOutput(stream, offset, p)
	s.pace()
	at := output.Position{offset + int64(len(p))}
	if s.Split {
		at = output.Position{s.told[0] - int64(len(s.carry[0])), s.told[1] - int64(len(s.carry[1]))}
	}
	s.tellAs(at.ID(s.Split), "output", chunk, nil)
	if hub {
		s.Hub.Publish([]client.Event{s.Event(client.EventCallOutput, chunk)})
	}
}

// Restore says how much of stdout and stderr an earlier daemon has sent.
func (s *Sender) Restore(told [2]int64) { s.told = told }

// Follow adds a listener, an agent or not. It first hears where the call is, which now
// says, when that has begun.
func (s *Sender) Follow(fn func(client.Event), agent bool, now func() *client.Call) *Listener {
	l := NewListener(fn)
	l.agent = agent
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listeners == nil {
		s.listeners = make(map[*Listener]struct{})
	}
	s.listeners[l] = struct{}{}
	if v := now(); v.Status != "" {
		l.put(s.Event(string(v.Status), v), false)
	}
	return l
}

// Unfollow takes a listener away. It returns when the listener has had all that
// was for it, or was cut off and hears nothing more.
func (s *Sender) Unfollow(l *Listener) {
	s.mu.Lock()
	delete(s.listeners, l)
	s.mu.Unlock()
	l.Close()
}
