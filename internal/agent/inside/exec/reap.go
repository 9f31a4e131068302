package exec

import (
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ended is how a child ended.
type ended struct {
	status unix.WaitStatus
	usage  unix.Rusage
}

// reaper waits for the agent's children: those it started and, as PID 1, all
// orphans of the sandbox. It is the only one that waits, so that the status of
// a program always reaches the call that it belongs to.
type reaper struct {
	orphans bool // PID 1: wait for everybody

	mu       sync.Mutex         // guards the fields below
	children map[int]chan ended // running programs by pid
	forking  bool               // a child may be there that is not yet in children
	early    map[int]ended      // who has ended meanwhile

	wake chan struct{} // a child may be there
	quit chan struct{}
	wg   sync.WaitGroup
}

func newReaper(orphans bool) *reaper {
	r := &reaper{
		orphans: orphans, children: make(map[int]chan ended), early: make(map[int]ended),
		wake: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	if orphans {
		quietChildren()
		r.wg.Go(r.serve)
	}
	return r
}

// maxEarly bounds what is kept of orphans that end during a fork that takes long.
const maxEarly = 1024

// fork runs f, which starts a child and gives its pid. exit brings the child's
// end, also when that comes before f returns: a child that hangs on its way to
// its program does not keep the reaper from others. A child that did not get as
// far as its program is waited for here. One fork at a time.
func (r *reaper) fork(f func() int, ok func() bool) (pid int, exit <-chan ended) {
	r.mu.Lock()
	r.forking = true
	r.mu.Unlock()
	pid = f()
	r.mu.Lock()
	defer r.mu.Unlock()
	e, over := r.early[pid]
	r.forking = false
	clear(r.early)
	if pid <= 0 {
		return 0, nil
	}
	if !ok() {
		if !over {
			_, _ = unix.Wait4(pid, nil, 0, nil)
		}
		return 0, nil
	}
	ch := make(chan ended, 1)
	switch {
	case over:
		ch <- e
		return pid, ch
	case !r.orphans:
		r.wg.Go(func() { waitOne(pid, ch) })
		return pid, ch
	}
	r.children[pid] = ch
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return pid, ch
}

// gone hands on the end of a child.
func (r *reaper) gone(pid int, e ended) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ch := r.children[pid]; ch != nil {
		delete(r.children, pid)
		ch <- e
		return
	}
	if !r.forking {
		return // an orphan
	}
	if len(r.early) >= maxEarly {
		// The child in question ends last: its end is what ends the fork.
		clear(r.early)
	}
	r.early[pid] = e
}

func waitOne(pid int, ch chan<- ended) {
	var e ended
	for {
		_, err := unix.Wait4(pid, &e.status, 0, &e.usage)
		if err != unix.EINTR {
			break
		}
	}
	ch <- e
}

// serve waits for children one after the other, in a blocking call as long as
// there are any: that is quicker than a signal and a call. When there are none,
// there are no orphans either: an ancestor of each process of the sandbox is a
// child of PID 1. (One that came from outside may leave orphans behind, which
// then stay until the next program.)
func (r *reaper) serve() {
	for {
		var e ended
		pid, err := unix.Wait4(-1, &e.status, 0, &e.usage)
		if err == unix.EINTR {
			continue
		}
		if err == nil {
			r.gone(pid, e)
			continue
		}
		select { // no children
		case <-r.wake:
		case <-r.quit:
			return
		}
	}
}

// quietChildren makes the kernel send no signal when a child ends. The runtime's
// handler would only interrupt a thread to throw it away. It is not the same as
// ignoring the signal, with which children could not be waited for.
func quietChildren() {
	var def sigaction
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), uintptr(unsafe.Pointer(&def)), 0, 8, 0, 0)
}

// stop ends the reaper; all children must have ended.
func (r *reaper) stop() {
	close(r.quit)
	r.wg.Wait()
}
