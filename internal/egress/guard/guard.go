// Package guard judges the addresses that connections of sessions are dialled at, when they
// are dialled: whatever a name resolved to before, no byte goes to an address that is not
// public unless a rule names it.
package guard

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"code.dny.dev/ssrf"

	"github.com/toold/toold/internal/endpoint"
)

// metadata are public addresses behind which clouds answer the host alone.
var metadata = []netip.Prefix{netip.MustParsePrefix("168.63.129.16/32")}

// RefusedError is an address that no rule allows.
type RefusedError struct {
	Address netip.AddrPort
	Why     error
}

// Error implements error.
func (e *RefusedError) Error() string {
	return "it leads to what is not a public address, and no line of the rules names it" // inside a session a name's address is not said
}

// Unwrap gives the kind of the address.
func (e *RefusedError) Unwrap() error { return e.Why }

// Control is for net.Dialer.Control. opens is asked about each address, and about those of IPv4 that
// it may lead to: an error refuses it, true lets it pass whatever it is, and of all others those pass
// that are public, and not this host's.
func Control(opens func(netip.Addr) (bool, error)) func(network, address string, c syscall.RawConn) error {
	public := ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(metadata...))
	return func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("dial %q: %w", address, err)
		}
		to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
		for _, a := range endpoint.Readings(to.Addr()) {
			open, err := opens(a)
			if err == nil && !open {
				if err = public.SafeAddr(a); err == nil {
					err = notOwn(a)
				}
				if err != nil {
					err = &RefusedError{to, err}
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// notOwn refuses the addresses of this host.
func notOwn(a netip.Addr) error {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("read the host's own addresses: %w", err)
	}
	for _, o := range own {
		if p, err := netip.ParsePrefix(o.String()); err != nil || p.Addr().Unmap() == a {
			return fmt.Errorf("the host's own address %s", o)
		}
	}
	return nil
}
