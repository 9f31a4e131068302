package shipped

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// order is what a keeper is to start.
type order struct {
	Argv []string `json:"argv"`
	Env  []string `json:"env"`
}

// homePrefix begins the names of the homes that keepers make.
const homePrefix = "toolctl-agent-"

// Exit codes of a keeper whose agent did not end by itself.
const (
	keptNothing = 126 // it could not be started
	keptSignal  = 128 // plus the signal's number
)

// endTime is how long what an agent has started may take to end when the agent has: its servers
// end their sessions. That of a server that is killed ends with its lease.
const endTime = 3 * time.Second

// Keep is a keeper: the process that an agent is started by, so that nothing is left of it when
// whoever wants the agent is killed. It makes a home for the agent, writes its name to out, and
// reads from in what to start. When the agent has ended, or in has, it ends all that the agent
// has started, removes the home, and returns the agent's exit code. What the agent says is on
// standard error. It is for the main goroutine of a process of its own.
func Keep(in io.Reader, out io.Writer) int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return unkept(fmt.Errorf("become the parent of what an agent leaves behind: %w", err))
	}
	home, err := os.MkdirTemp("", homePrefix)
	if err != nil {
		return unkept(err)
	}
	defer removed(home)
	if _, err := fmt.Fprintln(out, home); err != nil {
		return unkept(err)
	}
	orders := json.NewDecoder(in)
	var o order
	if orders.Decode(&o) != nil || len(o.Argv) == 0 {
		return unkept(fmt.Errorf("nothing to start"))
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, in) // until its end
	}()
	return o.run(home, gone)
}

func unkept(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return keptNothing
}

// removed removes a home in which something may be written until a moment ago.
func removed(home string) {
	for range 10 {
		if os.RemoveAll(home) == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// run runs the agent until it or gone ends, and then ends all that is left.
func (o *order) run(home string, gone <-chan struct{}) int {
	runtime.LockOSThread() // the agent ends with the thread that has started it
	null, err := os.Open(os.DevNull)
	if err != nil {
		return unkept(err)
	}
	defer null.Close()
	p, err := os.StartProcess(o.Argv[0], o.Argv, &os.ProcAttr{
		Dir: home, Env: o.Env, Files: []*os.File{null, os.Stderr, os.Stderr},
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return unkept(err)
	}
	code := 0
	ended, none := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(none)
		for {
			var status unix.WaitStatus
			pid, err := unix.Wait4(-1, &status, 0, nil)
			switch {
			case err == unix.EINTR:
			case err != nil: // no children are left
				return
			case pid == p.Pid:
				if code = status.ExitStatus(); status.Signaled() {
					code = keptSignal + int(status.Signal())
				}
				close(ended)
			}
		}
	}()
	select {
	case <-ended:
	case <-gone:
		_ = unix.Kill(p.Pid, unix.SIGKILL) // it may have ended now
	}
	for wait := endTime; ; wait = endTime / 100 {
		select {
		case <-none:
			return code
		case <-time.After(wait):
			for _, pid := range children() {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
}

// children are those of this process; what these leave behind become such too.
func children() (pids []int) {
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		list, _ := os.ReadFile("/proc/self/task/" + t.Name() + "/children")
		for f := range strings.FieldsSeq(string(list)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// Kept is an agent with its keeper, see Keep.
type Kept struct {
	// Home is the directory that the agent is started in, and that its keeper removes.
	Home string

	cmd   *exec.Cmd
	in    io.WriteCloser
	said  said
	ended chan struct{} // closed when all is over
}

// StartKeeper starts a keeper, which makes a home. argv is a program that calls Keep with its
// standard input and output. End must follow.
func StartKeeper(argv ...string) (*Kept, error) {
	k := &Kept{cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{})}
	k.cmd.Stderr, k.cmd.WaitDelay = &k.said, endTime
	// Ctrl-C at the terminal is for whoever has started this.
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := k.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start a keeper: %w", err)
	}
	out, err := k.cmd.StdoutPipe()
	if err == nil {
		err = k.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start a keeper: %w", err)
	}
	k.in = in
	line, err := io.ReadAll(io.LimitReader(lineOf{out}, 4096))
	go func() {
		defer close(k.ended)
		_ = k.cmd.Wait() // how it ended is in ProcessState
	}()
	if k.Home = strings.TrimSuffix(string(line), "\n"); err != nil || k.Home == "" {
		k.End()
		return nil, fmt.Errorf("start a keeper: %s", strings.TrimSpace(k.Said()))
	}
	return k, nil
}

// lineOf reads one line, byte by byte.
type lineOf struct{ io.Reader }

func (l lineOf) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if n > 0 && p[n-1] == '\n' {
		return n, io.EOF
	}
	return n, err
}

// Start has the keeper start an agent.
func (k *Kept) Start(argv, env []string) error {
	if err := json.NewEncoder(k.in).Encode(order{argv, env}); err != nil {
		return fmt.Errorf("start %s: %w", argv[0], err)
	}
	return nil
}

// Ended is closed when the agent has ended, and all that it has started.
func (k *Kept) Ended() <-chan struct{} { return k.ended }

// End ends the agent, and returns when nothing is left of it.
func (k *Kept) End() {
	_ = k.in.Close() // which is what tells the keeper
	<-k.ended
	_ = os.RemoveAll(k.Home) // is gone, unless the keeper was killed
}

// How says how the agent ended, after Ended.
func (k *Kept) How() string {
	code := k.cmd.ProcessState.ExitCode()
	if code > keptSignal {
		return "was killed by " + unix.SignalName(syscall.Signal(code-keptSignal))
	}
	return "ended with exit code " + strconv.Itoa(code)
}

// Said is the end of what the agent has said.
func (k *Kept) Said() string { return k.said.String() }
