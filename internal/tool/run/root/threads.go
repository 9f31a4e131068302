package root

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// threads runs functions on system threads that have the tool user's identity.
// Threads are started on demand, at most max, and end when they have been idle:
// their goroutine stays locked to them for good, so the runtime throws the
// thread away and its identity never reaches other goroutines.
type threads struct {
	max  int
	idle time.Duration
	id   identity

	loans atomic.Int32 // threads that are lent, or about to be

	mu     sync.Mutex       // guards the fields below
	lent   map[int]struct{} // threads, by their id, on which whole pieces of work run
	n      int              // threads that exist
	free   []*thread        // waiting for work, the longest unused first
	queue  []*job           // waiting for a thread
	broken error
	closed bool
	wg     sync.WaitGroup // threads that exist; Add happens under mu
}

type thread struct{ work chan *job } // work holds at most one job

type job struct {
	f        func() error
	err      error
	panicked any // by f; it is the panic of who waits for the job
	done     chan struct{}
}

// run does the job, and says so whatever becomes of it.
func (j *job) run() {
	defer close(j.done)
	defer func() { j.panicked = recover() }()
	j.err = j.f()
}

// result is what f has returned.
func (j *job) result() error {
	if j.panicked != nil {
		panic(j.panicked)
	}
	return j.err
}

var errClosed = errors.New("root is closed")

func newThreads(maximum int, idle time.Duration, id identity) *threads {
	return &threads{max: maximum, idle: idle, id: id, lent: make(map[int]struct{})}
}

// do runs f on a thread and waits for it. When ctx ends before a thread is free,
// f does not run; once f runs, do waits until it returns.
func (t *threads) do(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return aborted(ctx)
	}
	if t.isLent() {
		if err := t.id.verify(); err != nil {
			return t.stop(err)
		}
		return f()
	}
	j := &job{f: f, done: make(chan struct{})}
	if err := t.submit(j); err != nil {
		return err
	}
	select {
	case <-j.done:
		return j.result()
	case <-ctx.Done():
	}
	if t.withdraw(j) {
		return aborted(ctx)
	}
	<-j.done
	return j.result()
}

// lend runs f on a thread, where what it does through do is done at once instead
// of on another thread: the caller's own, which has the tool user's identity for so
// long, because waking another one costs more than most of what f does. Only the
// main thread is not lent. Some work is never lent a thread, so that work that waits
// for work of other goroutines always gets on; f then runs as it is.
func (t *threads) lend(ctx context.Context, f func()) error {
	if !t.mayLend() {
		f()
		return nil
	}
	defer t.loans.Add(-1)
	if err := ctx.Err(); err != nil {
		return aborted(ctx)
	}
	if t.isLent() {
		f()
		return nil
	}
	work := func(tid int) error {
		t.mu.Lock()
		t.lent[tid] = struct{}{}
		t.mu.Unlock()
		defer func() {
			t.mu.Lock()
			delete(t.lent, tid)
			t.mu.Unlock()
		}()
		f()
		return nil
	}
	runtime.LockOSThread()
	tid := unix.Gettid()
	if tid == os.Getpid() {
		runtime.UnlockOSThread()
		return t.do(ctx, func() error { return work(unix.Gettid()) })
	}
	return t.here(func() error { return work(tid) })
}

