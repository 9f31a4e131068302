package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/deadline"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/wire"
)

const (
	// grace is how long the processes of a call have between SIGTERM and SIGKILL, all of
	// them together.
	grace = 3 * time.Second
	// drain is how long what a program has left behind may go on.
	drain = 250 * time.Millisecond
	// dying is how long a killed process may take to end before it is given up:
	// one that hangs in the kernel, in a file system that does not answer, cannot
	// be ended at all.
	dying = 10 * time.Second
	// drainPoll is when it is looked for the first time whether anything is left
	// in a group whose leader has ended; then more and more seldom.
	drainPoll = 100 * time.Microsecond
)

// errUndying: a process does not end.
var errUndying = errors.New("it was killed and does not end; it hangs in the kernel, perhaps in a file system that does not answer")

// running is one program.
type running struct {
	group  group
	exit   <-chan ended
	pid    int
	pumps  []*pump
	feed   *feed // of its standard input; nil without one
	began  time.Time
	reason run.Reason    // set when we end it
	limit  limitHit      // that it ran into, where the agent knows
	bill   usage         // of the whole group
	before time.Duration // processor time that was used before it was ours
	dying  time.Duration
	asked  time.Time // when the grace is over; zero: they were not asked to end
	git    bool      // a git was killed that may have left locks
}

// Run is run.Env's Exec: it starts c and returns when its leader has ended and what it
// left behind has been drained and killed.
func (p *Programs) Run(ctx context.Context, c run.Command) (*run.Exit, error) {
	p.ipc.enter()
	defer p.ipc.leave()
	r, err := p.begin(ctx, c)
	if err != nil {
		return nil, err
	}
	e, err := r.wait(ctx, c.Timeout)
	background, names := r.settle()
	r.feed.stop()
	for _, one := range r.pumps {
		if perr := one.wait(); err == nil {
			err = perr
		}
	}
	if errors.Is(err, errUndying) {
		p.shells.leave(r.group)
		return nil, run.Errorf(run.CodeSandboxFailed, "%s: %v", c.Argv[0], err)
	}
	exit := r.report(e)
	exit.BackgroundKilled, exit.BackgroundNames = background, names
	if r.git {
		exit.Locks = locksBehind(cmp.Or(c.Dir, p.dir), r.began)
	}
	noteFull(exit, p.own, p.others)
	exit.Unseen = c.Unseen
	p.shells.leave(r.group)
	return exit, err
}

func (p *Programs) begin(ctx context.Context, c run.Command) (*running, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if len(c.Argv) == 0 {
		return nil, run.Errorf(run.CodeInternal, "a program without a name")
	}
	if err := wire.CheckEnv(c.Env); err != nil {
		return nil, err
	}
	w, err := p.shells.enter(ctx, c)
	if err != nil {
		return nil, err
	}
	if w != nil {
		return &running{
			group: w.group, exit: w.exit, pid: w.pid, began: time.Now(), before: w.used, dying: dying,
			pumps: []*pump{newPump(w.output, c.Stdout)},
		}, nil
	}
	return p.spawn(ctx, c)
}

// spawn starts c as a program of its own.
func (p *Programs) spawn(ctx context.Context, c run.Command) (*running, error) {
	env := p.env
	if len(c.Env) > 0 {
		env = mergeEnv(env, c.Env)
	}
	dir := cmp.Or(c.Dir, p.dir)
	g, err := p.groups.make()
	if err != nil {
		p.shells.over(g)
		return nil, run.Errorf(run.CodeSandboxFailed, "start %s: %v", c.Argv[0], err)
	}
	label(g, c.Call)
	split := c.Stderr != nil && c.Stderr != c.Stdout
	reply, err := p.spawner.run(ctx, &startRequest{
		argv: c.Argv, env: env, paths: candidates(c.Argv[0], p.path),
		dir: dir, split: split, input: c.Stdin != "", group: g, over: p.shells.over, unseen: c.Unseen,
	})
	if err != nil {
		return nil, err
	}
	if s, ok := g.(*tagged); ok {
		s.sid = reply.pid
	}
	r := &running{group: g, exit: reply.exit, pid: reply.pid, began: time.Now(), dying: dying}
	if c.Stdin != "" {
		r.feed = newFeed(os.NewFile(uintptr(reply.stdin), "pipe"), c.Stdin)
	}
	r.pumps = append(r.pumps, newPump(os.NewFile(uintptr(reply.stdout), "pipe"), c.Stdout))
	if split {
		r.pumps = append(r.pumps, newPump(os.NewFile(uintptr(reply.stderr), "pipe"), c.Stderr))
	}
	return r, nil
}

