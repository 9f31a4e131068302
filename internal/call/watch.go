package call

import (
	"sync"
	"time"

	"github.com/toold/toold/internal/sandbox"
)

// overdue is how much longer than its deadline a call may take: the agent's
// grace, and time for its outcome to arrive.
const overdue = sandbox.Grace + 7*time.Second

// watched is told how late it is.
type watched interface {
	late()
	lost()
}

// watch is a timer for a call whose agent does not end it. It does not leave the deadline
// to the agent alone: a call that is overdue is late, and one that does not even end then is
// lost with its session.
type watch struct {
	mu    sync.Mutex // guards the fields below
	of    watched
	timer *time.Timer // nil when nothing is watched, or not any more
	again bool        // it was late once
}

// start watches one that has this time; 0 = any time.
func (w *watch) start(of watched, timeout time.Duration) {
	if timeout <= 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of = of
	w.timer = time.AfterFunc(timeout+overdue, w.isLate)
}

func (w *watch) isLate() {
	w.mu.Lock()
	here, again := w.timer != nil, w.again
	if here && !again {
		w.again = true
		w.timer.Reset(overdue)
	}
	w.mu.Unlock()
	switch {
	case !here:
	case again:
		w.of.lost()
	default:
		w.of.late()
	}
}

// stop ends the watch, if there is one.
func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}
