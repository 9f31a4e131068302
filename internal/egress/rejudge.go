package egress

import (
	"fmt"
	"net/netip"

	"github.com/toold/toold/internal/egress/guard"
)

// reasonAnew is why a connection is cut that rules are about now and that was not read.
const reasonAnew = "rules of http are about it now, and what it carries was not read: connect again"

// revision changes with the rules, and with the ports of TLS.
func (n *Network) revision() uint64 { return n.cfg.Gate.Revision() + n.moved.Load() }

// stand notes what is open from now on, by which revision of the rules it was judged, and judges it
// again where these have changed since. It reports whether the connection stands.
func (c *client) stand(tunnel kind, under *Request, by uint64) bool {
	c.mu.Lock()
	c.open = &standing{tunnel, under, min(by, c.open.by)}
	c.mu.Unlock()
	c.n.rejudge(c)
	return c.ctx.Err() == nil
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
	for {
		by := n.revision()
		c.mu.Lock()
		rec, open, last, address := c.rec, c.open, c.open.by, c.address
		c.mu.Unlock()
		if last == by || rec == nil || open.tunnel == none && open.under == nil {
			return
		}
		r := rec.Request
		r.Standing = true
		if c.settle(open, by, n.stands(c, r, open, address)) {
			return
		}
	}
}

// settle notes the verdict on what was open, and cuts it where it is denied. It reports false where
// something else is open by now.
func (c *client) settle(open *standing, by uint64, v Verdict) bool {
	c.mu.Lock()
	if c.open != open || c.rec == nil {
		c.mu.Unlock()
		return false
	}
	if open.by = by; v.Allow {
		c.mu.Unlock()
		return true
	}
	c.rec.Verdict = v
	c.mu.Unlock()
	c.abort()
	return true
}

// stands is the verdict on what is open, by the rules of the moment. Nobody is asked.
func (n *Network) stands(c *client, r Request, open *standing, address netip.AddrPort) Verdict {
	gate := n.cfg.Gate
	v := gate.Connect(c.ctx, r)
	if v.Allow && address.IsValid() {
		at := r
		at.Address = address.Addr()
		v = n.opens(c, at, address)
	}
	if v.Allow && open.under != nil {
		at := *open.under
		at.Standing = true
		return gate.HTTP(c.ctx, at)
	}
	read, tls := n.reads(r)
	switch tunnel := open.tunnel; {
	case !v.Allow || tunnel == none:
	case (tunnel == secret || tunnel == named) && read.TLS != nil:
		return *read.TLS
	case tls && tunnel != named:
		return Verdict{Reason: fmt.Sprintf("on port %d only TLS passes now, and to which name was not looked at: connect again", r.Port)}
	case read.Only, tunnel == request && read.Requests, tunnel == unread && (read.Requests || read.TLS != nil):
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
