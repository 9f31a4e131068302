package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/wire"
)

// No shell is there before the first command, nor for a session whose shell or
// environment is not fit for it, nor without cgroups.
func TestWhoHasNoWaitingShell(t *testing.T) {
	for name, change := range map[string]func(*wire.Hello){
		"another shell": func(h *wire.Hello) { h.Shell = []string{"/bin/sh"} },
		"more options":  func(h *wire.Hello) { h.Shell = append(h.Shell, "-e") },
		"POSIX":         func(h *wire.Hello) { h.Env = append(h.Env, "POSIXLY_CORRECT=1") },
		"underscore":    func(h *wire.Hello) { h.Env = append(h.Env, "_=x") },
		"no cgroup":     func(h *wire.Hello) { h.HasCgroup = false },
	} {
		r := newRig(t, change)
		if out, _ := r.bash("echo x"); out != "x\n" {
			t.Errorf("%s: %q", name, out)
		}
		if w := r.waiting(); w != nil {
			t.Errorf("%s: a shell waits", name)
		}
	}
	r := newRig(t, nil)
	if r.waiting() != nil {
		t.Error("a shell waits before the first command")
	}
	r.bash("true")
	if r.waiting() == nil {
		t.Error("no shell waits after the first command")
	}
}

// What a waiting shell does not fit is run by a fresh one, and ends the shell that
// waits, so that the two never live side by side.
func TestWaitingShellGivesWay(t *testing.T) {
	r := newRig(t, nil)
	for name, q := range map[string]request{
		"environment":   {command: "echo x", env: []string{"A=1"}},
		"two streams":   {command: "echo x", split: true},
		"directory":     {command: "echo x", workdir: "/"},
		"long command":  {command: "echo x #" + strings.Repeat("x", maxGiven)},
		"other program": {program: []string{"true"}},
	} {
		r.bash("true")
		w := r.waiting()
		if w == nil {
			t.Fatalf("%s: no shell waits", name)
		}
		if o, err := r.call(t.Context(), q, io.Discard); err != nil || o.Exit.Code != 0 {
			t.Fatalf("%s: %v %+v", name, err, o)
		}
		if w.used != 0 {
			t.Errorf("%s: the waiting shell was used", name)
		}
		dead(t, w.pid)
	}
	if r.shells.failed != 0 {
		t.Errorf("%d failures", r.shells.failed)
	}
}

// dead waits until a process is gone.
func dead(t *testing.T, pid int) {
	t.Helper()
	testrig.Eventually(t, fmt.Sprintf("the end of process %d", pid), func() bool { return unix.Kill(pid, 0) != nil })
}

// A shell does not wait beside a program: while one runs none is started, and a
// second command at the same time gets a fresh one.
func TestNoShellBesideAProgram(t *testing.T) {
	r := newRig(t, nil)
	started, end := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() {
		_, err := r.call(ctx, request{command: "echo x; exec sleep 300"}, &hooked{func() { close(started) }})
		end <- err
	}()
	<-started
	for range 3 {
		r.bash("true")
		s := r.shells
		s.rest()
		s.mu.Lock()
		next, running := s.next, s.running
		s.mu.Unlock()
		if next != nil || running != 1 {
			t.Fatalf("a shell waits beside %d programs", running)
		}
	}
	cancel(&EndedError{Reason: run.ReasonAborted})
	if err := <-end; err != nil {
		t.Fatal(err)
	}
	r.shells.rest()
	if r.waiting() == nil {
		t.Error("no shell waits after the last program")
	}
}

// A shell that is gone, stopped, elsewhere or not what it should be is not used;
// the command is run by a fresh one, once.
func TestWaitingShellIsUnfit(t *testing.T) {
	for name, spoil := range map[string]func(*waiting){
		"killed":          func(w *waiting) { _ = unix.Kill(w.pid, unix.SIGKILL); dead(t, w.pid) },
		"pipe closed":     func(w *waiting) { _ = unix.Close(w.script); w.script = brokenPipe(t) },
		"no memory":       func(w *waiting) { _ = unix.Close(w.mem); w.mem = -1 },
		"wrong place":     func(w *waiting) { w.command = 4096 },
		"wrong place too": func(w *waiting) { w.env = 4096 },
		"other directory": func(w *waiting) { w.at.inode++ },
		"other mount":     func(w *waiting) { w.at.mount++ },
	} {
		r := newRig(t, nil)
		r.bash("true")
		w := r.waiting()
		if w == nil {
			t.Fatalf("%s: no shell waits", name)
		}
		spoil(w)
		out, o := r.bash("echo x >> once; cat once; exit 7")
		if out != "x\n" || o.Exit.Code != 7 || o.Exit.BackgroundKilled != 0 {
			t.Errorf("%s: %q %+v", name, out, o.Exit)
		}
		dead(t, w.pid)
		if w := r.waiting(); w == nil {
			t.Errorf("%s: no shell waits afterwards", name)
		}
	}
}

