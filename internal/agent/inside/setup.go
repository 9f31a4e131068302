package inside

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/agent/inside/exec"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/wire"
)

// session is what the first hello sets up, once.
type session struct {
	hello    wire.Hello
	root     *root.Root
	programs *exec.Programs
	seen     *run.Seen
	watch    *run.Watch
	notes    []string
	freeing  sync.Mutex // held by freeTmp
}

// setUp makes the session from the first hello.
func (s *Server) setUp(h wire.Hello, fd int) (*session, error) {
	h.UnackedBytes = min(max(cmp.Or(h.UnackedBytes, defaultUnacked), leastUnacked), mostUnacked)
	uid, gid := h.ToolUID, h.ToolGID
	if s.cfg.SameUser {
		uid, gid = -1, -1
	} else if uid <= 0 || gid <= 0 || uid == os.Getuid() {
		return nil, fmt.Errorf("tools may not run as %d:%d; the agent is %d", uid, gid, os.Getuid())
	}
	if len(h.Shell) == 0 {
		return nil, errors.New("hello without a shell")
	}
	if err := wire.CheckEnv(h.Env); err != nil {
		return nil, err
	}
	journal := s.cfg.Journal
	if unix.Access(journal, unix.W_OK) != nil {
		journal = "" // the place for it, in a sandbox that has none
	}
	r, err := root.New(root.Config{Dir: s.cfg.Dir, UID: uid, GID: gid, Journal: journal})
	if err != nil {
		return nil, err
	}
	programs, notes, err := exec.New(s.ctx, exec.Config{Hello: &h, UID: uid, GID: gid, Cgroup: fd, OwnCgroup: s.cfg.Cgroup, PID1: s.cfg.PID1})
	if err != nil {
		r.Close()
		return nil, err
	}
	return &session{hello: h, root: r, programs: programs, seen: new(run.Seen), watch: new(run.Watch), notes: notes}, nil
}

// freeTmp empties the places for temporary files.
func (s *session) freeTmp(ctx context.Context, least int64) error {
	if !s.freeing.TryLock() {
		return errors.New("it is being done already")
	}
	defer s.freeing.Unlock()
	dirs := slices.DeleteFunc([]string{s.hello.Tmp, "/dev/shm"}, func(d string) bool { return !exec.InMemory(d) }) // what lies on a disk would free none
	return s.programs.FreeTmp(ctx, least, dirs...)
}

// env is what a call's tool may use.
func (s *Server) env(c *call) *run.Env {
	ses := s.session
	out := &stream{c: c}
	env := &run.Env{
		Root: ses.root, Worktree: ses.hello.Worktree, Home: ses.hello.Home, Tmp: ses.hello.Tmp,
		OutputDir: ses.hello.OutputDir, TreeDir: s.cfg.TreeDir, Shell: ses.hello.Shell,
		Stream: out, Progress: c.progress, Settings: c.req.Settings, Seen: ses.seen, Watch: ses.watch,
		Input: (*inputReader)(c), Keep: c.keep, MaxFileSize: ses.hello.FileSize, Paths: c.req.Paths, Ripgrep: s.cfg.Ripgrep, Shrink: s.cfg.Shrink,
	}
	env.Aside = ses.programs.Aside
	env.Exec = func(ctx context.Context, cmd run.Command) (*run.Exit, error) {
		cmd.Env, cmd.Unseen = slices.Concat(c.req.Env, cmd.Env), c.req.Unseen
		if ses.hello.Network {
			cmd.Call = c.req.CallID
		}
		if c.req.Split && cmd.Stdout == env.Stream && (cmd.Stderr == nil || cmd.Stderr == cmd.Stdout) {
			cmd.Stderr = &stream{c: c, stderr: true}
		}
		exit, err := ses.programs.Run(ctx, cmd)
		if exit != nil {
			c.exited(exit)
		}
		return exit, err
	}
	return env
}
