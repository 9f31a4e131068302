package hook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/plain"
)

// Bounds of what a host program of the configuration may say.
const (
	maxProgramAnswer = 8 << 20 // bytes on standard output
	maxProgramErrors = 4 << 10 // bytes of standard error that are kept, the last ones
	maxName          = 80      // bytes of a name that are shown
)

// programDrain is how long the output of a program is read after it ended: what
// it started and let out of its process group may hold the pipe open. What is not
// read by then is lost, and with it the answer of a program on a busy host.
const programDrain = 5 * time.Second

// programEnv is all of the environment that host programs get: the daemon's own
// may hold what is nobody else's business.
var programEnv = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME=/nonexistent",
	"LANG=C.UTF-8",
}

// Error is why a host program gave no answer, or a formatter did not do its work.
type Error struct {
	program string
	what    string // for people and models: nothing that the program has said
	// Stderr is the end of what it complained about; for the log alone.
	Stderr string
	// Said is the end of what it printed inside the sandbox; for the caller alone.
	Said string
}

// Error implements error.
func (e *Error) Error() string { return e.program + " " + e.what }

// What is the error without the program's name, and with what the program said, for who may
// read that anyway.
func (e *Error) What() string {
	if e.Said == "" {
		return e.what
	}
	return e.what + ": " + e.Said
}

// programName is what a host program is called in messages and in the audit log.
func programName(argv []string) string {
	if len(argv) == 0 {
		return "(no command)"
	}
	return plain.Cut(filepath.Base(argv[0]), maxName)
}

// Run runs a program of the configuration on the host, as the daemon's
// user, and gives what it wrote to its standard output. It gets stdin, an
// environment of three variables, / as its directory and a process group of its
// own, which is killed when the program has ended, when timeout has passed, or
// when ctx ends. An error is an *Error, or ctx's cause.
func Run(ctx context.Context, argv []string, stdin []byte, timeout time.Duration) ([]byte, error) {
	name := programName(argv)
	if len(argv) == 0 {
		return nil, &Error{program: name, what: "could not be run: no command is configured"}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errProgramTime)
	defer cancel()
	var out capped
	var complaints Tail
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = "/", programEnv, programDrain
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &complaints
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err := runInGroup(ctx, cmd)
	fail := &Error{program: name, Stderr: complaints.String()}
	var exit *exec.ExitError
	switch {
	case errors.Is(context.Cause(ctx), errProgramTime):
		fail.what = fmt.Sprintf("did not answer within %s and was killed", timeout)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case out.over:
		fail.what = fmt.Sprintf("answered more than %d bytes", maxProgramAnswer)
	case errors.As(err, &exit):
		fail.what = "failed: " + exit.ProcessState.String()
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		fail.what = "could not be run: " + plain.Cause(err)
	default:
		return out.buf.Bytes(), nil
	}
	return nil, fail
}

var errProgramTime = errors.New("the program took too long")

// runInGroup starts cmd and waits for it. Its process group is killed before the
// leader is reaped: until then nobody else can have the group's number.
func runInGroup(ctx context.Context, cmd *exec.Cmd) error {
	// Pdeathsig is sent when the thread ends that made the process, so that one
	// must not be taken away before.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	ended := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-ctx.Done():
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		case <-ended:
		}
	}()
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	close(ended)
	<-watched
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	return cmd.Wait()
}

// capped keeps what is written to it up to maxProgramAnswer. At the bound the
// writer gets an error, which ends the program by SIGPIPE.
type capped struct {
	buf  bytes.Buffer
	over bool
}

// Write implements io.Writer.
func (c *capped) Write(p []byte) (int, error) {
	if c.buf.Len()+len(p) > maxProgramAnswer {
		c.over = true
		return 0, io.ErrShortWrite
	}
	return c.buf.Write(p)
}

// Tail keeps the end of what is written to it, 4 KiB.
type Tail struct{ b []byte }

// Write implements io.Writer.
func (l *Tail) Write(p []byte) (int, error) {
	l.b = append(l.b, p[max(0, len(p)-maxProgramErrors):]...)
	if over := len(l.b) - maxProgramErrors; over > 0 {
		l.b = append(l.b[:0], l.b[over:]...)
	}
	return len(p), nil
}

// String gives it as text on as many lines as it had.
func (l *Tail) String() string {
	return strings.TrimSpace(strings.ToValidUTF8(string(l.b), "\uFFFD"))
}
