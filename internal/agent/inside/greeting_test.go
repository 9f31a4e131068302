package inside

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/wire"
)

func TestStrangers(t *testing.T) {
	r := newRig(t)
	good, _ := r.connect(r.hello())
	for name, send := range map[string]func(c *net.UnixConn){
		"wrong nonce": func(c *net.UnixConn) {
			h := r.hello()
			h.Nonce = bytes.Repeat([]byte{8}, 32)
			_ = sendHello(c, h)
		},
		"short nonce": func(c *net.UnixConn) {
			h := r.hello()
			h.Nonce = testNonce[:31]
			_ = sendHello(c, h)
		},
		"no hello":    func(c *net.UnixConn) { _, _ = c.Write(wire.Frame(wire.Head{Kind: wire.KindPing, ID: 1}, nil)) },
		"garbage":     func(c *net.UnixConn) { _, _ = c.Write([]byte("GET / HTTP/1.1\r\n\r\n")) },
		"zero length": func(c *net.UnixConn) { _, _ = c.Write(make([]byte, 8)) },
		"no body":     func(c *net.UnixConn) { _, _ = c.Write(wire.Frame(wire.Head{Kind: wire.KindHello}, nil)) },
		"half":        func(c *net.UnixConn) { _, _ = c.Write([]byte{0, 0, 1, 0, 1}); c.CloseWrite() },
		"old version": func(c *net.UnixConn) {
			b, _ := wire.Marshal(wire.Hello{Version: 99, Nonce: testNonce})
			_, _ = c.Write(wire.Frame(wire.Head{Kind: wire.KindHello}, b))
		},
		"descriptor promised": func(c *net.UnixConn) {
			b, _ := wire.Marshal(wire.Hello{Version: wire.Version, Nonce: testNonce, HasCgroup: true})
			_, _ = c.Write(wire.Frame(wire.Head{Kind: wire.KindHello}, b))
		},
		"descriptors without end": func(c *net.UnixConn) {
			for range 20 {
				_, _, _ = c.WriteMsgUnix([]byte{0, 1, 0, 0}, unix.UnixRights(0, 0, 0, 0), nil)
			}
			c.CloseWrite()
		},
	} {
		c := r.dial()
		send(c)
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if n, err := c.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: answered %d bytes, %v", name, n, err)
		}
		c.Close()
	}
	if err := good.Ping(t.Context()); err != nil {
		t.Errorf("the daemon was disturbed: %v", err)
	}
	// More strangers than are listened to do not keep the daemon out for good.
	var silent []*net.UnixConn
	for range maxStrangers + 4 {
		silent = append(silent, r.dial())
	}
	for _, c := range silent {
		c.Close()
	}
	testrig.Eventually(t, "the daemon can connect again", func() bool {
		c, _, err := agent.Connect(t.Context(), r.dial(), r.hello())
		if err != nil {
			return false
		}
		c.Close()
		return true
	})
}

