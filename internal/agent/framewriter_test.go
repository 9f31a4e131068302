package agent

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// writerPair is a frameWriter and the socket that its frames come out of.
func writerPair(t *testing.T) (*frameWriter, *net.UnixConn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); far.Close() })
	return &frameWriter{c: c, timeout: frameTime}, far.(*net.UnixConn)
}

// arrived is the kinds of the frames that one read brings.
func arrived(t *testing.T, c net.Conn) (kinds []kind) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(100 * waitTime)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64<<10)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	for b = b[:n]; len(b) > 0; {
		size := lengthSize + int(b[3]) + int(b[2])<<8
		h, _, err := parseFrame(b[lengthSize:size])
		if err != nil {
			t.Fatal(err)
		}
		kinds, b = append(kinds, h.Kind), b[size:]
	}
	return kinds
}

func TestFramesWait(t *testing.T) {
	f, far := writerPair(t)
	never := func(err error) { t.Error(err) }
	later := func(n int) {
		t.Helper()
		for range n {
			if err := f.writeLater(never, head{Kind: kindForget}, []byte("call_1")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for round := range 2 {
		later(2)
		if err := f.write(head{Kind: kindPing, ID: 1}); err != nil {
			t.Fatal(err)
		}
		if got := arrived(t, far); len(got) != 3 || got[1] != kindForget || got[2] != kindPing {
			t.Errorf("round %d: with the next frame came %v", round, got)
		}
		later(1)
		if got := arrived(t, far); len(got) != 1 || got[0] != kindForget {
			t.Errorf("round %d: by itself came %v", round, got)
		}
	}
	later(1)
	body := make([]byte, smallFrame+1)
	if err := f.write(head{Kind: kindRun, ID: 2}, body); err != nil {
		t.Fatal(err)
	}
	if got := arrived(t, far); len(got) != 2 || got[0] != kindForget || got[1] != kindRun {
		t.Errorf("before a large frame came %v", got)
	}
	// More than may wait goes at once, all that waited with it.
	later(maxWaiting)
	f.mu.Lock()
	if f.waiting > maxWaiting {
		t.Errorf("%d bytes wait", f.waiting)
	}
	f.mu.Unlock()
	f.stop()
}

func TestFramesOfAClosedConnection(t *testing.T) {
	f, _ := writerPair(t)
	failed := make(chan error, 1)
	if err := f.writeLater(func(err error) { failed <- err }, head{Kind: kindForget}, []byte("call_1")); err != nil {
		t.Fatal(err)
	}
	if err := f.c.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		if !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	case <-time.After(100 * waitTime):
		t.Error("nobody heard of it")
	}
	// Stopped, it does not even try.
	f, far := writerPair(t)
	if err := f.writeLater(func(err error) { t.Error(err) }, head{Kind: kindForget}, []byte("call_1")); err != nil {
		t.Fatal(err)
	}
	f.stop()
	if err := far.SetReadDeadline(time.Now().Add(3 * waitTime)); err != nil {
		t.Fatal(err)
	}
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the end: %v", err)
	}
}
