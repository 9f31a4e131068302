package inside

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/tool/run"
)

// freeze stops, or lets go on, all that is in the cgroup of a rig.
func freeze(t *testing.T, cg *os.File, state string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(cg.Name(), "cgroup.freeze"), []byte(state), 0); err != nil {
		t.Skipf("cannot freeze a cgroup: %v", err)
	}
}

// A child that hangs before it executes its program stops neither the other
// calls nor the collector, and programs start again when it is gone.
func TestProgramHangsOnItsWay(t *testing.T) {
	cg := callCgroup(t)
	r := newRig(t)
	h := r.hello()
	h.CallCgroup = cg
	c, _ := r.connect(h)
	ticks, runs := make(chan error, 1), make(chan struct{})
	go func() {
		s := &sink{hook: func(int64) error { close(runs); return nil }}
		_, err := c.Run(t.Context(), bashCall("other", "echo x; exec sleep 300"), s)
		ticks <- err
	}()
	born := func(call string) {
		for {
			b, _ := os.ReadFile(filepath.Join(cg.Name(), call, "cgroup.procs"))
			if len(b) > 0 {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	// It is in its cgroup before it executes. What freezes there is the fork thread.
	<-runs
	freeze(t, cg, "1")
	stuck := make(chan *agent.Outcome, 1)
	go func() {
		o, _ := c.Run(t.Context(), bashCall("stuck", "echo never"), &sink{})
		stuck <- o
	}()
	born("call-2")
	runtime.GC()
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.Abort("stuck", run.ReasonAborted); err != nil {
		t.Fatal(err)
	}
	if o := <-stuck; o == nil || o.Err == nil || o.Err.Code != run.CodeAborted {
		t.Errorf("stuck: %+v", o)
	}
	// The end of another call arrives.
	if err := c.Abort("other", run.ReasonAborted); err != nil {
		t.Fatal(err)
	}
	if err := <-ticks; err != nil {
		t.Error(err)
	}
	freeze(t, cg, "0")
	if out, _ := r.bash(c, "after", "echo ok"); out != "ok\n" {
		t.Errorf("after: %q", out)
	}
}

// A request that nobody takes is given up with its context.
func TestForkThreadIsBusy(t *testing.T) {
	s := &spawner{requests: make(chan *startRequest), ended: make(chan struct{})}
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errStartTime)
	defer cancel()
	_, err := s.run(ctx, &startRequest{group: &tagged{}})
	if !errors.Is(err, errStartTime) {
		t.Errorf("%v", err)
	}
}

func TestUndyingProgram(t *testing.T) {
	child := newSleeper(t)
	r := &running{group: &tagged{}, exit: make(chan ended), pid: child, dying: time.Millisecond}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&endedError{reason: run.ReasonAborted})
	if _, err := r.wait(ctx, 0); !errors.Is(err, errUndying) {
		t.Errorf("%v", err)
	}
}

// newSleeper is a process that may be killed.
func newSleeper(t *testing.T) int {
	t.Helper()
	p, err := os.StartProcess("/bin/sleep", []string{"sleep", "300"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill(); _, _ = p.Wait() })
	return p.Pid
}

// A cgroup that cannot be removed is tried again before the next program.
func TestLeftoverGroups(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	g := &groups{parent: fd}
	first, err := g.make()
	if err != nil {
		t.Fatal(err)
	}
	busy := filepath.Join(dir, "call-1", "busy")
	if err := os.WriteFile(busy, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first.remove()
	second, err := g.make()
	if err != nil {
		t.Fatal(err)
	}
	second.remove()
	if _, err := os.Stat(filepath.Join(dir, "call-1")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(busy); err != nil {
		t.Fatal(err)
	}
	third, err := g.make()
	if err != nil {
		t.Fatal(err)
	}
	third.remove()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 || len(g.left) != 0 {
		t.Errorf("left: %v %v %v", left, g.left, err)
	}
}

// A directory that has become a symbolic link after it was resolved is not
// followed.
func TestWorkdirSwapped(t *testing.T) {
	var got error
	var dir string
	tool := fakeTool{name: "x", run: func(ctx context.Context, env *run.Env, _ json.RawMessage, _ *run.Prepared) (*run.Result, error) {
		_, got = env.Exec(ctx, run.Command{Argv: []string{"true"}, Dir: dir})
		return &run.Result{}, nil
	}}
	r := newRig(t, tool)
	c, _ := r.connect(r.hello())
	dir = filepath.Join(r.dir, "link")
	if err := os.Symlink("/", dir); err != nil {
		t.Fatal(err)
	}
	if o, err := c.Run(t.Context(), ask("1", "x"), nil); err != nil || o.Err != nil {
		t.Fatal(err, o)
	}
	if !errors.Is(got, unix.ELOOP) {
		t.Errorf("%v, want %v", got, unix.ELOOP)
	}
}

// The end of a child that comes before its fork has returned is not lost.
func TestReaperEarlyEnd(t *testing.T) {
	r := newReaper(false)
	r.orphans = true // without the goroutine that waits for everybody
	const pid = 1 << 22
	_, exit := r.fork(func() int {
		r.gone(pid+1, ended{})
		r.gone(pid, ended{status: 9})
		return pid
	}, func() bool { return true })
	select {
	case e := <-exit:
		if e.status != 9 {
			t.Errorf("status %v", e.status)
		}
	default:
		t.Error("lost")
	}
	if r.gone(pid, ended{}); len(r.early) != 0 || len(r.children) != 0 {
		t.Errorf("kept: %v %v", r.early, r.children)
	}
	r.fork(func() int {
		for i := range 3 * maxEarly {
			r.gone(i, ended{})
		}
		if len(r.early) > maxEarly {
			t.Errorf("%d are kept", len(r.early))
		}
		return 0
	}, nil)
}
