package endpoint

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// embed is the address of the layout that leads to v4, with the bytes of a elsewhere.
func (l *layout) embed(a [16]byte, v4 [4]byte) netip.Addr {
	p := l.prefix.Addr().As16()
	for i := range l.prefix.Bits() {
		bit := byte(0x80) >> (i % 8)
		a[i/8] = a[i/8]&^bit | p[i/8]&bit
	}
	copy(a[8:], l.id)
	for i, at := range l.at {
		if a[at] = v4[i]; l.turned {
			a[at] = ^v4[i]
		}
	}
	return netip.AddrFrom16(a)
}

// TestLayouts: each layout reads what it writes, and writes what it reads.
func TestLayouts(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for i := range layouts {
		l := &layouts[i]
		for range 1000 {
			var noise [16]byte
			var v4 [4]byte
			for i := range noise {
				noise[i] = byte(r.Uint32())
			}
			for i := range v4 {
				v4[i] = byte(r.Uint32())
			}
			a := l.embed(noise, v4)
			if !l.holds(a) || l.extract(a) != netip.AddrFrom4(v4) || l.embed(a.As16(), l.extract(a).As4()) != a {
				t.Fatalf("layout %d: %s of %v is read as %s", i, a, v4, l.extract(a))
			}
			if read := Readings(a); !slices.Contains(read, netip.AddrFrom4(v4)) && v4[0] != 0 || read[0] != a {
				t.Fatalf("layout %d: %s of %v may lead to %s", i, a, v4, read)
			}
		}
	}
}

func TestReadings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"192.0.2.1": nil, "::ffff:192.0.2.1": nil, "::1": nil, "::": nil, "2001:db8::1": nil, "fe80::1": nil, "64:ff9c::c000:201": nil,
		"::192.0.2.1": {"192.0.2.1"}, "::2": {"0.0.0.2"}, "::ffff:0:192.0.2.1": {"192.0.2.1"}, "64:ff9b::192.0.2.1": {"192.0.2.1"}, "64:ff9b::": {"0.0.0.0"},
		"64:ff9b:1::192.0.2.1": {"192.0.2.1"}, "64:ff9b:1::": {"0.0.0.0"},
		// The examples of RFC 6052, with the prefix of RFC 8215.
		"64:ff9b:1:c000:2:2100::": {"2.33.0.0", "192.0.2.33"}, "64:ff9b:1:1c0:0:221::": {"192.0.2.33", "1.192.0.2"}, "64:ff9b:1:122:c0:2:2100::": {"33.0.0.0", "192.0.2.33", "34.192.0.2", "1.34.192.0"},
		"2002:c000:201::1": {"192.0.2.1"}, "2001:0:4136:e378:8000:63bf:3fff:fdd2": {"65.54.227.120", "192.0.2.45"},
		"2001:db8::5efe:192.0.2.1": {"192.0.2.1"}, "2001:db8::200:5efe:192.0.2.1": {"192.0.2.1"}, "fe80::5efe:10.0.0.1": {"10.0.0.1"}, "2001:db8::100:5efe:192.0.2.1": nil,
	} {
		a := netip.MustParseAddr(text)
		got := Readings(a)
		if got[0] != a.Unmap() {
			t.Errorf("%s: first %s", text, got[0])
		}
		var list []string
		for _, r := range got[1:] {
			list = append(list, r.String())
		}
		if !slices.Equal(list, want) {
			t.Errorf("%s may lead to %s, want %s", text, list, want)
		}
	}
}
