package exec

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/wire"
)

// As in the agent itself: threads that change their ids may not be the main one.
func init() { runtime.LockOSThread() }

// rig is the Programs of a session, and the tool that starts most of them.
type rig struct {
	*Programs
	t    testing.TB
	dir  string // worktree
	root *root.Root
	h    wire.Hello
}

// newRig is a rig in which a shell waits after the first command, unless change, which
// may be nil, makes another session of it.
func newRig(t testing.TB, change func(*wire.Hello)) *rig {
	t.Helper()
	needs.Filter(t)
	cg := testrig.CallCgroup(t) // before the programs, so that it goes after them
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{t: t, dir: dir, h: wire.Hello{
		Worktree: dir, Home: dir, Tmp: filepath.Join(dir, "tmp"), OutputDir: dir, HasCgroup: true,
		Env:   []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + dir, "LANG=C.UTF-8"},
		Shell: []string{"/bin/bash", "--noprofile", "--norc"},
	}}
	if change != nil {
		change(&r.h)
	}
	c := Config{Hello: &r.h, UID: 1000, GID: 1000, Cgroup: int(cg.Fd())}
	if os.Getuid() != 0 {
		c.UID, c.GID = -1, -1
	}
	if !r.h.HasCgroup {
		c.Cgroup = -1
	}
	if r.root, err = root.New(root.Config{Dir: "/", UID: c.UID, GID: c.GID}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if r.Programs, _, err = New(ctx, c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if !r.Stop() {
			t.Error("the programs do not end")
		}
		r.root.Close()
	})
	return r
}

// request is a command line for bash, or a program without it.
type request struct {
	command, workdir string
	program          []string
	env, unseen      []string
	split            bool
}

// outcome is how a request ended.
type outcome struct {
	Result *run.Result
	Exit   *run.Exit
}

// call does a request as the agent does.
func (r *rig) call(ctx context.Context, q request, out io.Writer) (o outcome, err error) {
	defer r.Rest()
	env := &run.Env{
		Root: r.root, Worktree: r.h.Worktree, Home: r.h.Home, Tmp: r.h.Tmp, OutputDir: r.h.OutputDir, Shell: r.h.Shell,
		Stream: out, Progress: func(map[string]any) {}, Seen: new(run.Seen), Watch: new(run.Watch),
	}
	env.Exec = func(ctx context.Context, c run.Command) (exit *run.Exit, err error) {
		c.Env, c.Unseen = slices.Concat(q.env, c.Env), q.unseen
		if q.split {
			c.Stderr = new(bytes.Buffer)
		}
		o.Exit, err = r.Run(ctx, c)
		return o.Exit, err
	}
	if q.program != nil {
		_, err = env.Exec(ctx, run.Command{Argv: q.program})
		return o, err
	}
	in := map[string]any{"command": q.command}
	if q.workdir != "" {
		in["workdir"] = q.workdir
	}
	text, err := json.Marshal(in)
	if err != nil {
		return o, err
	}
	o.Result, err = run.Bash{}.Run(ctx, env, text, nil)
	return o, err
}

// bash runs a command line and fails the test if it could not be run.
func (r *rig) bash(command string) (string, outcome) {
	r.t.Helper()
	var out bytes.Buffer
	o, err := r.call(r.t.Context(), request{command: command}, &out)
	if err != nil {
		r.t.Fatalf("%.80q: %v", command, err)
	}
	return out.String(), o
}

// waiting is the shell that waits, after it has been started; nil without.
func (r *rig) waiting() *waiting {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s := r.shells
		s.mu.Lock()
		w, busy := s.next, s.running > 0 || s.wanted && s.failed < shellFailures && s.shell != nil
		s.mu.Unlock()
		if w != nil {
			<-w.made
			return w
		}
		if !busy || time.Now().After(deadline) {
			return nil
		}
	}
}

// given runs a command in the shell that waits.
func (r *rig) given(command string) (string, outcome) {
	r.t.Helper()
	w := r.waiting()
	if w == nil {
		r.t.Fatalf("no shell waits for %q", command)
	}
	out, o := r.bash(command)
	if !w.wasGiven(r.shells) {
		r.t.Errorf("a fresh shell has run %q", command)
	}
	return out, o
}

func (w *waiting) wasGiven(s *shells) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return w.used > 0 && s.failed == 0
}

// hooked calls a function when something is written.
type hooked struct{ f func() }

func (h *hooked) Write(p []byte) (int, error) { h.f(); return len(p), nil }
