package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toold/toold/internal/testrig"
)

func TestRunOutlivesItsCaller(t *testing.T) {
	c := newRig(t)
	cause := errors.New("client went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	s := &sink{hook: func(int64) error { cancel(cause); return nil }}
	if _, err := c.Run(ctx, bashCall("a", "echo one; "+until("a")+"; echo two"), s); !errors.Is(err, cause) {
		t.Fatalf("got %v", err)
	}
	c.release("a")
	s2 := &sink{}
	o, err := c.Resume(t.Context(), "a", 4, s2)
	if err != nil || string(s2.data) != "two\n" || o.Exit.Code != 0 {
		t.Errorf("%v %q", err, s2.data)
	}
	// A sink that fails does the same.
	bad := errors.New("disk full")
	s = &sink{hook: func(int64) error { return bad }}
	if _, err := c.Run(t.Context(), bashCall("b", "echo one; "+until("b")+"; echo two"), s); !errors.Is(err, bad) {
		t.Fatalf("got %v", err)
	}
	c.release("b")
	s2 = &sink{}
	if o, err := c.Resume(t.Context(), "b", 0, s2); err != nil || string(s2.data) != "one\ntwo\n" || o.Exit.Code != 0 {
		t.Errorf("%v %q", err, s2.data)
	}
	testrig.Eventually(t, "no exchange is left", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.exchanges) == 0
	})
}

// A sink that does not take anything stops its own call and nobody else's, and
// what the daemon holds meanwhile is bounded.
func TestStalledSink(t *testing.T) {
	c := newRig(t)
	stalled, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var n atomic.Int64
	s := sinkFunc(func(_ int64, p []byte) error {
		once.Do(func() { close(stalled); <-release })
		return c.Ack("slow", n.Add(int64(len(p))))
	})
	const size = 8 << 20
	done := make(chan error, 1)
	go func() {
		o, err := c.Run(t.Context(), bashCall("slow", fmt.Sprintf("head -c %d /dev/zero", size)), s)
		if err == nil && (o.Err != nil || o.OutputEnd != size || n.Load() != size) {
			err = fmt.Errorf("%+v after %d bytes", o, n.Load())
		}
		done <- err
	}()
	<-stalled
	for i := range 50 {
		out := &sink{}
		if o, err := c.Run(t.Context(), bashCall(fmt.Sprint("quick", i), "echo hi"), out); err != nil || o.Err != nil || string(out.data) != "hi\n" {
			t.Errorf("neighbour got %q, %+v, %v", out.data, o, err)
		}
	}
	c.mu.Lock()
	for _, x := range c.exchanges {
		x.mu.Lock()
		if got := cap(x.pending.data); got > 2*window {
			t.Errorf("%d bytes wait for the sink; the window is %d", got, window)
		}
		x.mu.Unlock()
	}
	c.mu.Unlock()
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
