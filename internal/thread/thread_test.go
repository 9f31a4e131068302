package thread

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// The main thread is in use by nobody here, so that goroutines do land on it.
func TestRun(t *testing.T) {
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 20 {
				tid, err := Run(func() (int, error) {
					runtime.Gosched()
					return unix.Gettid(), nil
				})
				if err != nil || tid == unix.Getpid() {
					t.Errorf("on thread %d of process %d, %v", tid, unix.Getpid(), err)
				}
			}
		})
	}
	wg.Wait()
	want := errors.New("x")
	if _, err := Run(func() (int, error) { return 0, want }); !errors.Is(err, want) {
		t.Errorf("error %v", err)
	}
}
