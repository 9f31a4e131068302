package inside

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long work may go on before somebody else listens.
const patience = 2 * time.Millisecond

// relay sees to it that somebody listens to a connection while a request of it is
// worked on. Who has read the request works on it and then listens again: to wake
// a goroutine only to listen costs more than most files do. When the work takes
// longer than patience another goroutine is started to listen, and the worker's
// ends with its work.
//
// The time is measured by a timer of the kernel's, because the runtime wakes a
// thread when it is given a timer that fires before all others, which is what this
// is to save.
type relay struct {
	patience time.Duration
	listen   func()          // starts a goroutine that listens
	wg       *sync.WaitGroup // for the one that waits for the timer

	mu      sync.Mutex // guards the fields below
	timer   *os.File   // nil before the first work
	fd      int        // of timer
	untimed bool       // no timer is to be had, and nobody listens after work
	turns   uint64     // works that have begun
	turn    uint64     // the one whose worker is to listen again; 0: somebody listens
}

// begin is called by the listener before it works; end takes what it gives.
func (r *relay) begin() (turn uint64) {
	r.mu.Lock()
	r.turns++
	turn = r.turns
	alone := r.set(r.patience)
	if alone {
		r.turn = turn
	}
	r.mu.Unlock()
	if !alone {
		r.listen()
	}
	return turn
}

// end reports whether the caller, whose work is done, is to listen again.
func (r *relay) end(turn uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.turn != turn {
		return false
	}
	r.turn = 0
	r.set(0)
	return true
}

// close is called by the last listener.
func (r *relay) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		_ = r.timer.Close()
	}
}

// set starts the timer, or stops it where after is 0. The caller holds mu.
func (r *relay) set(after time.Duration) bool {
	if r.untimed || r.timer == nil && !r.start() {
		return false
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(after))}
	return unix.TimerfdSettime(r.fd, 0, &spec, nil) == nil
}

// start makes the timer. The caller holds mu.
func (r *relay) start() bool {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		r.untimed = true
		return false
	}
	timer := os.NewFile(uintptr(fd), "timer")
	r.fd, r.timer = fd, timer
	r.wg.Go(func() { r.watch(timer) })
	return true
}

// watch waits for the timer until it is closed.
func (r *relay) watch(timer *os.File) {
	var fired [8]byte
	for {
		if _, err := timer.Read(fired[:]); err != nil {
			break
		}
		r.pass()
	}
	r.mu.Lock()
	r.untimed = true
	r.mu.Unlock()
	r.pass()
}

// pass lets another goroutine listen where a worker would. The timer may have been
// for the work before; then it is done sooner than it must be.
func (r *relay) pass() {
	r.mu.Lock()
	due := r.turn != 0
	r.turn = 0
	r.mu.Unlock()
	if due {
		r.listen()
	}
}
