package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/procstat"
)

// waiting is a shell that has been started ahead of its command.
//
// It is "bash --noprofile --norc -c PLACEHOLDER" with a pipe as BASH_ENV, and has
// everything that the shell of a call has: cgroup, session, limits, ids, filters,
// directory. It sets itself up and reads the pipe, which is the last thing that
// bash does before its command, and there it stays. To give it a command, the
// placeholder is overwritten in its memory, where bash keeps pointing to it, and
// a few lines are written into the pipe that take back what BASH_ENV has left
// behind. When the pipe is closed the shell goes on as one that was started with
// that command.
//
// Where anything goes wrong on the way, the shell is killed before its pipe is
// closed, and has run nothing.
type waiting struct {
	made chan struct{} // closed when the rest is set
	gone chan struct{} // closed when it has been killed without a command
	err  error

	startReply
	group  group
	output *os.File // its stdout and stderr
	dir    string
	at     place         // what dir was
	used   time.Duration // processor time until it was taken
}

// handle is the way into a waiting shell.
type handle struct {
	script  int   // write end of the pipe that it reads
	mem     int   // its memory
	command int64 // where the placeholder stands in it
	env     int64 // where BASH_ENV stands in it
}

const (
	// scriptFD is the descriptor from which a waiting shell reads.
	scriptFD = 3
	bashEnv  = "BASH_ENV=/proc/self/fd/3"
	// maxGiven is the length of the longest command that can be given.
	maxGiven = 8<<10 - 1
	// placeholderBegin is all that a shell does whose command does not come.
	placeholderBegin = "exit 125\n"
	// readyTime is how long a shell may still need that a command waits for, and how
	// long it may need to execute. On a host with much to do either can take
	// seconds, which a fresh shell would need as well.
	readyTime = 5 * time.Second
)

// placeholder has the length of the longest command.
var placeholder = placeholderBegin + strings.Repeat("#", maxGiven-len(placeholderBegin))

var errNotReady = errors.New("the waiting shell is not ready for a command")

// begin starts the shell.
func (w *waiting) begin(ctx context.Context, s *spawner, g group, shell, env []string, dir string) error {
	var err error
	w.group, w.dir = g, dir
	w.startReply, err = s.run(ctx, &startRequest{
		argv: append(append([]string(nil), shell...), "-c", placeholder),
		env:  append(append([]string(nil), env...), bashEnv),
		dir:  dir, paths: shell[:1], group: g, waits: true,
	})
	if err != nil {
		return err
	}
	w.output = os.NewFile(uintptr(w.stdout), "pipe")
	if err = w.at.look(dir); err != nil {
		w.end()
	}
	return err
}

// discard ends the shell, also one that is just being started.
func (w *waiting) discard() {
	<-w.made
	if w.err == nil {
		w.end()
	}
}

// spent is the processor time that the shell has used so far, which belongs to
// no call.
func (w *waiting) spent() time.Duration {
	const ofProcess = 2 // CPUCLOCK_SCHED
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^w.pid<<3|ofProcess), &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// give makes the shell run command. When it fails nothing has been run, and the
// shell has to be ended.
func (w *waiting) give(command, shell string) error {
	var now place
	if err := now.look(w.dir); err != nil {
		return err
	}
	if now != w.at {
		return errors.New("the directory of the waiting shell is another one now")
	}
	if err := w.ready(); err != nil {
		return err
	}
	text := make([]byte, len(placeholder))
	copy(text, command)
	if err := w.put(w.command, text); err != nil {
		return err
	}
	if err := w.put(w.env, make([]byte, len(bashEnv))); err != nil {
		return err
	}
	w.used = w.spent()
	script := givenScript(command, shell)
	if len(script) > os.Getpagesize() {
		if _, err := unix.FcntlInt(uintptr(w.script), unix.F_SETPIPE_SZ, len(script)); err != nil {
			return fmt.Errorf("enlarge the pipe of the waiting shell: %w", err)
		}
	}
	n, err := unix.Write(w.script, script)
	if err != nil || n < len(script) {
		return fmt.Errorf("write to the waiting shell: %d of %d bytes: %w", n, len(script), err)
	}
	w.handle.close()
	return nil
}

// ready waits until the shell has read what was in its pipe from the beginning:
// it has set itself up then. The pipe has room for one piece, so that it can be
// written to as soon as that one is taken out.
func (w *waiting) ready() error {
	fds := []unix.PollFd{{Fd: int32(w.script), Events: unix.POLLOUT}}
	for {
		n, err := unix.Poll(fds, int(readyTime.Milliseconds()))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0 || fds[0].Revents != unix.POLLOUT:
			return errNotReady
		}
		return nil
	}
}

func (w *waiting) put(at int64, b []byte) error {
	n, err := unix.Pwrite(w.mem, b, at)
	if err == nil && n < len(b) {
		err = unix.EIO
	}
	if err != nil {
		return fmt.Errorf("write the memory of the waiting shell: %w", err)
	}
	return nil
}

