package mount

import (
	goruntime "runtime"

	"golang.org/x/sys/unix"
)

// OnThread runs f on a thread that nothing else has run on since it changed
// namespaces, or ever will: it ends with f. f may leave it as it likes.
//
// The main thread cannot end, and what it is in, /proc/self is of the whole process:
// it is never the one.
func OnThread[T any](f func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	result := make(chan answer, 1)
	var run func()
	run = func() {
		goruntime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// As long as this one has the main thread, the next cannot get it.
			over := make(chan struct{})
			go func() { defer close(over); run() }()
			<-over
			goruntime.UnlockOSThread()
			return
		}
		v, err := f()
		result <- answer{v, err}
		// Not unlocked: the thread ends with the goroutine.
	}
	go run()
	a := <-result
	return a.value, a.err
}
