package guard

import (
	"errors"
	"net/netip"
	"testing"
)

// TestControl: an address passes where all that it may lead to is public, or named.
func TestControl(t *testing.T) {
	t.Parallel()
	within := func(prefixes ...string) func(netip.Addr) (bool, error) {
		return func(a netip.Addr) (bool, error) {
			for _, p := range prefixes {
				if netip.MustParsePrefix(p).Contains(a) {
					return true, nil
				}
			}
			return false, nil
		}
	}
	every, ten := within("::/0"), within("::/0", "10.0.0.0/8")
	for _, tt := range []struct {
		address string
		opens   func(netip.Addr) (bool, error)
		passes  bool
	}{
		{"93.184.216.34", within(), true},
		{"10.0.0.1", within(), false},
		{"10.0.0.1", ten, true},
		{"127.0.0.1", every, false},
		{"::ffff:10.0.0.1", every, false},
		{"2606:2800:220:1:248:1893:25c8:1946", within(), true},
		{"64:ff9b::93.184.216.34", every, true},
		{"64:ff9b:1::93.184.216.34", every, true},
		{"::1", within("::1/128"), true},
		// Each form of an address that is not public, and of the host's own.
		{"::10.0.0.1", every, false},
		{"::ffff:0:10.0.0.1", every, false},
		{"64:ff9b::10.0.0.1", every, false},
		{"64:ff9b:1::10.0.0.1", every, false},
		{"64:ff9b:1:a00:0:100::", every, false},
		{"64:ff9b:1:b0a:0:1::", every, false},
		{"64:ff9b:1:b0b:a:0:100::", every, false},
		{"2002:a00:1::1", every, false},
		{"2001:0:a00:1::", every, false},
		{"2001:0:4136:e378:8000:63bf:f5ff:fffe", every, false},
		{"2606:2800:220:1:0:5efe:10.0.0.1", within(), false},
		{"2606:2800:220:1:200:5efe:10.0.0.1", within(), false},
		{"2606:2800:220:1:0:5efe:93.184.216.34", within(), true},
		{"64:ff9b::127.0.0.1", every, false},
		{"64:ff9b::169.254.169.254", every, false},
		{"2606:2800:220:1:0:5efe:168.63.129.16", within(), false},
		{"64:ff9b::10.0.0.1", ten, true},
		{"64:ff9b:1:a00:0:100::", ten, true},
		{"2606:2800:220:1:0:5efe:10.0.0.1", within("10.0.0.0/8"), true},
	} {
		err := Control(tt.opens)("tcp", netip.AddrPortFrom(netip.MustParseAddr(tt.address), 443).String(), nil)
		var refused *RefusedError
		if (err == nil) != tt.passes || err != nil && !errors.As(err, &refused) {
			t.Errorf("%s: %v, want it to pass: %v", tt.address, err, tt.passes)
		}
	}
	denied := errors.New("denied")
	deny := func(a netip.Addr) (bool, error) {
		if a.Is4() {
			return false, denied
		}
		return true, nil
	}
	if err := Control(deny)("tcp", "[2002:5db8:d822::1]:443", nil); !errors.Is(err, denied) {
		t.Errorf("a denied address behind 6to4: %v", err)
	}
	if err := Control(deny)("tcp", "nowhere", nil); err == nil {
		t.Error("no address passes")
	}
}
