package exec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/tool/run"
)

// startError is a program that could not be started.
type startError struct {
	step  step
	errno syscall.Errno
	argv0 string
	dir   string
}

func (e *startError) Error() string {
	switch e.step {
	case stepExec:
		return fmt.Sprintf("start %s: %v", e.argv0, e.errno)
	case stepDir:
		return fmt.Sprintf("working directory %s: %v", e.dir, e.errno)
	default:
		return fmt.Sprintf("start %s: %s: %v", e.argv0, e.step, e.errno)
	}
}

// Unwrap makes errors.Is(err, fs.ErrNotExist) and the like work.
func (e *startError) Unwrap() error { return e.errno }

// startRequest is what the fork thread starts.
type startRequest struct {
	argv, env []string
	paths     []string // candidates for argv[0]
	dir       string
	split     bool        // two pipes
	input     bool        // a pipe as its standard input
	waits     bool        // a shell that waits: argv and env end as it wants them
	unseen    []string    // directories that are kept from it
	group     group       // of the program; removed when it does not start
	over      func(group) // called with the group before that; may be nil
	reply     chan startReply
}

type startReply struct {
	pid    int
	exit   <-chan ended
	stdout int // read ends, non-blocking; stderr is -1 without split
	stderr int
	stdin  int // the write end, non-blocking; -1 without input
	handle     // where it was asked for
	err    error
}

// spawner owns the one thread that starts all programs. The daemon puts that
// thread, by its id, under the limits of the tools, which every program then
// inherits from its first instruction on; the agent's other threads stay outside.
type spawner struct {
	uid, gid int // -1: the agent's own, for tests
	limits   []limit
	ignored  []uintptr
	landlock landlock
	devNull  int
	children *reaper

	tid      int
	secret   [2]uintptr // of the thread's filter
	gate     *gate      // of that filter; nil for none
	note     string     // about the gate
	requests chan *startRequest
	ended    chan struct{}
	given    sync.WaitGroup // starts that nobody waits for any more
}

// startTime is how long a program may take to start, with those before it. One
// that hangs on its way, in a file system that does not answer, keeps the thread
// from starting others.
const startTime = 20 * time.Second

var errStartTime = run.Errorf(run.CodeSandboxFailed,
	"no program has started for %v; the one before may hang in a file system that does not answer", startTime)

// start begins the thread's life. After an error there is no thread.
func (s *spawner) start() error {
	s.requests, s.ended = make(chan *startRequest), make(chan struct{})
	ready := make(chan error)
	go s.serve(ready)
	return <-ready
}

// stop ends the thread. It is false when the thread hangs; it then ends with the
// process.
func (s *spawner) stop() bool {
	close(s.requests)
	over := make(chan struct{})
	go func() {
		defer close(over)
		<-s.ended
		s.given.Wait()
	}()
	t := time.NewTimer(dying)
	defer t.Stop()
	select {
	case <-over:
		return true
	case <-t.C:
		return false
	}
}

func (s *spawner) serve(ready chan<- error) {
	// Never unlocked: the thread has cgroups and a filter of its own and must not
	// come to run anything else. It ends with this goroutine.
	runtime.LockOSThread()
	defer close(s.ended)
	s.tid = unix.Gettid()
	own, err := newSecret()
	if err == nil {
		s.gate, s.note, err = loadFilters(own)
	}
	s.secret = [2]uintptr{uintptr(own[0]), uintptr(own[1])}
	if ready <- err; err != nil {
		return
	}
	for r := range s.requests {
		r.reply <- s.spawn(r)
	}
}

// run starts a program from any goroutine. It gives up when ctx ends, and after
// startTime; a program that starts all the same is killed.
func (s *spawner) run(ctx context.Context, r *startRequest) (startReply, error) {
	r.reply = make(chan startReply, 1)
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, errStartTime)
	defer cancel()
	select {
	case s.requests <- r:
	case <-ctx.Done():
		r.abandon()
		return startReply{}, context.Cause(ctx)
	}
	select {
	case reply := <-r.reply:
		if reply.err != nil {
			r.abandon()
		}
		return reply, reply.err
	case <-ctx.Done():
		s.given.Go(func() { s.discard(r) })
		return startReply{}, context.Cause(ctx)
	}
}

