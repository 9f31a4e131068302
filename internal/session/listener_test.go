package session

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/testrig"
)

// TestStuckReader: a reader that stops reading is cut off, and neither its call
// nor an abort of that waits for it.
func TestStuckReader(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	box := h.host.box(s.ID)
	stuck, free := make(chan string, 1), make(chan struct{})
	answered := make(chan error, 1)
	go func() {
		_, err := h.m.calls.Call(t.Context(), alice, s.ID, bashCall("big 9000000; hold"), call.Options{OnEvent: func(e client.Event) {
			if e.Type != "output" {
				return
			}
			select {
			case stuck <- e.Call:
			default:
			}
			<-free
		}})
		answered <- err
	}()
	id := <-stuck
	testrig.Eventually(t, "the command has printed all", func() bool { return box.holding.Load() == 1 })
	aborted := make(chan struct{})
	go func() {
		defer close(aborted)
		if c, err := h.m.calls.AbortCall(t.Context(), alice, id); err != nil || !c.Finished() {
			t.Errorf("abort: %+v, %v", c, err)
		}
	}()
	select {
	case <-aborted:
	case <-time.After(time.Minute):
		t.Error("the abort waits for the reader")
	}
	close(free)
	if err := <-answered; !errors.Is(err, call.ErrTooSlow) {
		t.Errorf("the reader got %v", err)
	}
	testrig.Eventually(t, "the call is over", func() bool { return h.m.live()[0].calls.Open() == 0 })
}

// TestSlowReader: one that is only slower than the command gets everything.
func TestSlowReader(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	var got, last int
	_, err := h.m.calls.Call(t.Context(), alice, s.ID, bashCall("big 5000000"), call.Options{OnEvent: func(e client.Event) {
		last++
		if e.Type == "output" {
			got += strings.Count(string(e.Data), `0123456789abcde\n`)
			time.Sleep(time.Millisecond)
		}
		if e.Type == "completed" {
			last = 0
		}
	}})
	if err != nil || last != 0 || got < 5000000/16-2 {
		t.Errorf("%d lines, %d events after the last, %v", got, last, err)
	}
}

func TestSplitEventsOverADaemonsDeath(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{})
	zero := int64(0)
	c, err := h.m.calls.Call(t.Context(), alice, s.ID, with(bashCall("echo a; err bb; echo ccc; hold; echo d; err e; bytes e2"), func(r *client.CallCreate) { r.WaitMillis = &zero }), call.Options{Split: true})
	if err != nil {
		t.Fatal(err)
	}
	box := h.host.box(s.ID)
	testrig.Eventually(t, "the command holds", func() bool { return box.holding.Load() == 1 })
	testrig.Eventually(t, "all has arrived", func() bool {
		return h.arrived(c.ID) == int64(len("a\nbb\nccc\n"))
	})
	h.kill()
	h.open()
	events, err := h.m.Events.Events(t.Context(), alice, event.Filter{Type: client.EventCallOutput})
	if err != nil {
		t.Fatal(err)
	}
	box.release()
	h.finished(c.ID)
	ends := map[string]int64{"stdout": 6, "stderr": 3}
	for text := ""; text != "stdout d\nstderr e\nstdout \xe2"; {
		select {
		case e := <-events:
			if e.Session != s.ID || e.Call != c.ID || e.Time.IsZero() {
				t.Errorf("event %+v", e)
			}
			var o client.Output
			if err := json.Unmarshal(e.Data, &o); err != nil {
				t.Fatal(err)
			}
			if o.Offset != ends[o.Stream] {
				t.Errorf("%q of %q at %d, want %d", o.Bytes(), o.Stream, o.Offset, ends[o.Stream])
			}
			ends[o.Stream] += int64(len(o.Bytes()))
			text += o.Stream + " " + string(o.Bytes())
		case <-time.After(time.Minute):
			t.Fatalf("only %q came", text)
		}
	}
}
