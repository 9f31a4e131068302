package call

import (
	"sync"
	"time"

	"github.com/toold/toold/internal/deadline"
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
	clock *deadline.Clock // nil when nothing is watched, or not any more
	end   func()          // stops what is to come
	again bool            // it was late once
}

// start watches one that has this time; 0 = any time.
func (w *watch) start(of watched, timeout time.Duration) {
	if timeout <= 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of, w.clock = of, deadline.New()
	w.end = w.clock.AfterFunc(timeout+overdue, w.isLate)
}

func (w *watch) isLate() {
	w.mu.Lock()
	here, again := w.clock != nil, w.again
	if here && !again {
		w.again = true
		w.end = w.clock.AfterFunc(overdue, w.isLate)
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

// hold lets the time stand still, for most from the beginning; 0 lets it go on.
func (w *watch) hold(most time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.clock == nil:
	case most > 0:
		w.clock.Hold(most + overdue)
	default:
		w.clock.Release()
	}
}

// stop ends the watch, if there is one.
func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.clock != nil {
		w.end()
		w.clock = nil
	}
}
