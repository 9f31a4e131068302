package endpoint

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Pattern is what a rule says of hosts and ports:
//
//   - every host
//     example.com          this name, and none below it
//     *.example.com        every name below it, at any depth
//     192.0.2.1, [2001:db8::1], 10.20.0.0/16, [2001:db8::/32]
//
// and behind it the port: ":22", or ":*" for every port. Without one, the pattern is about
// ports 80 and 443 where it opens, and about every port where it closes.
type Pattern struct {
	text   string
	every  bool         // every host
	name   string       // with below: the names below it
	below  bool         //
	prefix netip.Prefix // of addresses
	port   uint16       // 0: not given
	ports  bool         // every port
}

// ParsePattern reads a pattern. A host must stand in its one spelling, so that a pattern
// looks like what it matches.
func ParsePattern(text string) (Pattern, error) {
	p := Pattern{text: text}
	host, port, hasPort, err := splitPattern(text)
	if err != nil {
		return Pattern{}, err
	}
	if hasPort {
		if p.ports = port == "*"; !p.ports {
			if p.port, err = parsePort(port); err != nil {
				return Pattern{}, fmt.Errorf("%w, or * for every port", err)
			}
		}
	}
	if err := p.setHost(host); err != nil {
		return Pattern{}, err
	}
	return p, nil
}

// splitPattern divides a pattern into host and port. An IPv6 address stands in brackets.
func splitPattern(text string) (host, port string, hasPort bool, err error) {
	if rest, ok := strings.CutPrefix(text, "["); ok {
		host, rest, ok = strings.Cut(rest, "]")
		if port, hasPort = strings.CutPrefix(rest, ":"); !ok || rest != "" && !hasPort || !strings.Contains(host, ":") {
			return "", "", false, fmt.Errorf("%s is not an IPv6 address in brackets: write [2001:db8::1], [2001:db8::/32] or [2001:db8::1]:443", quoted(text))
		}
		return host, port, hasPort, nil
	}
	if strings.Contains(text, "://") {
		return "", "", false, fmt.Errorf("%s is a URL: write the host alone, such as example.com or example.com:443", quoted(text))
	}
	host, port, hasPort = strings.Cut(text, ":")
	if strings.Contains(port, ":") {
		return "", "", false, fmt.Errorf("%s: an IPv6 address stands in brackets, such as [2001:db8::1] or [2001:db8::/32]", quoted(text))
	}
	return host, port, hasPort, nil
}

func (p *Pattern) setHost(host string) error {
	switch {
	case host == "*":
		p.every = true
		return nil
	case strings.Contains(host, "/"):
		return p.setPrefix(host)
	}
	name := host
	if rest, ok := strings.CutPrefix(host, "*."); ok {
		p.below, name = true, rest
	}
	if strings.ContainsAny(name, "*?") {
		return fmt.Errorf("%s: * stands alone, or for whole labels at the start of a name (*.example.com), or for every port (:*)", quoted(host))
	}
	h, err := ParseHost(name)
	if err != nil {
		return err
	}
	if h.String() != name {
		return fmt.Errorf("%s is spelled in another way: write %s", quoted(name), quoted(h.String()))
	}
	a, isAddr := h.Addr()
	switch {
	case isAddr && p.below:
		return fmt.Errorf("%s: an address has no names below it; write a CIDR such as 10.20.0.0/16", quoted(host))
	case isAddr:
		p.prefix = netip.PrefixFrom(a, a.BitLen())
	default:
		p.name = h.String()
	}
	return nil
}

func (p *Pattern) setPrefix(text string) error {
	n, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return fmt.Errorf("%s is not a CIDR: write 10.20.0.0/16 or [2001:db8::/32]; a pattern of hosts has no path", quoted(text))
	case n.Addr().Is4In6():
		return fmt.Errorf("%s: write the addresses as IPv4", quoted(text))
	case n.Masked() != n || n.String() != text:
		return fmt.Errorf("%s is spelled in another way: write %s", quoted(text), quoted(n.Masked().String()))
	}
	p.prefix = n
	return nil
}

// String gives the text that the pattern was read from.
func (p Pattern) String() string { return p.text }

// Prefix gives the addresses of a pattern that is about addresses.
func (p Pattern) Prefix() (netip.Prefix, bool) { return p.prefix, p.prefix.IsValid() }

// Port gives the port that the pattern names; 0 for none, or for every one.
func (p Pattern) Port() uint16 { return p.port }

// EveryPort reports whether the pattern is about every port, where it opens (which it says
// by ":*") or where it closes.
func (p Pattern) EveryPort(opens bool) bool { return p.ports || p.port == 0 && !opens }

// Match reports whether the pattern is about e. opens says whether the rule allows, or
// asks, rather than denies.
func (p Pattern) Match(e Endpoint, opens bool) bool {
	return p.matchPort(e.Port, opens) && p.matchHost(e.Host)
}

func (p Pattern) matchPort(port uint16, opens bool) bool {
	return p.EveryPort(opens) || p.port == port || p.port == 0 && isWeb(port)
}

func (p Pattern) matchHost(h Host) bool {
	a, isAddr := h.Addr()
	switch {
	case p.every:
		return true
	case p.prefix.IsValid():
		return isAddr && p.prefix.Contains(a)
	case isAddr || h.name == "":
		return false
	case p.below:
		return strings.HasSuffix(h.name, "."+p.name)
	}
	return h.name == p.name
}

// Covers reports whether p is about all that q is about; each with what its rule does.
func (p Pattern) Covers(opens bool, q Pattern, qOpens bool) bool {
	return p.coversPorts(opens, q, qOpens) && p.coversHosts(q)
}

func (p Pattern) coversPorts(opens bool, q Pattern, qOpens bool) bool {
	switch {
	case p.EveryPort(opens):
		return true
	case q.EveryPort(qOpens):
		return false
	case q.port != 0:
		return p.matchPort(q.port, opens)
	}
	return p.port == 0
}

func (p Pattern) coversHosts(q Pattern) bool {
	switch {
	case p.every:
		return true
	case q.every:
		return false
	case p.prefix.IsValid() || q.prefix.IsValid():
		return p.prefix.IsValid() && q.prefix.IsValid() && p.prefix.Bits() <= q.prefix.Bits() && p.prefix.Contains(q.prefix.Addr())
	case p.below:
		return strings.HasSuffix(q.name, "."+p.name) || q.below && q.name == p.name
	}
	return !q.below && q.name == p.name
}

// errNotURL is what patterns of requests look like.
var errNotURL = errors.New(`write METHOD URL, such as "GET https://example.com/path/*", "* https://*.example.com/*" or "*"`)
