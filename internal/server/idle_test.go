package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/toold/toold/internal/testrig"
)

// TestIdlersGoFirst: where connections are at their bound, the one that has been idle for longest
// is closed, and one at work never.
func TestIdlersGoFirst(t *testing.T) {
	var i idlers
	var ours []net.Conn
	for range 4 {
		a, b := net.Pipe()
		t.Cleanup(func() { a.Close(); b.Close() })
		i.note(a, http.StateNew)
		i.note(a, http.StateActive)
		ours = append(ours, a)
	}
	if i.room(4) || len(i.open) != 4 {
		t.Error("connections at work were closed")
	}
	i.note(ours[2], http.StateIdle)
	i.note(ours[1], http.StateIdle)
	if !i.room(4) || i.all.Len() != 1 {
		t.Errorf("%d are idle", i.all.Len())
	}
	if _, err := ours[2].Write(nil); err == nil {
		t.Error("the one that is idle for longest is open")
	}
	i.note(ours[2], http.StateClosed)
	if !i.room(4) || len(i.open) != 3 {
		t.Errorf("%d are open", len(i.open))
	}
	if i.note(ours[0], http.StateIdle); !i.room(3) || i.all.Len() != 1 || len(i.open) != 2 {
		t.Errorf("%d are open, %d idle: more were closed than had to be", len(i.open), i.all.Len())
	}
}

// TestIdleConnections: idle connections up to the cap keep nobody from an answer.
func TestIdleConnections(t *testing.T) {
	d := start(t, nil)
	c := d.dial(t)
	fmt.Fprint(c, "GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n")
	r := bufio.NewReader(c)
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q %v", line, err)
	}
	testrig.Eventually(t, "it is idle", func() bool {
		d.idle.mu.Lock()
		defer d.idle.mu.Unlock()
		return d.idle.all.Len() == 1
	})
	if !d.idle.room(1) {
		t.Error("it was not closed")
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Errorf("its client was told %v", err)
	}
}
