// As the agent that ships.
//
//go:debug containermaxprocs=0
package oci_test

import (
	"bufio"
	"bytes"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
)

// The test binary is also the agent of the sandboxes that it makes: as PID 1 of
// one, it serves agentRequests; started there with a probe's name, it runs that.
func TestMain(m *testing.M) {
	_, err := os.Stat(sandbox.MarkerFile)
	inside := err == nil
	switch {
	case inside && os.Getpid() == 1:
		testAgent()
		os.Exit(0)
	case inside && len(os.Args) == 3 && os.Args[1] == "probe":
		os.Exit(runProbe(os.Args[2]))
	case os.Getenv("TOOLD_TEST_CREATE_AND_DIE") != "":
		createAndDie()
	}
	if m := os.Getenv(janitorFor); m != "" {
		os.Exit(janitor(m))
	}
	os.Exit(runWithJanitor(m))
}

func init() {
	// The main thread must stay PID 1's own.
	runtime.LockOSThread()
}

// agentRequest asks the test agent for one thing.
type agentRequest struct {
	Nonce []byte
	Argv  []string // as the tool user, in a cgroup of its own when Call is set
	Call  string
	Agent bool   // run Argv as the agent's own user instead
	Func  string // something of the agent's own process
}

type agentResponse struct {
	Output string
	Code   int
	Err    string
	TID    int
}

// forks is the agent's fork thread: everything it is given runs there.
var forks = make(chan func())

func testAgent() {
	nonce, err := io.ReadAll(os.NewFile(4, "nonce"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "read nonce:", err)
		os.Exit(3)
	}
	unix.CloseOnExec(3)
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "prctl:", err)
		os.Exit(3)
	}
	l, err := net.FileListener(os.NewFile(3, "control"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "control socket:", err)
		os.Exit(3)
	}
	tid := make(chan int)
	go func() {
		runtime.LockOSThread()
		tid <- unix.Gettid()
		for f := range forks {
			f()
		}
	}()
	forkTID := <-tid
	for {
		c, err := l.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "accept:", err)
			os.Exit(3)
		}
		go serve(c.(*net.UnixConn), nonce, forkTID)
	}
}

func serve(c *net.UnixConn, nonce []byte, forkTID int) {
	defer c.Close()
	oob := make([]byte, unix.CmsgSpace(4))
	buf := make([]byte, 64<<10)
	n, oobn, _, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return
	}
	cgroup := -1
	if msgs, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(msgs) == 1 {
		if fds, err := unix.ParseUnixRights(&msgs[0]); err == nil {
			cgroup = fds[0]
			unix.CloseOnExec(cgroup)
			defer unix.Close(cgroup)
		}
	}
	var q agentRequest
	var r agentResponse
	r.TID = forkTID
	switch err := json.Unmarshal(bytes.TrimSpace(buf[:n]), &q); {
	case err != nil:
		r.Err = err.Error()
	case subtle.ConstantTimeCompare(q.Nonce, nonce) != 1:
		r.Err = "wrong nonce"
	case q.Func == "exit":
		os.Exit(7)
	case len(q.Argv) > 0:
		r.exec(q, cgroup)
	}
	data, err := json.Marshal(r)
	if err != nil {
		return
	}
	_, _ = c.Write(append(data, '\n')) // the test sees a missing answer
}

func (r *agentResponse) exec(q agentRequest, cgroup int) {
	cmd := exec.Command(q.Argv[0], q.Argv[1:]...)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + sandbox.Home}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !q.Agent {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: sandbox.ToolUID, Gid: sandbox.ToolGID}
	}
	if q.Call != "" {
		if err := unix.Mkdirat(cgroup, q.Call, 0o755); err != nil {
			r.Err = "mkdir call cgroup: " + err.Error()
			return
		}
		fd, err := unix.Openat(cgroup, q.Call, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			r.Err = "open call cgroup: " + err.Error()
			return
		}
		defer unix.Close(fd)
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, fd
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		r.Err = err.Error()
		return
	}
	defer pr.Close()
	cmd.Stdout, cmd.Stderr = pw, pw
	printed := make(chan string, 1)
	go func() {
		out, _ := io.ReadAll(pr)
		printed <- string(out)
	}()
	started := make(chan error)
	forks <- func() { started <- cmd.Start() }
	err = <-started
	pw.Close()
	if err == nil {
		err = cmd.Wait()
	}
	r.Code = cmd.ProcessState.ExitCode()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		r.Err = err.Error()
	}
	if q.Call != "" {
		if err := r.endCall(q.Call, cgroup); err != nil {
			r.Err = strings.TrimSpace(r.Err + " " + err.Error())
		}
	}
	// All of it: nobody is left who could hold the pipe.
	r.Output = <-printed
}

// endCall kills and removes the cgroup of a call.
func (r *agentResponse) endCall(call string, cgroup int) error {
	fd, err := unix.Openat(cgroup, call+"/cgroup.kill", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte("1")); err != nil {
		return err
	}
	for end := time.Now().Add(30 * time.Second); ; reap() {
		if err = unix.Unlinkat(cgroup, call, unix.AT_REMOVEDIR); err != unix.EBUSY || time.Now().After(end) {
			return err
		}
	}
}

// reap waits for children that this process did not start.
func reap() {
	_, _ = unix.Wait4(-1, nil, unix.WNOHANG, nil) // ECHILD is fine
	unix.Nanosleep(&unix.Timespec{Nsec: 1e6}, nil)
}

// ask sends one request over a connection of its own.
func ask(c *net.UnixConn, q agentRequest, cgroup *os.File) (*agentResponse, error) {
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return nil, err
	}
	data, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	var oob []byte
	if cgroup != nil {
		oob = unix.UnixRights(int(cgroup.Fd()))
	}
	if _, _, err := c.WriteMsgUnix(data, oob, nil); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(c).ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("no answer from the agent: %w", err)
	}
	r := new(agentResponse)
	return r, json.Unmarshal(line, r)
}
