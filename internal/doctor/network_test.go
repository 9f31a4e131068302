package doctor

import (
	"net"
	"testing"
)

// TestReached: who has come is counted, also when gone by then.
func TestReached(t *testing.T) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range 4 {
		c, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i < 2 {
			if err := c.(*net.TCPConn).SetLinger(i); err != nil {
				t.Fatal(err)
			}
			c.Close()
		}
	}
	if n := reached(l); n != 4 {
		t.Errorf("%d of 4", n)
	}
	if n := reached(l); n != 0 {
		t.Errorf("%d more", n)
	}
}
