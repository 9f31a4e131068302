package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// interruptible gives a context that the first signal cancels, with an
// *interruptedError as its cause, so that commands can let go of what they hold.
// The second signal calls exitNow, which ends the process at once: sessions of
// `run` end then too, by their lease.
//
// SIGPIPE is taken over as well, and then left alone: writing to a closed pipe
// gives EPIPE instead of death, so that `toolctl run … | head` ends its session.
func interruptible(parent context.Context, exitNow func(code int)) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		defer close(done)
		first, ok := <-ch
		if !ok {
			return
		}
		cancel(&interruptedError{first.(syscall.Signal)})
		if second, ok := <-ch; ok {
			exitNow(exitSignal + int(second.(syscall.Signal)))
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(ch)
		<-done
		cancel(nil)
	}
}