// givenScript is what a waiting shell reads as BASH_ENV. It leaves a shell that
// was never asked to read one: the variable and the descriptor are gone, time
// begins now, and the last argument of the last command is the shell itself.
func givenScript(command, shell string) []byte {
	return fmt.Appendf(nil, "unset BASH_ENV\nexec %d<&-\nSECONDS=0\nBASH_EXECUTION_STRING=%s\n: %s\n", scriptFD, quoted(command), quoted(shell))
}

// quoted is s as one word of a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// close lets go of the pipe and the memory: the shell goes on.
func (h *handle) close() {
	_ = unix.Close(h.script)
	if h.mem >= 0 {
		_ = unix.Close(h.mem)
	}
}

// end kills a shell that was started and not given a command. One that has died
// before, of a limit, is left alone: its id may be another's.
func (w *waiting) end() {
	exit := w.exit
	select {
	case e := <-exit:
		over := make(chan ended, 1)
		over <- e
		exit = over
	default:
		w.group.kill()
		_ = unix.Kill(w.pid, unix.SIGKILL)
	}
	t := time.NewTimer(dying)
	defer t.Stop()
	select {
	case <-exit:
		w.handle.close()
	case <-t.C:
		// It hangs in the kernel. Its pipe stays open, or it would run.
	}
	_ = w.output.Close()
	w.group.remove()
}

// place says which directory a path leads to.
type place struct {
	device, inode, mount uint64
}

func (p *place) look(path string) error {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_NO_AUTOMOUNT, unix.STATX_INO|unix.STATX_MNT_ID, &st)
	if err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	*p = place{device: unix.Mkdev(st.Dev_major, st.Dev_minor), inode: st.Ino, mount: st.Mnt_id}
	return nil
}

// scriptPipe makes the pipe that a waiting shell reads. It has room for one
// piece, which is in it.
func scriptPipe() (p [2]int, err error) {
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return p, err
	}
	size, err := unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, os.Getpagesize())
	if err == nil && size != os.Getpagesize() {
		err = unix.EINVAL
	}
	if err == nil {
		err = unix.SetNonblock(p[1], true)
	}
	if err == nil {
		_, err = unix.Write(p[1], []byte("\n"))
	}
	if err == nil && p[0] == scriptFD {
		p[0], err = unix.FcntlInt(scriptFD, unix.F_DUPFD_CLOEXEC, scriptFD+1)
		_ = unix.Close(scriptFD)
	}
	if err != nil {
		closePipe(p)
	}
	return p, err
}

// openMemory opens the memory of a shell that has just been started and finds in
// it what give overwrites. The thread has the tool user's ids. A fork is over for
// the parent when the child has begun to execute: what it executes, and with it
// the arguments, is there a moment later, on a host with much to do some time
// later. Once the kernel says where they are, nothing else takes long.
func (h *handle) openMemory(pid int) (err error) {
	proc := "/proc/" + strconv.Itoa(pid)
	for wait := 50 * time.Microsecond; wait < 20*time.Millisecond; wait *= 2 {
		area, waited := awaitAreas(proc)
		if waited != nil {
			return waited
		}
		if err = h.tryMemory(proc, area); err == nil {
			return nil
		}
		pause(wait)
	}
	return err
}

// awaitAreas waits until the kernel says where the arguments of a process are.
func awaitAreas(proc string) (areas, error) {
	began := time.Now()
	for wait := 50 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		stat, err := os.ReadFile(proc + "/stat")
		if err != nil {
			return areas{}, err // it has ended
		}
		if area, err := areasOf(stat); err == nil || time.Since(began) > readyTime {
			return area, err
		}
		pause(wait)
	}
}

// pause sleeps without letting another goroutine have the thread.
func pause(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil)
}

func (h *handle) tryMemory(proc string, area areas) (err error) {
	h.mem, err = unix.Open(proc+"/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the memory of the waiting shell: %w", err)
	}
	h.command = area.argEnd - int64(len(placeholder)) - 1
	h.env = area.envEnd - int64(len(bashEnv)) - 1
	err = errors.Join(h.expect(h.command, placeholder), h.expect(h.env, bashEnv))
	if err != nil {
		_ = unix.Close(h.mem)
		h.mem = -1
	}
	return err
}

func (h *handle) expect(at int64, want string) error {
	got := make([]byte, len(want)+1)
	if n, err := unix.Pread(h.mem, got, at); err != nil || n < len(got) {
		return fmt.Errorf("read the memory of the waiting shell: %d bytes: %w", n, err)
	}
	if string(got) != want+"\x00" {
		return errors.New("the memory of the waiting shell has something else where its arguments should be")
	}
	return nil
}

// areas are where the arguments and the environment of a process end.
type areas struct{ argEnd, envEnd int64 }

// areasOf reads /proc/PID/stat.
func areasOf(stat []byte) (a areas, err error) {
	for _, f := range []struct {
		to *int64
		at int
	}{{&a.argEnd, procstat.ArgEnd}, {&a.envEnd, procstat.EnvEnd}} {
		*f.to, err = procstat.Number(stat, f.at)
		if err == nil && *f.to <= int64(len(placeholder)) {
			err = unix.EPERM // the kernel does not tell
		}
		if err != nil {
			return a, fmt.Errorf("where the arguments of a process are: %w", err)
		}
	}
	return a, nil
}
