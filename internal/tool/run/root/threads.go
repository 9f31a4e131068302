package root

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// threads runs functions with the tool user's identity, at most so many at once: each on
// its caller's own thread, which has the identity for so long, because waking another one
// costs more than most functions do.
type threads struct {
	id    identity
	turns chan struct{} // one for each function of do that runs
	loans atomic.Int32  // threads that are lent, or about to be

	mu     sync.Mutex       // guards the fields below
	lent   map[int]struct{} // threads, by their id, on which whole pieces of work run
	broken error
	closed bool
	wg     sync.WaitGroup // functions that run; Add happens under mu
}

var errClosed = errors.New("root is closed")

func newThreads(maximum int, id identity) *threads {
	return &threads{id: id, turns: make(chan struct{}, maximum), lent: make(map[int]struct{})}
}

// do runs f. When ctx ends before its turn has come f does not run; once f runs, do waits
// until it returns.
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
	select {
	case t.turns <- struct{}{}:
	case <-ctx.Done():
		return aborted(ctx)
	}
	defer func() { <-t.turns }()
	return t.run(f)
}

// lend runs f, what of which goes through do is done at once, without a change of identity
// for each. Some work is never lent a thread, so that work that waits for work of other
// goroutines always gets on; f then runs as it is.
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
	return t.run(func() error {
		tid := unix.Gettid()
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
	})
}

// run runs f with the identity. A thread that does not get its own back stays locked to
// its goroutine, and so ends with that; f has run then, which an error would deny.
//
// The main thread keeps its identity always, because the kernel shows it as the process's.
func (t *threads) run(f func() error) error {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		defer runtime.UnlockOSThread()
		return t.elsewhere(f)
	}
	if err := t.enter(); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer t.wg.Done()
	if err := t.id.assume(); err != nil {
		return t.stop(err)
	}
	defer func() {
		if err := errors.Join(t.id.verify(), t.id.giveBack()); err != nil {
			_ = t.stop(err)
			return
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// elsewhere is run on another thread. As long as the caller has its own one locked, the
// other goroutine cannot get that. A panic of f is the caller's.
func (t *threads) elsewhere(f func() error) (err error) {
	var panicked any
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() { panicked = recover() }()
		err = t.run(f)
	})
	wg.Wait()
	if panicked != nil {
		panic(panicked)
	}
	return err
}

// enter counts one more function that runs, unless none may.
func (t *threads) enter() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken != nil {
		return &Error{Code: Broken, Msg: t.broken.Error(), Err: t.broken}
	}
	if t.closed {
		return errClosed
	}
	t.wg.Add(1)
	return nil
}

func (t *threads) mayLend() bool {
	for n := t.loans.Load(); int(n) < cap(t.turns)-1; n = t.loans.Load() {
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

// stop ends all further work: a thread that has the wrong identity means that none can be
// trusted.
func (t *threads) stop(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken == nil {
		t.broken = err
	}
	return &Error{Code: Broken, Msg: err.Error(), Err: err}
}

func (t *threads) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.broken
}

// close waits for the functions that run. No other one is run.
func (t *threads) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.wg.Wait()
}