// candidates are the paths to try for a program.
func candidates(name string, path []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	list := make([]string, 0, len(path))
	for _, dir := range path {
		list = append(list, dir+"/"+name)
	}
	return list
}

// wait returns when the leader has ended, and makes it end when ctx or the
// timeout say so: SIGTERM, and the grace later SIGKILL, both to all processes. One that fills
// the host's disk or memory has no grace.
func (r *running) wait(ctx context.Context, timeout time.Duration) (ended, error) {
	late := make(chan struct{})
	if timeout > 0 {
		defer deadline.AfterFunc(ctx, timeout, func() { close(late) })()
	}
	select {
	case e := <-r.exit:
		return e, nil
	case <-late:
		r.reason = run.ReasonTimeout
	case <-ctx.Done():
		r.reason = ReasonOf(ctx)
	}
	if r.ask(r.group.pids()) {
		select {
		case e := <-r.exit:
			return e, nil
		case <-time.After(time.Until(r.asked)):
		}
	}
	r.kill(r.group.pids())
	_ = unix.Kill(r.pid, unix.SIGKILL) // the leader is ours and not yet waited for
	t := time.NewTimer(r.dying)
	defer t.Stop()
	select {
	case e := <-r.exit:
		return e, nil
	case <-t.C:
		return ended{}, errUndying
	}
}

// ask sends SIGTERM to processes, so that a git takes its lock away and a server removes its
// socket, and says whether they have a grace then. There is one for a call, which begins when
// the first of it is asked.
func (r *running) ask(pids []int) bool {
	if r.reason == run.ReasonDisk || r.reason == run.ReasonMemory { // every moment counts: it takes more
		return false
	}
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGTERM)
		_ = unix.Kill(pid, unix.SIGCONT) // a stopped process has to see it
	}
	if r.asked.IsZero() {
		r.asked = time.Now().Add(grace)
	}
	return true
}

// kill ends the group, of which these are left.
func (r *running) kill(pids []int) {
	r.git = r.git || slices.ContainsFunc(pids, func(pid int) bool { return strings.HasPrefix(nameOf(pid), "git") })
	r.group.kill()
}

// settle gives what the leader left behind the drain time, asks it to end then, and
// kills it where it has not done so by the end of the grace. It returns the number of
// processes that had to be ended, and names of them. Output that is already in a pipe is
// still read afterwards, however long the daemon is away.
func (r *running) settle() (ended int, names []string) {
	late := time.Now().Add(drain)
	quiet := r.closed(late) && r.reason != run.ReasonOutputLimit
	r.group.bill(&r.bill)
	r.limit = r.group.limit()
	if quiet && r.emptied(late) || r.group.empty() {
		r.finish()
		return 0, nil
	}
	pids := r.group.pids()
	ended, names = len(pids), namesOf(pids)
	if !r.ask(pids) || !r.emptied(r.asked) {
		r.kill(r.group.pids())
	}
	vanish(r.group)
	reaped(pids)
	r.finish()
	return ended, names
}

// emptied waits until nobody of the group is alive; it is false when that has not come
// about by then.
func (r *running) emptied(late time.Time) bool {
	for wait := drainPoll; !r.group.empty(); wait = min(2*wait, 100*drainPoll) {
		if time.Now().After(late) {
			return false
		}
		time.Sleep(wait)
	}
	return true
}

// finish ends the reading of output when nobody is left who could write.
func (r *running) finish() {
	for _, p := range r.pumps {
		p.finish()
	}
}

