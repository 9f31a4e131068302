// Package thread runs functions on threads of their own, where they may have
// another namespace, or another user's rights, than the rest of the process.
package thread

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Run runs f on a thread that nothing else has run on since it changed, or ever
// will: it ends with f. f may leave it as it likes, and must start no goroutine
// that relies on what it is.
//
// The main thread cannot end, and what it is in, /proc/self is of the whole process:
// it is never the one.
func Run[T any](f func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	result := make(chan answer, 1)
	var run func()
	run = func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// As long as this one has the main thread, the next cannot get it.
			over := make(chan struct{})
			go func() { defer close(over); run() }()
			<-over
			runtime.UnlockOSThread()
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