// brokenPipe is the writing end of a pipe that nobody reads.
func brokenPipe(t *testing.T) int {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(p[0])
	return p[1]
}

// A shell that was not given a command and whose pipe is closed does nothing; no
// more are started for a session in which they come to nothing.
func TestPlaceholderDoesNothing(t *testing.T) {
	r := newRig(t, nil)
	r.bash("true")
	w := r.waiting()
	_ = unix.Close(w.script)
	e := <-w.exit
	if e.status.ExitStatus() != 125 {
		t.Errorf("%+v", e.status)
	}
	w.script, w.exit = -1, closedExit()
	r.shells.drop()
	// A program by the name of bash that is none.
	dir := filepath.Join(r.dir, "bin")
	if err := errors.Join(os.Mkdir(dir, 0o755), testrig.WriteProgram(dir+"/bash", []byte("#!/bin/sh\nshift 2\nexec /bin/sh \"$@\"\n"))); err != nil {
		t.Fatal(err)
	}
	r = newRig(t, func(h *wire.Hello) { h.Shell[0] = dir + "/bash" })
	for i := range 2 * shellFailures {
		if out, _ := r.bash("echo x"); out != "x\n" {
			t.Errorf("%d: %q", i, out)
		}
		r.waiting()
	}
	s := r.shells
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != shellFailures || s.next != nil {
		t.Errorf("%d failures", s.failed)
	}
}

func closedExit() <-chan ended {
	ch := make(chan ended)
	close(ch)
	return ch
}

// The bill of a call begins when it takes its shell.
func TestBillOfWaitingShell(t *testing.T) {
	r := newRig(t, nil)
	_, long := r.bash("i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done") // in the same cgroup
	r.bash("true")
	if _, o := r.given("true"); o.Exit.CPUMillis >= long.Exit.CPUMillis || o.Exit.CPUMillis < 0 || o.Exit.MaxMemoryBytes <= 0 {
		t.Errorf("%+v, after %+v", o.Exit, long.Exit)
	}
	if _, o := r.given("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"); o.Exit.CPUMillis <= 0 {
		t.Errorf("%+v", o.Exit)
	}
}

// When no command comes, the shell and its cgroup go.
func TestWaitingShellIdles(t *testing.T) {
	r := newRig(t, nil)
	r.bash("true")
	w := r.waiting()
	r.shells.idled()
	dead(t, w.pid)
	if r.waiting() != nil {
		t.Error("a shell waits")
	}
	if out, _ := r.bash("echo x"); out != "x\n" {
		t.Error(out)
	}
}

// While it waits, a shell has nothing of the agent's but its pipes.
func TestWaitingShellHoldsNothing(t *testing.T) {
	r := newRig(t, nil)
	r.bash("true")
	w := r.waiting()
	if err := w.ready(); err != nil {
		t.Fatal(err)
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", w.pid, fd.Name()))
		if to != "/dev/null" && !strings.HasPrefix(to, "pipe:") {
			t.Errorf("descriptor %s is %s", fd.Name(), to)
		}
	}
	if len(fds) > 5 {
		t.Errorf("%d descriptors", len(fds))
	}
}

func TestAreasOf(t *testing.T) {
	good := "1 (a) b) c) S" + strings.Repeat(" 1", 44) + " 20000 30000 40000 50000 0"
	for stat, want := range map[string]areas{
		good: {argEnd: 30000, envEnd: 50000},
		"":   {}, "1 (x) S 1 2": {},
		strings.Replace(good, "30000", "0", 1): {}, strings.Replace(good, "50000", "x", 1): {},
		strings.Replace(good, "30000", "-5", 1): {},
	} {
		got, err := areasOf([]byte(stat))
		if (err == nil) != (want != areas{}) || err == nil && got != want {
			t.Errorf("%q: %+v, %v", stat, got, err)
		}
	}
}
