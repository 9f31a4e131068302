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
	"github.com/toold/toold/internal/testrig"
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
	cg := testrig.CallCgroup(t)
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
