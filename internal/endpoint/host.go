// Package endpoint gives hosts, ports and URLs one spelling each, and has the patterns that
// rules are written in. Every text that it takes may come from a sandbox: a text that could
// mean one host to a rule and another to a program is refused.
package endpoint

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/toold/toold/internal/plain"
)

// maxHost bounds the text of a host in bytes, before anything is made of it. A name in
// ASCII has at most 253.
const maxHost = 1024

// Host is a host in its one spelling: a name in lower-case ASCII without a trailing dot, or
// an address. The zero Host is none.
type Host struct {
	name string
	addr netip.Addr
}

// String gives the spelling: api.example.com, 192.0.2.1, 2001:db8::1 (without brackets).
func (h Host) String() string {
	if h.addr.IsValid() {
		return h.addr.String()
	}
	return h.name
}

// Addr gives the address of a host that is one.
func (h Host) Addr() (netip.Addr, bool) { return h.addr, h.addr.IsValid() }

// HostOf is the host that an address is. An IPv4 address inside IPv6 is the IPv4 address.
func HostOf(a netip.Addr) Host { return Host{addr: a.Unmap().WithZone("")} }

// ParseHost reads a host as programs write it: a name in any case, in Unicode or in
// punycode, with a trailing dot or without; IPv4 in the forms that inet_aton takes
// (2130706433, 0x7f.1, 0177.0.0.1); IPv6 with brackets or without, but without a zone.
func ParseHost(text string) (Host, error) {
	if text == "" {
		return Host{}, errors.New("the host is empty: write a name or an address")
	}
	if len(text) > maxHost {
		return Host{}, fmt.Errorf("a host has %d bytes; at most %d", len(text), maxHost)
	}
	inner, bracketed := strings.CutPrefix(text, "[")
	if bracketed {
		var closed bool
		if inner, closed = strings.CutSuffix(inner, "]"); !closed || !strings.Contains(inner, ":") {
			return Host{}, fmt.Errorf("%s is not an address in brackets: write [2001:db8::1]", quoted(text))
		}
	}
	if strings.Contains(inner, ":") {
		a, err := netip.ParseAddr(inner)
		if err != nil || a.Zone() != "" {
			return Host{}, fmt.Errorf("%s is not an IPv6 address without a zone", quoted(text))
		}
		return HostOf(a), nil
	}
	return parseName(text)
}

func parseName(text string) (Host, error) {
	name, err := toASCII(text)
	if err != nil {
		return Host{}, fmt.Errorf("%s is not the name of a host: %w", quoted(text), err)
	}
	labels := strings.Split(name, ".")
	if numeric(labels[len(labels)-1]) {
		a, ok := oldIPv4(labels)
		if !ok {
			return Host{}, fmt.Errorf("%s ends like an IPv4 address but is none: write it as 192.0.2.1", quoted(text))
		}
		return Host{addr: a}, nil
	}
	if len(name) > 253 {
		return Host{}, fmt.Errorf("the name %s has %d bytes; at most 253", quoted(text), len(name))
	}
	return Host{name: name}, nil
}

// names maps Unicode to what is looked up. It refuses what it would have to guess.
var names = idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(true),
	idna.ValidateLabels(true), idna.CheckHyphens(false), idna.CheckJoiners(true), idna.BidiRule())

// toASCII gives a name its one spelling and checks each label.
func toASCII(text string) (string, error) {
	if !utf8.ValidString(text) {
		return "", errors.New("it is not UTF-8")
	}
	name := strings.ToLower(text)
	if strings.ContainsFunc(text, func(r rune) bool { return r >= 0x80 }) || strings.Contains(name, "xn--") {
		var err error
		if name, err = names.ToASCII(text); err != nil {
			return "", errors.New("its characters cannot stand in a name")
		}
	}
	name = strings.TrimSuffix(name, ".")
	for label := range strings.SplitSeq(name, ".") {
		switch {
		case label == "":
			return "", errors.New("a part between two dots is empty")
		case len(label) > 63:
			return "", errors.New("a part between two dots has more than 63 bytes")
		case label[0] == '-' || label[len(label)-1] == '-':
			return "", errors.New("a part between two dots begins or ends with -")
		}
		if i := strings.IndexFunc(label, func(r rune) bool { return !isLabelRune(r) }); i >= 0 {
			return "", errors.New("it has letters, digits, -, _ and dots, and nothing else")
		}
	}
	return name, nil
}

func isLabelRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_'
}

// numeric reports whether a name that ends with this label is read as an IPv4 address by
// programs: no top-level domain is a number.
func numeric(label string) bool {
	digits := "0123456789"
	if rest, hex := strings.CutPrefix(label, "0x"); hex {
		label, digits = rest, "0123456789abcdef"
	}
	return strings.Trim(label, digits) == ""
}

// oldIPv4 reads an address as inet_aton does: one to four numbers, of which the last fills
// the bytes that are left. Numbers may be octal (017) or hexadecimal (0xf).
func oldIPv4(parts []string) (netip.Addr, bool) {
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var all uint64
	for i, p := range parts {
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (4 - i)
		}
		base, digits := 10, p
		if rest, hex := strings.CutPrefix(p, "0x"); hex {
			base, digits = 16, rest
		} else if len(p) > 1 && p[0] == '0' {
			base, digits = 8, p[1:]
		}
		n, err := strconv.ParseUint(digits, base, bits)
		if err != nil {
			return netip.Addr{}, false
		}
		all = all<<bits | n
	}
	return netip.AddrFrom4([4]byte{byte(all >> 24), byte(all >> 16), byte(all >> 8), byte(all)}), true
}

// Endpoint is a host and a port.
type Endpoint struct {
	Host Host
	Port uint16
}

// String gives the one spelling, with brackets around an IPv6 address.
func (e Endpoint) String() string { return e.Host.url() + ":" + strconv.Itoa(int(e.Port)) }

// url is the host as it stands before a port.
func (h Host) url() string {
	if h.addr.Is6() {
		return "[" + h.String() + "]"
	}
	return h.String()
}

// Parse reads HOST:PORT. The port is always there.
func Parse(text string) (Endpoint, error) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 || strings.Contains(text[:i], ":") && !strings.HasPrefix(text, "[") {
		return Endpoint{}, fmt.Errorf("%s is not HOST:PORT: write example.com:443 or [2001:db8::1]:443", quoted(text))
	}
	port, err := parsePort(text[i+1:])
	if err != nil {
		return Endpoint{}, err
	}
	host, err := ParseHost(text[:i])
	if err != nil {
		return Endpoint{}, err
	}
	return Endpoint{host, port}, nil
}

func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || text[0] == '0' || text[0] == '+' {
		return 0, fmt.Errorf("%s is not a port: write a number from 1 to 65535", quoted(text))
	}
	return uint16(n), nil
}

// quoted shows a hostile text.
func quoted(s string) string { return strconv.Quote(plain.Cut(s, 80)) }

// webPorts are the ports that a pattern without one allows.
var webPorts = []uint16{80, 443}

func isWeb(port uint16) bool { return slices.Contains(webPorts, port) }
