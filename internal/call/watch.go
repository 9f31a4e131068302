package call

import (
	"sync"
	"time"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/tool/run"
)

// overdue is how much longer than its deadline a call may take: the agent's
// grace, and time for its outcome to arrive.
const overdue = sandbox.Grace + 7*time.Second

// watch is a timer for a call whose agent does not end it.
type watch struct {
	mu    sync.Mutex  // guards the fields below
	timer *time.Timer // nil when nothing is watched, or not any more
	late  bool        // it was late once
}

// watchDeadline does not leave the deadline to the agent alone: a call that is
// overdue is aborted, and a session that does not even end it then is lost.
func (c *Call) watchDeadline() {
	if c.timeout <= 0 {
		return
	}
	c.watch.mu.Lock()
	defer c.watch.mu.Unlock()
	c.watch.timer = time.AfterFunc(c.timeout+overdue, c.isLate)
}

func (c *Call) isLate() {
	w := &c.watch
	w.mu.Lock()
	watched, again := w.timer != nil, w.late
	if watched && !again {
		w.late = true
		w.timer.Reset(overdue)
	}
	w.mu.Unlock()
	switch {
	case !watched:
	case again:
		c.g.svc.Work.Go(func() { c.g.place.Lose("its agent did not end call " + c.id + " in time") })
	default:
		c.abort(run.ReasonTimeout)
	}
}

// stopWatch ends the watch over the deadline, if there is one.
func (c *Call) stopWatch() {
	c.watch.mu.Lock()
	defer c.watch.mu.Unlock()
	if c.watch.timer != nil {
		c.watch.timer.Stop()
		c.watch.timer = nil
	}
}