// here runs f on the calling thread, to which the caller has locked itself. A
// thread that does not get its own identity back stays locked, and so ends with
// the caller; f has run then, which an error would deny.
func (t *threads) here(f func() error) error {
	if err := t.enter(); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer t.wg.Done()
	if err := t.id.assume(); err != nil {
		return t.stop(err)
	}
	defer func() {
		if back := t.id.giveBack(); back != nil {
			_ = t.stop(back)
			return
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// enter counts one more thread that works, unless none may.
func (t *threads) enter() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.ready(); err != nil {
		return err
	}
	t.wg.Add(1)
	return nil
}

// ready says why no work is taken. The caller holds mu.
func (t *threads) ready() error {
	if t.broken != nil {
		return &Error{Code: Broken, Msg: t.broken.Error(), Err: t.broken}
	}
	if t.closed {
		return errClosed
	}
	return nil
}

func (t *threads) mayLend() bool {
	for n := t.loans.Load(); int(n) < t.max-1; n = t.loans.Load() {
		if t.loans.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// isLent reports whether the caller runs on a thread that is lent. No other
// goroutine can: the one that it was lent to is locked to it.
func (t *threads) isLent() bool {
	if t.loans.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// Under the lock: a thread that a caller has been on before it waited may have
	// been lent to another one since.
	_, ok := t.lent[unix.Gettid()]
	return ok
}

func (t *threads) submit(j *job) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.ready(); err != nil {
		return err
	}
	switch {
	case len(t.free) > 0:
		last := len(t.free) - 1
		t.free[last].work <- j
		t.free = t.free[:last]
	case t.n < t.max:
		t.n++
		t.wg.Add(1)
		go t.run(&thread{work: make(chan *job, 1)}, j)
	default:
		t.queue = append(t.queue, j)
	}
	return nil
}

// withdraw takes j out of the queue; false means that a thread has it.
func (t *threads) withdraw(j *job) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.queue, j)
	if i < 0 {
		return false
	}
	t.queue = slices.Delete(t.queue, i, i+1)
	return true
}

// run is a thread's life. The main thread must keep its identity, because the
// kernel shows it as the process's: a goroutine that finds itself there starts
// another while it still holds the thread, and gives way.
func (t *threads) run(th *thread, j *job) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		locked := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(locked)
			t.serve(th, j)
		}()
		<-locked
		runtime.UnlockOSThread()
		return
	}
	t.serve(th, j)
}

func (t *threads) serve(th *thread, j *job) {
	defer t.wg.Done()
	err := t.id.assume()
	for j != nil {
		if err == nil {
			err = t.id.verify()
		}
		if err != nil {
			t.fail(j, err)
			return
		}
		j.run()
		j = t.next(th)
	}
}

// next waits for th's next job; nil means that the thread ends.
func (t *threads) next(th *thread) *job {
	t.mu.Lock()
	if len(t.queue) > 0 {
		j := t.queue[0]
		t.queue = slices.Delete(t.queue, 0, 1)
		t.mu.Unlock()
		return j
	}
	if t.closed {
		t.n--
		t.mu.Unlock()
		return nil
	}
	t.free = append(t.free, th)
	t.mu.Unlock()

	timer := time.NewTimer(t.idle)
	defer timer.Stop()
	select {
	case j := <-th.work:
		return j
	case <-timer.C:
	}
	t.mu.Lock()
	if i := slices.Index(t.free, th); i >= 0 {
		t.free = slices.Delete(t.free, i, i+1)
		t.n--
		t.mu.Unlock()
		return nil
	}
	t.mu.Unlock()
	return <-th.work // it was taken off the list with a job
}

// fail ends the thread's life, and with it the service of all threads.
func (t *threads) fail(j *job, err error) {
	j.err = t.stop(err)
	close(j.done)
	t.mu.Lock()
	t.n--
	t.mu.Unlock()
}

// stop ends the service of all threads: one that has the wrong identity means
// that none can be trusted.
func (t *threads) stop(err error) error {
	t.mu.Lock()
	if t.broken == nil {
		t.broken = err
	}
	queue := t.queue
	t.queue = nil
	t.mu.Unlock()
	e := &Error{Code: Broken, Msg: err.Error(), Err: err}
	for _, j := range queue {
		j.err = e
		close(j.done)
	}
	return e
}

func (t *threads) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.broken
}

// close lets queued work finish, ends all threads and waits for them.
func (t *threads) close() {
	t.mu.Lock()
	t.closed = true
	free := t.free
	t.free = nil
	t.n -= len(free)
	t.mu.Unlock()
	for _, th := range free {
		th.work <- nil
	}
	t.wg.Wait()
}
