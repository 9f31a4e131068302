package session

import (
	"sync"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call/output"
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

// errTooSlow says that a listener was cut off; what it missed is in the output.
var errTooSlow = &client.Error{
	Code: client.CodeOverloaded, Message: "the call's events were not read fast enough",
	Hint: "the call goes on; ask for it and for its output",
}

// listener hands the events of a call to a function, which may block: its queue
// is bounded, and a goroutine of its own calls it.
type listener struct {
	fn    func(client.Event)
	cut   chan struct{} // closed when it was too slow
	ended chan struct{} // closed when fn is not called any more

	mu     sync.Mutex // guards the fields below
	queue  []client.Event
	bytes  int           // that were put and not yet delivered
	closed bool          // nothing more comes
	wake   chan struct{} // closed and renewed when something changes
}

func newListener(fn func(client.Event)) *listener {
	l := &listener{fn: fn, cut: make(chan struct{}), ended: make(chan struct{}), wake: make(chan struct{})}
	go l.deliver()
	return l
}

func (l *listener) wakeLocked() {
	close(l.wake)
	l.wake = make(chan struct{})
}

// deliver is the listener's goroutine.
func (l *listener) deliver() {
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
func (l *listener) put(e client.Event, last bool) {
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

func (l *listener) cutLocked() {
	l.closed = true
	l.queue = nil
	close(l.cut)
	l.wakeLocked()
}

// await waits for room in the queue, at most listenerTime.
func (l *listener) await() {
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

// close waits until what is queued was delivered, and lets nothing more in.
func (l *listener) close() {
	l.mu.Lock()
	l.closed = true
	l.wakeLocked()
	l.mu.Unlock()
	<-l.ended
}

// tooSlow is closed when the listener was cut off; never for no listener.
func (l *listener) tooSlow() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.cut
}

// heard reports whether somebody listens.
func (c *call) heard() bool {
	c.listen.Lock()
	defer c.listen.Unlock()
	return len(c.listeners) > 0
}

// tellStatus sends what the call is now to who listens, if anybody does.
func (c *call) tellStatus() {
	if c.heard() {
		v := c.snapshot()
		c.tell(string(v.Status), v)
	}
}

// tell sends an event to who listens to this call. It does not wait for them.
func (c *call) tell(typ string, data any) { c.tellAs("", typ, data) }

// tellAs is tell for an event that a stream can be taken up after, by its id.
func (c *call) tellAs(id, typ string, data any) {
	c.listen.Lock()
	defer c.listen.Unlock()
	if len(c.listeners) == 0 {
		return
	}
	e := c.s.event(typ, data)
	e.ID, e.Call = id, c.id
	last := typ == string(client.CallCompleted) || typ == string(client.CallError)
	for l := range c.listeners {
		l.put(e, last)
	}
}

// pace lets output wait a moment for those who listen.
func (c *call) pace() {
	c.listen.Lock()
	all := make([]*listener, 0, len(c.listeners))
	for l := range c.listeners {
		all = append(all, l)
	}
	c.listen.Unlock()
	for _, l := range all {
		l.await()
	}
}

// streamNames are the two streams of a split output, in the order of their data.
var streamNames = [2]string{"stdout", "stderr"}

// tellOutput sends output to who listens. A UTF-8 sequence that is cut by the
// end of p waits for its rest, unless this is the last of it.
func (c *call) tellOutput(offset int64, stderr bool, p []byte) {
	i, stream := 0, ""
	if c.split {
		if stderr {
			i = 1
		}
		stream = streamNames[i]
		offset = c.told[i]
		c.told[i] += int64(len(p))
	}
	hub := c.s.m.hub.WantsOutput()
	if !hub && !c.heard() {
		c.carry[i] = nil
		return
	}
	p = append(c.carry[i], p...)
	offset -= int64(len(c.carry[i]))
	n := len(p) - plain.PartialRune(p)
	c.carry[i] = append([]byte(nil), p[n:]...)
	c.sendOutput(stream, offset, p[:n], hub)
}

// flushOutput sends what tellOutput held back.
func (c *call) flushOutput() {
	for i, p := range c.carry {
		stream, end := "", c.out.Offset()
		if c.split {
			stream, end = streamNames[i], c.told[i]
		}
		c.carry[i] = nil
		c.sendOutput(stream, end-int64(len(p)), p, c.s.m.hub.WantsOutput())
	}
}

func (c *call) sendOutput(stream string, offset int64, p []byte, hub bool) {
	if len(p) == 0 {
		return
	}
	chunk := client.NewOutput(stream, offset, p)
	c.pace()
	at := output.Position{offset + int64(len(p))}
	if c.split {
		at = output.Position{c.told[0] - int64(len(c.carry[0])), c.told[1] - int64(len(c.carry[1]))}
	}
	c.tellAs(at.ID(c.split), "output", chunk)
	if hub {
		e := c.s.event(client.EventCallOutput, chunk)
		e.Call = c.id
		c.s.m.hub.Publish([]client.Event{e})
	}
}

// follow adds a listener; nil adds none. It first hears where the call is, when
// that has begun.
func (c *call) follow(fn func(client.Event)) *listener {
	if fn == nil {
		return nil
	}
	l := newListener(fn)
	c.listen.Lock()
	defer c.listen.Unlock()
	if c.listeners == nil {
		c.listeners = make(map[*listener]struct{})
	}
	c.listeners[l] = struct{}{}
	if v := c.snapshot(); v.Status != "" {
		e := c.s.event(string(v.Status), v)
		e.Call = c.id
		l.put(e, false)
	}
	return l
}

// unfollow takes a listener away. It returns when the listener has had all that
// was for it, or was cut off and hears nothing more.
func (c *call) unfollow(l *listener) {
	if l == nil {
		return
	}
	c.listen.Lock()
	delete(c.listeners, l)
	c.listen.Unlock()
	l.close()
}
