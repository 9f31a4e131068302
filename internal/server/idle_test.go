package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// TestIdlersGoFirst: where connections are at a bound, idle ones are closed: the user's own at the
// user's bound, at that of all those of the user who has the most, and those that have been idle for
// longest before others. One at work is never closed.
func TestIdlersGoFirst(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		conns      string // of users a, b and c, in this order: a capital for one at work
		who        int64
		mine, most int
		left       string
		want       *client.Error
	}{
		{"there is room", "aAb", 'a', 4, 4, "aAb", nil},
		{"nothing was open", "", 'a', 1, 1, "", nil},
		{"all at work", "AAB", 'c', 4, 3, "AAB", errAllBusy},
		{"the oldest of the one user", "Aaaa", 'a', 9, 4, "Aaa", nil},
		{"the user's own first", "bbaa", 'a', 2, 9, "bba", nil},
		{"the user's are all at work", "bbAA", 'a', 2, 9, "bbAA", errTooMany},
		{"others' are not closed for who may have none", "bbbAA", 'a', 2, 5, "bbbAA", errTooMany},
		{"of who has the most", "abbbaB", 'c', 9, 6, "abbaB", nil},
		{"of who has the most and idle ones", "bAAA", 'c', 9, 4, "AAA", nil},
		{"more than one", "abbb", 'c', 9, 3, "ab", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var i idlers
			left := []rune(tt.conns)
			for n, r := range left {
				c := &peerConn{UnixConn: &net.UnixConn{}, key: int64(unicode.ToLower(r)), release: func() { left[n] = ' ' }}
				i.note(c, http.StateNew)
				if unicode.IsUpper(r) {
					i.note(c, http.StateActive)
				}
			}
			if err := i.room(tt.who, tt.mine, tt.most); err != tt.want {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if got := strings.ReplaceAll(string(left), " ", ""); got != tt.left || len(i.open) != len(tt.left) {
				t.Errorf("%q are left and %d counted, want %q", got, len(i.open), tt.left)
			}
		})
	}
}

// TestIdlersForgetUsers: who has no connection any more is not remembered.
func TestIdlersForgetUsers(t *testing.T) {
	t.Parallel()
	var i idlers
	c := &peerConn{UnixConn: &net.UnixConn{}, release: func() {}}
	for _, state := range []http.ConnState{http.StateNew, http.StateActive, http.StateIdle, http.StateClosed, http.StateClosed} {
		i.note(c, state)
	}
	if len(i.users) != 0 || len(i.open) != 0 {
		t.Errorf("%d users, %d connections", len(i.users), len(i.open))
	}
}

// fullListener has no descriptor for another connection while more than spare are open.
type fullListener struct {
	net.Listener
	idle  *idlers
	spare int
}

func (l fullListener) Accept() (net.Conn, error) {
	l.idle.mu.Lock()
	full := len(l.idle.open) > l.spare
	l.idle.mu.Unlock()
	if full {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	near, far := net.Pipe()
	return near, far.Close()
}

// TestNoDescriptorForAConnection: idle connections are closed when there is no descriptor for
// another one, some at a time, and the next is taken up at once; those at work stay.
func TestNoDescriptorForAConnection(t *testing.T) {
	t.Parallel()
	var server Server
	closed := 0
	open := func(state http.ConnState) {
		c := &peerConn{UnixConn: &net.UnixConn{}, key: 7, release: func() { closed++ }}
		server.idle.note(c, http.StateNew)
		server.idle.note(c, state)
	}
	for range 3 * reserve {
		open(http.StateIdle)
	}
	open(http.StateActive)
	l := &peerListener{Listener: fullListener{idle: &server.idle, spare: 2*reserve + 1}, server: &server}
	if c, err := l.Accept(); err != nil || closed != reserve {
		t.Errorf("got %v, %v; %d were closed", c, err, closed)
	}
	l.Listener = fullListener{idle: &server.idle, spare: 0}
	if _, err := l.Accept(); !noDescriptor(err) || closed != 3*reserve {
		t.Errorf("with all at work: %v; %d were closed", err, closed)
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
		u := d.idle.busiest()
		return u != nil && u.idle.Len() == 1
	})
	if err := d.idle.room(strangers, 1, 1); err != nil {
		t.Errorf("it was not closed: %v", err)
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Errorf("its client was told %v", err)
	}
}
