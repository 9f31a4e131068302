package exec

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/toold/toold/internal/tool/run"
)

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
	cancel(&EndedError{Reason: run.ReasonAborted})
	if _, err := r.wait(ctx, 0); !errors.Is(err, errUndying) {
		t.Errorf("%v", err)
	}
}

// hanging is a group with a process that does not end.
type hanging struct {
	tagged
	pid int
}

func (g *hanging) pids() []int { return []int{g.pid} }
func (g *hanging) empty() bool { return false }
func (g *hanging) kill()       {}

// A program that does not end, and what it has left, hold up a call no longer than the times that
// they are given.
func TestUndyingGroup(t *testing.T) {
	t.Parallel()
	child := newSleeper(t)
	r := &running{group: &hanging{pid: child}, reason: run.ReasonAborted}
	r.asked = time.Now().Add(-time.Second) // its leader had all of the grace
	if n, _ := r.settle(); n != 1 {
		t.Errorf("%d processes were to be ended", n)
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
