package wire

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/testrig"
)

// inBubble runs f, in which time stands still but for sleeps, with a Writer and
// the socket that its frames come out of.
func inBubble(t *testing.T, f func(t *testing.T, w *Writer, far *net.UnixConn)) {
	t.Helper()
	c, far := testrig.Socketpair(t)
	synctest.Test(t, func(t *testing.T) { f(t, NewWriter(c, 0), far) })
}

// pass lets time go on, and what is due then be done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// arrived is the kinds of the frames that have come; one read brings them.
func arrived(t *testing.T, c *net.UnixConn) (kinds []Kind) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64<<10)
	n := 0
	cerr := raw.Control(func(fd uintptr) { n, _, err = unix.Recvfrom(int(fd), b, unix.MSG_DONTWAIT) })
	if errors.Is(err, unix.EAGAIN) {
		return nil
	}
	if err := errors.Join(cerr, err); err != nil {
		t.Fatal(err)
	}
	for b = b[:n]; len(b) > 0; {
		size := lengthSize + int(b[3]) + int(b[2])<<8
		h, _, err := ParseFrame(b[lengthSize:size])
		if err != nil {
			t.Fatal(err)
		}
		kinds, b = append(kinds, h.Kind), b[size:]
	}
	return kinds
}

func TestFramesWait(t *testing.T) {
	inBubble(t, func(t *testing.T, f *Writer, far *net.UnixConn) {
		never := func(err error) { t.Error(err) }
		later := func(n int) {
			t.Helper()
			for range n {
				if err := f.WriteLater(never, Head{Kind: KindForget}, []byte("call_1")); err != nil {
					t.Fatal(err)
				}
			}
		}
		for round := range 2 {
			later(2)
			pass(waitTime - 1)
			if got := arrived(t, far); len(got) != 0 {
				t.Errorf("round %d: at once came %v", round, got)
			}
			if err := f.Write(Head{Kind: KindPing, ID: 1}); err != nil {
				t.Fatal(err)
			}
			if got := arrived(t, far); len(got) != 3 || got[1] != KindForget || got[2] != KindPing {
				t.Errorf("round %d: with the next frame came %v", round, got)
			}
			later(1)
			pass(waitTime)
			if got := arrived(t, far); len(got) != 1 || got[0] != KindForget {
				t.Errorf("round %d: by itself came %v", round, got)
			}
		}
		later(1)
		body := make([]byte, smallFrame+1)
		if err := f.Write(Head{Kind: KindRun, ID: 2}, body); err != nil {
			t.Fatal(err)
		}
		if got := arrived(t, far); len(got) != 2 || got[0] != KindForget || got[1] != KindRun {
			t.Errorf("before a large frame came %v", got)
		}
		// More than may wait goes at once, all that waited with it.
		later(maxWaiting)
		f.mu.Lock()
		if f.waiting > maxWaiting {
			t.Errorf("%d bytes wait", f.waiting)
		}
		f.mu.Unlock()
		f.Stop()
	})
}

func TestFramesOfAClosedConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, f *Writer, _ *net.UnixConn) {
		if err := f.c.Close(); err != nil {
			t.Fatal(err)
		}
		var failed error
		if err := f.WriteLater(func(err error) { failed = err }, Head{Kind: KindForget}, []byte("call_1")); err != nil {
			t.Fatal(err)
		}
		pass(waitTime)
		if !errors.Is(failed, net.ErrClosed) {
			t.Errorf("heard of %v", failed)
		}
	})
	// Stopped, it does not even try.
	inBubble(t, func(t *testing.T, f *Writer, far *net.UnixConn) {
		if err := f.WriteLater(func(err error) { t.Error(err) }, Head{Kind: KindForget}, []byte("call_1")); err != nil {
			t.Fatal(err)
		}
		f.Stop()
		pass(3 * waitTime)
		if got := arrived(t, far); len(got) != 0 {
			t.Errorf("after the end came %v", got)
		}
	})
}