// What a daemon sends is checked too: garbage ends the connection, not the agent.
func TestGarbageFromTheDaemon(t *testing.T) {
	r := newRig(t)
	h := func(k wire.Kind, id uint64, n int64, body []byte) []byte {
		return wire.Frame(wire.Head{Kind: k, ID: id, N: n}, body)
	}
	for name, frame := range map[string][]byte{
		"unknown kind":     h(200, 1, 0, nil),
		"agent's kind":     h(wire.KindOutput, 1, 0, []byte("x")),
		"second hello":     h(wire.KindHello, 0, 0, nil),
		"run without body": h(wire.KindRun, 1, 0, nil),
		"run without id":   h(wire.KindRun, 1, 0, []byte{0xa0}),
		"bad resume":       h(wire.KindResume, 1, 0, []byte{0xff}),
		"bad abort":        h(wire.KindAbort, 0, 0, []byte{0xff}),
		"bad head":         {0, 0, 0, 1, 0xff},
	} {
		c := r.dial()
		if err := sendHello(c, r.hello()); err != nil {
			t.Fatal(err)
		}
		in := wire.NewReader(c, wire.MaxUp)
		if _, err := in.Next(); err != nil {
			t.Fatalf("%s: no welcome: %v", name, err)
		}
		if _, err := c.Write(frame); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if b, err := in.Next(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: answered %x, %v", name, b, err)
		}
		c.Close()
	}
	c := r.dial()
	defer c.Close()
	if err := sendHello(c, r.hello()); err != nil {
		t.Fatal(err)
	}
	for _, k := range []wire.Kind{wire.KindCredit, wire.KindGrant, wire.KindDetach} { // may cross with the end of an exchange
		if _, err := c.Write(h(k, 99, 0, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Write(h(wire.KindPing, 1, 0, nil)); err != nil {
		t.Fatal(err)
	}
	in := wire.NewReader(c, wire.MaxUp)
	for _, want := range []wire.Kind{wire.KindWelcome, wire.KindDone} {
		frame, err := in.Next()
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := wire.ParseFrame(frame); err != nil || got.Kind != want {
			t.Errorf("answered with kind %d, %v; want %d", got.Kind, err, want)
		}
	}
}

func TestConnectErrors(t *testing.T) {
	r := newRig(t)
	h := r.hello()
	h.Nonce = make([]byte, 32)
	if _, _, err := agent.Connect(t.Context(), r.dial(), h); !errors.Is(err, agent.ErrLost) {
		t.Errorf("wrong nonce: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	a, b := testrig.Socketpair(t)
	defer b.Close()
	if _, _, err := agent.Connect(ctx, a, h); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silent agent: %v", err)
	}
	for name, change := range map[string]func(*agent.Hello){
		"no shell": func(h *agent.Hello) { h.Shell = nil },
		"bad env":  func(h *agent.Hello) { h.Env = []string{"LD_PRELOAD=x"} },
		"huge":     func(h *agent.Hello) { h.Env = []string{"A=" + strings.Repeat("x", wire.MaxHello)} },
		"as root":  func(h *agent.Hello) { h.ToolUID = 0 },
	} {
		if name == "as root" && os.Getuid() != 0 {
			continue
		}
		r := newRig(t)
		h := r.hello()
		change(&h)
		if _, _, err := agent.Connect(t.Context(), r.dial(), h); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestNewServerChecks(t *testing.T) {
	if _, err := NewServer(ServerConfig{}); err == nil {
		t.Error("no listener, no error")
	}
	if _, err := NewServer(ServerConfig{Listener: &net.UnixListener{}, Nonce: []byte("short")}); err == nil {
		t.Error("short nonce, no error")
	}
}

func TestOrphaned(t *testing.T) {
	r := newRig(t)
	h := r.hello()
	h.OrphanMillis = time.Hour.Milliseconds()
	c, _ := r.connect(h)
	c.Close()
	s := r.server
	locked := func(f func() bool) func() bool {
		return func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return f()
		}
	}
	testrig.Eventually(t, "the time without a daemon runs", locked(func() bool { return s.orphan != nil }))
	c, _ = r.connect(h) // in time
	if locked(func() bool { return s.orphan.Stop() })() {
		t.Error("the time without a daemon runs on with one there")
	}
	s.orphaned() // the time was over just as it came
	if err := c.Ping(t.Context()); err != nil {
		t.Fatalf("ended with a daemon there: %v", err)
	}
	locked(func() bool { s.session.hello.OrphanMillis = 100; return true })()
	c.Close()
	select {
	case err := <-r.done:
		r.done <- err
		if !errors.Is(err, ErrOrphaned) {
			t.Errorf("got %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("does not end")
	}
}

// A daemon that dies before it has its welcome has been the last one too.
func TestOrphanedAtWelcome(t *testing.T) {
	r := newRig(t)
	h := r.hello()
	h.OrphanMillis = 100
	c := r.dial()
	defer c.Close()
	if err := errors.Join(c.CloseRead(), sendHello(c, h)); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-r.done:
		r.done <- err
		if !errors.Is(err, ErrOrphaned) {
			t.Errorf("got %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("does not end")
	}
}

func TestStopEndsCalls(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(r.hello())
	var pid string
	s := &sink{hook: func(int64) error { return nil }}
	got := make(chan error, 1)
	go func() {
		o, err := c.Run(context.Background(), bashCall("a", "echo $$; exec sleep 300"), s)
		if err == nil && o.Exit != nil && o.Exit.Reason == run.ReasonSessionEnded {
			err = agent.ErrLost // its end was sent before the connection was closed
		}
		got <- err
	}()
	for pid == "" {
		time.Sleep(time.Millisecond)
		s.mu.Lock()
		pid = strings.TrimSpace(string(s.data))
		s.mu.Unlock()
	}
	r.stop()
	if err := <-got; !errors.Is(err, agent.ErrLost) {
		t.Errorf("run: %v", err)
	}
	err := <-r.done
	r.done <- err
	gone(t, pid)
}

// An agent that ends does not wait for who has connected and not said hello.
func TestStopWaitsForNoHello(t *testing.T) {
	r := newRig(t)
	stranger := r.dial()
	defer stranger.Close()
	for len(r.server.strangers) == 0 {
		time.Sleep(time.Millisecond)
	}
	r.stop()
	select {
	case err := <-r.done:
		r.done <- err
	case <-time.After(wire.HelloTime * 4 / 5):
		t.Error("it waits for the hello")
	}
}

// Hello without an answer, and a stranger that says nothing.
func TestSilentStranger(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	r := newRig(t)
	c := r.dial()
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(10 * wire.HelloTime))
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("got %d bytes, %v", n, err)
	}
}
