package endpoint

import (
	"net/netip"
	"slices"
)

// layout says where addresses of IPv6 have one of IPv4 that a gateway, a tunnel or a host takes
// them for.
type layout struct {
	prefix netip.Prefix
	id     []byte // of the interface, the first half of it; nil for any
	at     [4]int // the bytes of the IPv4 address
	turned bool   // its bits are inverted
	// several: an address of the prefix is in one of several layouts, and in the others by chance.
	several bool
}

// layouts are all that are known: the IPv4-compatible and IPv4-translated forms (RFC 4291, RFC 2765),
// NAT64 (RFC 6052, and RFC 8215, whose prefix networks divide as they like), 6to4 (RFC 3056), Teredo
// with its server and its client (RFC 4380), and ISATAP behind any prefix (RFC 5214). Of RFC 6052
// those of /32 and /40 are not here: the IPv4 address would begin in the prefix itself.
var layouts = []layout{
	{prefix: netip.MustParsePrefix("::/96"), at: [4]int{12, 13, 14, 15}},
	{prefix: netip.MustParsePrefix("::ffff:0:0:0/96"), at: [4]int{12, 13, 14, 15}},
	{prefix: netip.MustParsePrefix("64:ff9b::/96"), at: [4]int{12, 13, 14, 15}},
	{prefix: netip.MustParsePrefix("64:ff9b:1::/48"), at: [4]int{12, 13, 14, 15}, several: true},
	{prefix: netip.MustParsePrefix("64:ff9b:1::/48"), at: [4]int{9, 10, 11, 12}, several: true},
	{prefix: netip.MustParsePrefix("64:ff9b:1::/48"), at: [4]int{7, 9, 10, 11}, several: true},
	{prefix: netip.MustParsePrefix("64:ff9b:1::/48"), at: [4]int{6, 7, 9, 10}, several: true},
	{prefix: netip.MustParsePrefix("2002::/16"), at: [4]int{2, 3, 4, 5}},
	{prefix: netip.MustParsePrefix("2001::/32"), at: [4]int{4, 5, 6, 7}},
	{prefix: netip.MustParsePrefix("2001::/32"), at: [4]int{12, 13, 14, 15}, turned: true},
	{prefix: netip.MustParsePrefix("::/0"), id: []byte{0, 0, 0x5e, 0xfe}, at: [4]int{12, 13, 14, 15}},
	{prefix: netip.MustParsePrefix("::/0"), id: []byte{2, 0, 0x5e, 0xfe}, at: [4]int{12, 13, 14, 15}},
}

// holds reports whether an address may be of the layout.
func (l *layout) holds(a netip.Addr) bool {
	b := a.As16()
	return l.prefix.Contains(a) && (l.id == nil || slices.Equal(b[8:12], l.id))
}

// extract is the IPv4 address of one that the layout holds.
func (l *layout) extract(a netip.Addr) netip.Addr {
	b := a.As16()
	var v4 [4]byte
	for i, at := range l.at {
		if v4[i] = b[at]; l.turned {
			v4[i] = ^v4[i]
		}
	}
	return netip.AddrFrom4(v4)
}

// thisNetwork has the addresses that no gateway leads to.
var thisNetwork = netip.MustParsePrefix("0.0.0.0/8")

// Readings are the addresses that an address may lead to: itself, as HostOf has it, and each of
// IPv4 that is embedded in it. Rules hold for all of them, so the strictest verdict counts.
func Readings(a netip.Addr) []netip.Addr {
	a = HostOf(a).addr
	all := []netip.Addr{a}
	if !a.Is6() || a.IsLoopback() || a.IsUnspecified() { // of ::/96, and IPv6's own
		return all
	}
	var zeros netip.Addr // what another layout has in the place of this one's address
	for i := range layouts {
		l := &layouts[i]
		if !l.holds(a) {
			continue
		}
		switch v4 := l.extract(a); {
		case l.several && thisNetwork.Contains(v4):
			zeros = v4
		case !slices.Contains(all, v4):
			all = append(all, v4)
		}
	}
	if len(all) == 1 && zeros.IsValid() {
		all = append(all, zeros)
	}
	return all
}
