package inside

import (
	"time"

	"github.com/toold/toold/internal/wire"
)

// attachment is an exchange that a connection has with a call. What there is for
// it is sent by one goroutine at a time, which ends when there is nothing more:
// most calls have only their end to send, which their own goroutine does. No
// other call waits for a connection that takes nothing. The fields below peer and
// id are guarded by the call's mu.
type attachment struct {
	peer *peer
	id   uint64

	sent     int64
	limit    int64
	offered  bool
	granted  bool
	detached bool // answer so and go
	gone     bool // somebody else is attached, or the connection is lost
	busy     bool // somebody sends, and looks again before it stops
	over     bool // nothing is sent any more
	lastMeta time.Time
	later    *time.Timer // stirs when the next metadata may be sent; nil without
}

// attach makes a the one that is sent to.
func (c *call) attach(a *attachment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.at; old != nil {
		old.gone = true
		c.stir(old)
	}
	c.at = a
	c.stir(a)
}

// update changes the call, wakes who waits for room, and sends a, which may be
// nil, what there is for it now.
func (c *call) update(a *attachment, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	c.ring.cond.Broadcast()
	c.stir(a)
}

// stir sends a what there is for it, if anything. The caller holds mu.
func (c *call) stir(a *attachment) {
	if a == nil || a.busy || a.over || !c.pending(a) {
		return
	}
	a.busy = true
	a.peer.wg.Go(func() { c.serve(a) })
}

// pending reports whether send would do anything for a now. The caller holds mu.
func (c *call) pending(a *attachment) bool {
	if a.detached || a.gone || c.meta != nil || c.in.wants(a) {
		return true
	}
	if p, _ := c.ring.next(a.sent, a.limit); len(p) > 0 {
		return true
	}
	return c.finished && a.sent == c.ring.end
}

// serveNow is stir without another goroutine.
func (c *call) serveNow() {
	c.mu.Lock()
	a := c.at
	mine := a != nil && !a.busy && !a.over
	if mine {
		a.busy = true
	}
	c.mu.Unlock()
	if mine {
		c.serve(a)
	}
}

// serve sends a all that there is for it.
func (c *call) serve(a *attachment) {
	c.mu.Lock()
	err := c.send(a)
	a.busy = false
	over := a.over || err != nil
	if over {
		a.over = true
		if a.later != nil {
			a.later.Stop()
		}
	}
	c.mu.Unlock()
	if over {
		a.peer.leave(a.id, err)
	}
}

// send returns when there is nothing more to send now. The caller holds mu.
func (c *call) send(a *attachment) error {
	for {
		switch {
		case a.detached: // asked before gone: the exchange needs its last message
			a.over = true
			return c.write(a, wire.Head{Kind: wire.KindDetached, ID: a.id}, nil)
		case a.gone:
			a.over = true
			return nil
		}
		if p, stderr := c.ring.next(a.sent, a.limit); len(p) > 0 {
			h := wire.Head{Kind: wire.KindOutput, ID: a.id, N: a.sent, Flag: stderr}
			// Before it is written: it may be acknowledged before write returns.
			c.most = max(c.most, a.sent+int64(len(p)))
			if err := c.write(a, h, p); err != nil {
				return err
			}
			a.sent += int64(len(p))
			continue
		}
		if c.in.wants(a) {
			c.in.told = c.in.want
			if err := c.write(a, wire.Head{Kind: wire.KindWant, ID: a.id, N: c.in.told}, nil); err != nil {
				return err
			}
			continue
		}
		complete := c.finished && a.sent == c.ring.end
		if c.meta != nil {
			if !complete && !c.metadataDue(a) {
				return nil
			}
			m := c.meta
			c.meta, a.lastMeta = nil, time.Now()
			if err := c.write(a, wire.Head{Kind: wire.KindMetadata, ID: a.id}, m); err != nil {
				return err
			}
			continue
		}
		switch {
		case !complete || a.offered && !a.granted:
			return nil
		case len(c.payload) <= wire.MaxInline || a.granted:
			a.over = true
			return c.sendFinal(a)
		}
		a.offered = true
		if err := c.write(a, wire.Head{Kind: wire.KindOffer, ID: a.id, N: int64(len(c.payload))}, nil); err != nil {
			return err
		}
	}
}

// metadataDue reports whether an update may be sent. When not, it will be as soon
// as it may.
func (c *call) metadataDue(a *attachment) bool {
	wait := metadataEvery - time.Since(a.lastMeta)
	if wait <= 0 {
		return true
	}
	if a.later == nil {
		a.later = time.AfterFunc(wait, func() { c.update(a, func() {}) })
	} else {
		a.later.Reset(wait)
	}
	return false
}

// write sends one frame without holding mu.
func (c *call) write(a *attachment, h wire.Head, body []byte) error {
	c.mu.Unlock()
	err := a.peer.out.Write(h, body)
	c.mu.Lock()
	return err
}

func (c *call) sendFinal(a *attachment) error {
	f := c.final
	f.OutputEnd = c.ring.end
	if len(c.payload) <= wire.MaxInline {
		f.Payload = c.payload
	} else {
		for at := 0; at < len(c.payload); at += wire.MaxChunk {
			if a.gone || a.detached {
				break
			}
			part := c.payload[at:min(at+wire.MaxChunk, len(c.payload))]
			if err := c.write(a, wire.Head{Kind: wire.KindChunk, ID: a.id, N: int64(at)}, part); err != nil {
				return err
			}
		}
	}
	switch {
	case a.detached:
		return c.write(a, wire.Head{Kind: wire.KindDetached, ID: a.id}, nil)
	case a.gone:
		return nil
	}
	body, err := wire.Marshal(f)
	if err != nil {
		return err
	}
	return c.write(a, wire.Head{Kind: wire.KindDone, ID: a.id}, body)
}
