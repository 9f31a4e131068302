package root

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// threadOf is the thread that a piece of work runs on.
func threadOf(t *testing.T, th *threads) int {
	t.Helper()
	tid := 0
	if err := th.do(t.Context(), func() error { tid = unix.Gettid(); return nil }); err != nil {
		t.Error(err)
	}
	return tid
}

// All work of one who has a thread is done on it; that of others is not.
func TestLend(t *testing.T) {
	th := newThreads(3, identity{uid: -1, gid: -1})
	defer th.close()
	ran := false
	if err := th.lend(t.Context(), func() {
		ran = true
		own := unix.Gettid()
		if got := threadOf(t, th); got != own {
			t.Errorf("work on %d, lent was %d", got, own)
		}
		if err := th.lend(t.Context(), func() {
			if unix.Gettid() != own {
				t.Error("lent another one to who has one")
			}
		}); err != nil {
			t.Error(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if got := threadOf(t, th); got == own {
				t.Error("another goroutine's work is done on a thread that is lent")
			}
		})
		wg.Wait()
	}); err != nil || !ran {
		t.Error(err, ran)
	}
	if th.loans.Load() != 0 || len(th.lent) != 0 {
		t.Errorf("%d loans, %v lent", th.loans.Load(), th.lent)
	}
}

// However many want a thread, work that they wait for gets on.
func TestLendLeavesOne(t *testing.T) {
	th := newThreads(2, identity{uid: -1, gid: -1})
	defer th.close()
	var wg, all sync.WaitGroup
	all.Add(4)
	for range 4 {
		wg.Go(func() {
			if err := th.lend(t.Context(), func() {
				all.Done()
				all.Wait() // all of them hold what they got
				done := make(chan struct{})
				go func() { threadOf(t, th); close(done) }()
				<-done
			}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// A thread that has lost its identity does no more work, and ends all others'.
func TestLendWrongIdentity(t *testing.T) {
	th := newThreads(3, identity{uid: -1, gid: -1})
	defer th.close()
	if err := th.lend(t.Context(), func() {
		th.id = identity{uid: 4711, gid: 4711} // which the thread does not have
		var e *Error
		err := th.do(t.Context(), func() error { t.Error("it works"); return nil })
		if !errors.As(err, &e) || e.Code != Broken {
			t.Errorf("%v", err)
		}
	}); err != nil {
		t.Error(err)
	}
	if th.err() == nil || th.do(t.Context(), func() error { return nil }) == nil {
		t.Error("the others go on")
	}
}

func TestLendTooLate(t *testing.T) {
	th := newThreads(3, identity{uid: -1, gid: -1})
	defer th.close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := th.lend(ctx, func() { t.Error("it ran") }); err == nil {
		t.Error("no error")
	}
}

// The caller's own thread has the tool user's identity for as long as it is lent,
// and no longer.
func TestLendGivesBack(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to take the identity of somebody else")
	}
	th := newThreads(3, identity{uid: 1000, gid: 1000})
	defer th.close()
	done := make(chan struct{})
	go func() { // not the test's goroutine: it may be on the main thread
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		own := unix.Gettid()
		if err := th.lend(t.Context(), func() {
			if own != os.Getpid() && unix.Gettid() != own {
				t.Error("it runs on another thread")
			}
			if err := th.id.verifyAll(); err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Error(err)
		}
		if err := (identity{uid: 0, gid: 0}).verify(); err != nil {
			t.Errorf("afterwards: %v", err)
		}
		if err := os.WriteFile(filepath.Join(t.TempDir(), "f"), nil, 0); err != nil {
			t.Errorf("afterwards it has no rights: %v", err)
		}
	}()
	<-done
}

// Who has waited on a thread that was lent to another one meanwhile has nothing.
func TestLendMoves(t *testing.T) {
	th := newThreads(4, identity{uid: -1, gid: -1})
	defer th.close()
	end := time.Now().Add(time.Second)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for time.Now().Before(end) {
				if err := th.lend(t.Context(), func() {}); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for time.Now().Before(end) {
				if th.isLent() {
					t.Error("who was lent nothing has a thread")
					return
				}
			}
		})
	}
	wg.Wait()
}

// A panic in work is that of who waits for it, who can recover it, on whatever thread
// the work was done.
func TestPanicsAreTheCallers(t *testing.T) {
	th := newThreads(2, identity{uid: -1, gid: -1})
	defer th.close()
	for name, do := range map[string]func(f func() error){
		"done": func(f func() error) { _ = th.do(t.Context(), f) },
		"lent": func(f func() error) { _ = th.lend(t.Context(), func() { _ = f() }) },
	} {
		got := any(nil)
		func() {
			defer func() { got = recover() }()
			do(func() error { panic(name) })
		}()
		if got != name {
			t.Errorf("%s: recovered %v", name, got)
		}
	}
	if threadOf(t, th) == 0 || th.loans.Load() != 0 || len(th.lent) != 0 {
		t.Errorf("afterwards: %d loans, %v lent", th.loans.Load(), th.lent)
	}
}