// abandon lets go of the group of a program that has not been started. What comes
// last is its removal, after which it may be another program's.
func (r *startRequest) abandon() {
	vanish(r.group)
	if r.over != nil {
		r.over(r.group)
	}
	r.group.remove()
}

// discard ends a program that nobody waits for any more, and one that is still on
// its way as far as that can be.
func (s *spawner) discard(r *startRequest) {
	r.group.kill()
	reply := <-r.reply
	if reply.err == nil {
		if g, ok := r.group.(*tagged); ok {
			g.sid = reply.pid
		}
		r.group.kill()
		_ = unix.Kill(reply.pid, unix.SIGKILL)
		reply.close(r)
		t := time.NewTimer(dying)
		defer t.Stop()
		select {
		case <-reply.exit:
		case <-t.C:
		}
	}
	r.abandon()
}

// close closes what the agent holds of a program that has been killed.
func (y *startReply) close(r *startRequest) {
	_ = unix.Close(y.stdout)
	if r.split {
		_ = unix.Close(y.stderr)
	}
	if r.input {
		_ = unix.Close(y.stdin)
	}
	if r.waits {
		y.handle.close()
	}
}

// spawn works on the fork thread.
func (s *spawner) spawn(r *startRequest) startReply {
	plan, err := s.plan(r)
	if err != nil {
		return startReply{err: err}
	}
	if len(r.unseen) > 0 {
		if plan.landlock, err = s.without(r.unseen); err != nil {
			return startReply{err: run.Errorf(run.CodeSandboxFailed, "start %s: keep %s from it: %v", r.argv[0], strings.Join(r.unseen, ", "), err)}
		}
		defer func() { _ = unix.Close(plan.landlock) }()
	}
	pipes, err := s.pipes(r)
	if err != nil {
		return startReply{err: fmt.Errorf("start %s: pipe: %w", r.argv[0], err)}
	}
	plan.stdio = [3]int{s.devNull, pipes.out[1], pipes.errOut[1]}
	if r.input {
		plan.stdio[0] = pipes.in[0]
	}
	plan.script = pipes.script[0]
	pid, exit := s.children.fork(func() int { return forkExec(plan) }, func() bool { return plan.failed == stepNone })
	for _, fd := range pipes.child(r) {
		_ = unix.Close(fd)
	}
	reply := startReply{
		pid: pid, exit: exit, stdout: pipes.out[0], stderr: pipes.errOut[0], stdin: pipes.in[1],
		handle: handle{script: pipes.script[1], mem: -1},
	}
	switch {
	case plan.failed != stepNone:
		reply.err = &startError{step: plan.failed, errno: plan.errno, argv0: r.argv[0], dir: r.dir}
	case r.waits:
		if reply.err = s.asTool(func() error { return reply.openMemory(pid) }); reply.err != nil {
			_ = unix.Kill(pid, unix.SIGKILL) // before its pipe is closed
		}
	}
	if reply.err != nil {
		reply.close(r)
	}
	runtime.KeepAlive(plan)
	return reply
}

// without makes the ruleset of a program from which directories are kept. What root, without its rights, may not list
// for the modes of an image, the tool user may, whom the ruleset is for.
func (s *spawner) without(unseen []string) (fd int, err error) {
	fd, err = s.landlock.without(unseen)
	if errors.Is(err, fs.ErrPermission) {
		err = s.asTool(func() (err error) {
			fd, err = s.landlock.without(unseen)
			return err
		})
	}
	return fd, err
}

// programPipes are the pipes of one program; an end that there is not is -1. The
// reading ends of the script and of in are the program's, of the others the agent's.
type programPipes struct{ out, errOut, script, in [2]int }

// child are the ends that the program has.
func (p *programPipes) child(r *startRequest) []int {
	fds := append(make([]int, 0, 4), p.out[1])
	if r.input {
		fds = append(fds, p.in[0])
	}
	if r.split {
		fds = append(fds, p.errOut[1])
	}
	if r.waits {
		fds = append(fds, p.script[0])
	}
	return fds
}

