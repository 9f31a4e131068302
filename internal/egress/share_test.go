package egress

import (
	"context"
	"net"
	"strings"
	"testing"
)

// TestFurtherFarConnectionCounts: one connection to a far side is a part of the program's own in what sessions share; each
// further one that is open beside it counts as one, until it is closed.
func TestFurtherFarConnectionCounts(t *testing.T) {
	share := NewShare("the sessions of this tenant", nil, func() Limits { return Limits{Connections: 2} })
	if err := share.enter(); err != nil { // the program's own
		t.Fatal(err)
	}
	v := &visit{client: &client{n: &Network{share: share}}}
	ctx := context.WithValue(t.Context(), verdictKey{}, Verdict{Allow: true})
	dial := func() (net.Conn, error) {
		near, far := net.Pipe()
		t.Cleanup(func() { _, _ = near.Close(), far.Close() })
		v.first.Store(&near)
		return v.dialFor(ctx, "tcp", "a.example:80")
	}
	counts := func(want int, err error) {
		t.Helper()
		if share.conns != want || err != nil {
			t.Errorf("%d connections are counted, %v; want %d", share.conns, err, want)
		}
	}
	one, err := dial()
	counts(1, err)
	two, err := dial()
	counts(2, err)
	if _, err := dial(); err == nil || !strings.Contains(err.Error(), "the sessions of this tenant have 2 connections; at most 2") {
		t.Errorf("a third: %v", err)
	}
	counts(2, nil)
	for range 2 { // it leaves once
		_ = two.Close()
		counts(1, nil)
	}
	three, err := dial()
	counts(2, err)
	_ = one.Close()
	counts(2, nil)
	_ = three.Close()
	counts(1, nil)
	if n := v.fars.Load(); n != 0 {
		t.Errorf("%d are open", n)
	}
	if _, err := v.dialFor(t.Context(), "tcp", "a.example:80"); err == nil {
		t.Error("one goes out that nobody has allowed")
	}
}
