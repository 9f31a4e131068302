package exec

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
)

// slow puts a shell in the place of the one that waits that is still being
// started, until the function is called.
func (r *rig) slow() (w *waiting, come func()) {
	r.t.Helper()
	r.bash("true")
	if r.waiting() == nil {
		r.t.Fatal("no shell waits")
	}
	s := r.shells
	s.drop()
	s.ending.Wait()
	w = &waiting{made: make(chan struct{}), gone: make(chan struct{}), err: errNotReady}
	s.mu.Lock()
	s.next = w
	s.mu.Unlock()
	return w, func() { close(w.made) }
}

// No program starts while a shell that it does not take is being killed: neither
// one that the shell is not for, nor one that comes while the shell is killed for
// another reason. Who waits for that, or for a shell that is just being started,
// can be aborted.
func TestProgramsAwaitDyingShells(t *testing.T) {
	other := []string{"A=1"}
	for name, tc := range map[string]struct {
		env  []string
		drop bool
	}{
		"a shell for others":    {env: other},
		"a shell that idled":    {env: other, drop: true},
		"an idled one, no more": {drop: true},
		"its own shell":         {},
	} {
		r := newRig(t, nil)
		w, come := r.slow()
		if tc.drop {
			r.shells.drop()
		}
		late, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if o, err := r.call(late, request{command: "echo x >> once", env: tc.env}, io.Discard); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%s: %v %+v", name, err, o)
		}
		done := make(chan error, 1)
		var out bytes.Buffer
		go func() {
			_, err := r.call(t.Context(), request{command: "echo x >> once; cat once", env: tc.env}, &out)
			done <- err
		}()
		select {
		case err := <-done:
			t.Fatalf("%s: a program ran beside the shell: %v", name, err)
		case <-time.After(50 * time.Millisecond):
		}
		come()
		if err := <-done; err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := out.String(); got != "x\n" {
			t.Errorf("%s: %q", name, got)
		}
		<-w.gone
		s := r.shells
		s.ending.Wait()
		if n := len(s.leaving); n != 0 {
			t.Errorf("%s: %d shells are being killed", name, n)
		}
		if fits := tc.env == nil; fits != (r.waiting() != nil) {
			t.Errorf("%s: that a shell waits afterwards is %t", name, !fits)
		}
	}
}

// A call that is aborted while it takes its shell runs nothing.
func TestAbortWhileTaken(t *testing.T) {
	r := newRig(t, nil)
	r.bash("true")
	w := r.waiting()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := r.shells
	given, err := s.enter(ctx, run.Command{Argv: append(slices.Clone(s.shell), "-c", "echo x")})
	if given != nil || err == nil {
		t.Errorf("%v, %v", given, err)
	}
	<-w.gone
	dead(t, w.pid)
	if s.running != 0 || s.failed != 0 {
		t.Errorf("%d programs, %d failures", s.running, s.failed)
	}
}

// A shell that died before is not killed by its id, which may be another's.
func TestDeadShellIsLeftAlone(t *testing.T) {
	r := newRig(t, nil)
	r.bash("true")
	w := r.waiting()
	if err := unix.Kill(w.pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testrig.Eventually(t, "the shell was waited for", func() bool { return len(w.exit) == 1 })
	w.pid = -1 << 30 // a kill of it would fail; what counts is the group
	r.shells.drop()
	r.shells.ending.Wait()
	if w.group.(*cgroup).killed {
		t.Error("a dead shell was killed")
	}
}

// The group of a program that did not start is counted as left before another
// program may have it.
func TestFailedStartKeepsItsGroup(t *testing.T) {
	r := newRig(t, nil)
	r.bash("true")
	r.waiting()
	x := r.Programs
	x.shells.drop()
	x.shells.ending.Wait()
	x.groups.trim()
	g, err := x.groups.make()
	if err != nil {
		t.Fatal(err)
	}
	over := 0
	_, err = x.spawner.run(t.Context(), &startRequest{
		argv: []string{"/none"}, paths: []string{"/none"}, dir: "/", group: g,
		over: func(group) {
			over++
			if x.groups.spare != nil {
				t.Error("another program may have its group already")
			}
		},
	})
	if err == nil || over != 1 || x.groups.spare != g {
		t.Errorf("%v; %d, %v", err, over, x.groups.spare)
	}
}
