package egress

import (
	"net/netip"

	"github.com/toold/toold/internal/egress/guard"
)

// reasonAnew is why a connection is cut that rules are about now and that was not read.
const reasonAnew = "rules of http are about it now, and what it carries was not read: connect again"

// setUnder notes a request that is under way, by which revision of the rules it was judged; nil
// once it is over.
func (c *client) setUnder(r *Request, by uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.under = r; r != nil {
		c.revision.Store(by)
	}
}

// Rejudge judges all that is open again where the rules have changed, and cuts what they do not
// allow any more. It happens by itself within a second.
func (n *Network) Rejudge() {
	for _, c := range n.open() {
		n.rejudge(c)
	}
}

// rejudge leaves connections between two requests alone: the next one is judged.
func (n *Network) rejudge(c *client) {
	by := n.cfg.Gate.Revision()
	if c.revision.Load() == by {
		return
	}
	c.mu.Lock()
	rec, tunnel, under, address := c.rec, c.tunnel, c.under, c.address
	c.mu.Unlock()
	if rec == nil || tunnel == none && under == nil {
		return
	}
	r := rec.Request
	r.Standing = true
	if v := n.stands(c, r, tunnel, under, address); !v.Allow {
		c.deny(v)
		c.abort()
		return
	}
	c.revision.Store(by)
}

// stands is the verdict on what is open, by the rules of the moment. Nobody is asked.
func (n *Network) stands(c *client, r Request, tunnel kind, under *Request, address netip.AddrPort) Verdict {
	gate := n.cfg.Gate
	v := gate.Connect(c.ctx, r)
	if v.Allow && address.IsValid() {
		at := r
		at.Address = address.Addr()
		v = n.opens(c, at, address)
	}
	if v.Allow && under != nil {
		at := *under
		at.Standing = true
		return gate.HTTP(c.ctx, at)
	}
	read := gate.Reads(r)
	switch {
	case !v.Allow || tunnel == none:
	case tunnel == secret && read.TLS != nil:
		return *read.TLS
	case read.Only && !n.isTLS(r.Port), tunnel == request && read.Requests, tunnel == unread && (read.Requests || read.TLS != nil):
		return Verdict{Rule: read.Rule, Reason: reasonAnew}
	}
	return v
}

// opens is the verdict on the address of a connection that is open.
func (n *Network) opens(c *client, at Request, address netip.AddrPort) Verdict {
	v, how := n.cfg.Gate.Opens(at)
	switch how {
	case Refused:
		v.Allow = false
		return v
	case Asked:
		return n.cfg.Gate.Connect(c.ctx, at)
	}
	named := func(a netip.Addr) (bool, error) {
		at.Address = a
		_, how := n.cfg.Gate.Opens(at)
		return how == Named, nil
	}
	if err := guard.Control(named)("tcp", address.String(), nil); err != nil {
		return Verdict{Rule: v.Rule, Reason: err.Error()}
	}
	v.Allow = true
	return v
}