// namesOf are what the kernel calls the first of some processes.
func namesOf(pids []int) []string {
	var names []string
	for _, pid := range pids[:min(len(pids), run.MaxBackgroundNames)] {
		if name := nameOf(pid); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// nameOf is what the kernel calls a process, "" for one that is gone.
func nameOf(pid int) string {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSuffix(string(name), "\n")
}

// closed waits until nobody can write any more; it is false when that has not
// come about by then.
func (r *running) closed(late time.Time) bool {
	t := time.NewTimer(time.Until(late))
	defer t.Stop()
	for _, p := range r.pumps {
		select {
		case <-p.done:
		case <-t.C:
			return false
		}
	}
	return true
}

// report says how the program ended.
func (r *running) report(e ended) *run.Exit {
	u := usage{
		cpu:    max(r.bill.cpu, time.Duration(e.usage.Utime.Nano()+e.usage.Stime.Nano())) - r.before,
		memory: max(r.bill.memory, int64(e.usage.Maxrss)<<10),
		io:     (int64(e.usage.Inblock) + int64(e.usage.Oublock)) << 9,
	}
	exit := &run.Exit{
		Code: -1, Reason: run.ReasonExit,
		DurationMillis: time.Since(r.began).Milliseconds(),
		CPUMillis:      u.cpu.Milliseconds(),
		MaxMemoryBytes: u.memory,
		IOBytes:        u.io,
	}
	if e.status.Signaled() {
		exit.Signal, exit.Reason = signalText(e.status.Signal()), run.ReasonSignal
	} else {
		exit.Code = e.status.ExitStatus()
	}
	switch {
	case r.reason != "":
		exit.Reason = r.reason
	case r.limit == limitMemory:
		exit.Reason = run.ReasonMemory
	case r.limit == limitPIDs && exit.Code != 0:
		exit.Reason = run.ReasonPIDs
	case r.limit == limitPIDs:
		exit.Refused = true
	}
	return exit
}

func signalText(s unix.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", int(s))
}

// feed gives a program what it reads.
type feed struct {
	file *os.File
	done chan struct{}
}

func newFeed(file *os.File, text string) *feed {
	f := &feed{file: file, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		defer f.file.Close()
		_, _ = f.file.WriteString(text) // a program may end, or close it, before it has read all
	}()
	return f
}

// stop takes back what has not been read.
func (f *feed) stop() {
	if f != nil {
		_ = f.file.SetWriteDeadline(time.Unix(1, 0))
		<-f.done
	}
}

// ErrEnded is what a writer answers that wants no more output of a program: the call is
// over.
var ErrEnded = errors.New("the call has ended")

// pump moves what a program writes into a pipe to where it belongs.
type pump struct {
	file *os.File
	to   io.Writer
	done chan struct{}
	err  error // of the writer; read after done
}

// PipeTaker is a writer that can read a pipe by itself, without a copy in
// between. It does one read that does not wait.
type PipeTaker interface {
	// TakePipe reads from fd. 0 bytes without an error are its end.
	TakePipe(fd int) (n int, err error)
}

func newPump(file *os.File, to io.Writer) *pump {
	if to == nil {
		to = io.Discard
	}
	p := &pump{file: file, to: to, done: make(chan struct{})}
	go p.run()
	return p
}

func (p *pump) run() {
	defer close(p.done)
	defer p.file.Close()
	var take func(fd int) (int, error)
	if t, ok := p.to.(PipeTaker); ok {
		take = t.TakePipe
	} else {
		take = p.takeCopy()
	}
	raw, err := p.file.SyscallConn()
	if err != nil {
		p.err = err
		return
	}
	over := false
	one := func(fd uintptr) (again bool) {
		n, err := take(int(fd))
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false
		case err != nil:
			over, p.err = true, err
		case n == 0:
			over = true
		}
		return true
	}
	for !over {
		if err := raw.Read(one); err != nil {
			break // finish has set the deadline
		}
	}
	// Everybody who could write has been killed; what is in the pipe still counts.
	// Somebody of another call may hold the pipe all the same, so no more is
	// read than a pipe can hold.
	for left := 1 << 20; !over && left > 0; {
		var n int
		n, err = p.last(raw, take)
		left -= n
		over = err != nil || n == 0
	}
}

func (p *pump) last(raw interface{ Control(func(uintptr)) error }, take func(int) (int, error)) (n int, err error) {
	cerr := raw.Control(func(fd uintptr) { n, err = take(int(fd)) })
	return n, errors.Join(err, cerr)
}

func (p *pump) takeCopy() func(fd int) (int, error) {
	buf := make([]byte, 32<<10)
	return func(fd int) (int, error) {
		n, err := ReadPipe(fd, buf)
		if err != nil || n == 0 {
			return n, err
		}
		_, err = p.to.Write(buf[:n])
		return n, err
	}
}

// finish stops waiting for more.
func (p *pump) finish() { _ = p.file.SetReadDeadline(time.Unix(1, 0)) }

func (p *pump) wait() error {
	<-p.done
	if errors.Is(p.err, ErrEnded) {
		return nil
	}
	return p.err
}

// mergeEnv is base with more over it; the last one of a name counts.
func mergeEnv(base, more []string) []string {
	at := make(map[string]int, len(base)+len(more))
	env := make([]string, 0, len(base)+len(more))
	for _, list := range [2][]string{base, more} {
		for _, kv := range list {
			name, _, _ := strings.Cut(kv, "=")
			if i, ok := at[name]; ok {
				env[i] = kv
				continue
			}
			at[name] = len(env)
			env = append(env, kv)
		}
	}
	return env
}

// ReadPipe moves what is in the pipe fd into place, for a PipeTaker. It never waits.
func ReadPipe(fd int, place []byte) (int, error) {
	for {
		n, err := unix.Read(fd, place)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}
