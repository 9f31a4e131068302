package inside

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/testrig"
)

// daemonAt listens as a daemon does that agents dial.
func daemonAt(t *testing.T, dir string) *net.UnixListener {
	t.Helper()
	path := filepath.Join(dir, socketName)
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	t.Cleanup(func() { ln.Close() })
	if err := ln.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return ln
}

func (r *rig) accept(ln *net.UnixListener) *agent.Conn {
	r.t.Helper()
	c, err := ln.AcceptUnix()
	if err != nil {
		r.t.Fatal(err)
	}
	conn, _, err := agent.Connect(r.t.Context(), c, r.hello())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

func TestAgentDials(t *testing.T) {
	dir := t.TempDir()
	r := newRigOn(t, NewDialler(dir))
	// It was there before the daemon.
	time.Sleep(30 * time.Millisecond)
	ln := daemonAt(t, dir)
	c := r.accept(ln)
	if out, _ := r.bash(c, "c1", "echo one"); out != "one\n" {
		t.Errorf("output %q", out)
	}
	// A lost connection: it dials again, and a call goes on meanwhile.
	over := make(chan struct{})
	go func() {
		_, _ = c.Run(context.Background(), bashCall("c2", until("on")+"; echo two"), &sink{hook: func(int64) error { return nil }})
		close(over)
	}()
	testrig.Eventually(t, "the call", func() bool { return r.server.call("c2") != nil })
	c.Close()
	<-over
	again := r.accept(ln)
	r.release("on")
	o, err := again.Resume(t.Context(), "c2", 0, &sink{})
	if err != nil || o.Err != nil || o.OutputEnd != 4 {
		t.Errorf("resumed: %+v, %v", o, err)
	}
	// Another daemon in the place of the first one.
	ln.Close()
	again.Close()
	if out, _ := r.bash(r.accept(daemonAt(t, dir)), "c3", "echo three"); out != "three\n" {
		t.Errorf("output %q", out)
	}
}

// A stranger in the daemon's place gets nothing, and the agent does not give up.
func TestDialledStranger(t *testing.T) {
	dir := t.TempDir()
	ln := daemonAt(t, dir)
	r := newRigOn(t, NewDialler(dir))
	c, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	h := r.hello()
	h.Nonce = make([]byte, len(testNonce))
	if conn, _, err := agent.Connect(t.Context(), c, h); err == nil {
		conn.Close()
		t.Error("welcomed without the nonce")
	}
	for range 20 { // who hangs up at once
		c, err := ln.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	if out, _ := r.bash(r.accept(ln), "c1", "echo one"); out != "one\n" {
		t.Errorf("output %q", out)
	}
}

func TestDiallerCloses(t *testing.T) {
	for name, busy := range map[string]bool{"without a daemon": false, "in its turn": true} {
		t.Run(name, func(t *testing.T) {
			d := NewDialler(t.TempDir())
			if busy {
				<-d.turn
			}
			time.AfterFunc(20*time.Millisecond, func() { d.Close() })
			if _, err := d.AcceptUnix(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("error %v, want closed", err)
			}
			d.Close()
		})
	}
}
