package inside

import (
	"testing"
	"time"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/wire"
)

// begin starts a call that has little time and would take more, and gives its end.
func (r *rig) begin(c *agent.Conn, id, command string) <-chan *agent.Outcome {
	r.t.Helper()
	started := make(chan struct{}, 1)
	ended := make(chan *agent.Outcome, 1)
	go func() {
		q := bashCall(id, "echo; "+command)
		q.TimeoutMillis = 2000
		o, err := c.Run(r.t.Context(), q, &sink{hook: func(int64) error {
			select {
			case started <- struct{}{}:
			default:
			}
			return nil
		}})
		if err != nil {
			r.t.Errorf("%s: %v", id, err)
			o = &agent.Outcome{Exit: &run.Exit{}}
		}
		ended <- o
	}()
	<-started
	return ended
}

// The time of a call stands still while it is held: a call with as much time that began later
// has ended before. Then it goes on from where it was.
func TestHold(t *testing.T) {
	r := newRig(t)
	c, _ := r.connect(r.hello())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	good := r.begin(c, "good", until("answer"))
	must(c.Hold("good", time.Minute))
	late := r.begin(c, "late", "sleep 100")
	must(c.Hold("late", time.Minute))
	must(c.Hold("nobody", time.Minute))
	bounded := r.begin(c, "bounded", "sleep 100")
	must(c.Hold("bounded", 3*time.Second)) // and not for longer
	if o := <-r.begin(c, "other", "sleep 100"); o.Exit.Reason != run.ReasonTimeout {
		t.Fatalf("a call that is not held: %+v", o.Exit)
	}
	if o := <-bounded; o.Exit.Reason != run.ReasonTimeout {
		t.Errorf("held for longer than it may be: %+v", o.Exit)
	}
	for _, ended := range []<-chan *agent.Outcome{good, late} {
		select {
		case o := <-ended:
			t.Fatalf("a call that is held has ended: %+v", o.Exit)
		default:
		}
	}
	must(c.Hold("late", 0))
	if o := <-late; o.Exit.Reason != run.ReasonTimeout {
		t.Errorf("after it went on: %+v", o.Exit)
	}
	r.release("answer")
	if o := <-good; o.Exit.Reason != run.ReasonExit || o.Exit.Code != 0 {
		t.Errorf("after the answer: %+v", o.Exit)
	}
}

// A hold ends with its connection, whoever comes next, and one that is read late has no effect.
func TestHoldEndsWithItsConnection(t *testing.T) {
	for _, next := range []bool{false, true} {
		r := newRig(t)
		c, _ := r.connect(r.hello())
		r.server.mu.Lock()
		before := r.server.peer
		r.server.mu.Unlock()
		go func() {
			q := bashCall("a", "echo; sleep 100")
			q.TimeoutMillis = 500
			_, _ = c.Run(t.Context(), q, &sink{}) // the connection is lost
		}()
		for r.server.call("a") == nil {
			time.Sleep(time.Millisecond)
		}
		if err := c.Hold("a", time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := c.Ping(t.Context()); err != nil { // the agent has read it
			t.Fatal(err)
		}
		if !next {
			c.Close()
		}
		c, _ = r.connect(r.hello())
		if err := r.server.takeOther(before, wire.Head{Kind: wire.KindHold, N: 1 << 40}, []byte("a")); err != nil {
			t.Error(err)
		}
		if o, err := c.Resume(t.Context(), "a", 0, &sink{}); err != nil || o.Exit.Reason != run.ReasonTimeout {
			t.Errorf("the next daemon gets %+v, %v", o, err)
		}
	}
}