// pipes makes the pipes of r with the tool user as owner: /dev/stdout can then
// be opened again by the programs that like to.
func (s *spawner) pipes(r *startRequest) (p programPipes, err error) {
	none := [2]int{-1, -1}
	p = programPipes{out: none, errOut: none, script: none, in: none}
	err = s.asTool(func() (err error) {
		if p.out, err = newPipe(0); err != nil {
			return err
		}
		if r.input {
			if p.in, err = newPipe(1); err != nil {
				closePipe(p.out)
				return err
			}
		}
		switch {
		case r.split:
			p.errOut, err = newPipe(0)
		case r.waits:
			p.script, err = scriptPipe()
		}
		if err != nil {
			closePipe(p.out)
			closePipe(p.in)
		}
		return err
	})
	if !r.split {
		p.errOut = [2]int{-1, p.out[1]}
	}
	return p, err
}

// asTool runs f with the tool user's ids as the effective ones of this thread, which
// are changed raw, because Go's own calls change every thread of the process.
func (s *spawner) asTool(f func() error) error {
	if s.uid < 0 {
		return f()
	}
	if err := setEffective(s.uid, s.gid); err != nil {
		return err
	}
	err := f()
	// Without its rights the thread can start nothing any more.
	return errors.Join(err, setEffective(unix.Getuid(), unix.Getgid()))
}

func setEffective(uid, gid int) error {
	const keep = ^uintptr(0)
	// Going down, the group first; going up, the user first: each step needs
	// the rights that the other one takes or gives.
	calls := [2][4]uintptr{{unix.SYS_SETRESGID, keep, uintptr(gid), keep}, {unix.SYS_SETRESUID, keep, uintptr(uid), keep}}
	if uid == unix.Getuid() {
		calls[0], calls[1] = calls[1], calls[0]
	}
	for _, c := range calls {
		if _, _, e := syscall.RawSyscall(c[0], c[1], c[2], c[3]); e != 0 {
			return e
		}
	}
	return nil
}

const pipeSize = 256 << 10

// newPipe makes a pipe whose end of this index is the agent's and does not block.
func newPipe(own int) ([2]int, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return fds, err
	}
	if err := unix.SetNonblock(fds[own], true); err != nil {
		closePipe(fds)
		return fds, err
	}
	// A larger pipe saves switches where the kernel allows it, and is no loss where not.
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize)
	return fds, nil
}

func closePipe(p [2]int) {
	_ = unix.Close(p[0])
	_ = unix.Close(p[1])
}

// plan lays out what the child needs.
func (s *spawner) plan(r *startRequest) (*childPlan, error) {
	p := &childPlan{
		uid: s.uid, gid: s.gid, limits: s.limits, ignored: s.ignored,
		landlock: s.landlock.scope, secret: s.secret, script: -1,
		// The path was resolved before. A symbolic link in it has come since, and
		// would lead to a place that nobody has agreed to.
		how: unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS},
	}
	if fd := r.group.fd(); fd >= 0 {
		p.clone = &cloneArgs{flags: vforkFlags | cloneClearSighand | cloneIntoCgroup, exitSignal: uint64(unix.SIGCHLD), cgroup: uint64(fd)}
	}
	if g, ok := r.group.(*tagged); ok && g.tag != 0 {
		p.tag, p.tags = g.tag, 1
	}
	var err error
	if p.dir, err = syscall.BytePtrFromString(r.dir); err != nil {
		return nil, &startError{step: stepDir, errno: syscall.EINVAL, argv0: r.argv[0], dir: strings.ReplaceAll(r.dir, "\x00", "\\0")}
	}
	for _, l := range []struct {
		to   ***byte
		from []string
	}{{&p.argv, r.argv}, {&p.envp, r.env}, {&p.paths, r.paths}} {
		list, err := syscall.SlicePtrFromStrings(l.from)
		if err != nil {
			return nil, &startError{step: stepExec, errno: syscall.EINVAL, argv0: strings.ReplaceAll(r.argv[0], "\x00", "\\0")}
		}
		*l.to = &list[0]
	}
	return p, nil
}
