package inside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/wire"
)

// session is what the first hello sets up, once.
type session struct {
	hello   wire.Hello
	root    *root.Root
	spawner *spawner
	reaper  *reaper
	exec    *executor
	seen    *run.Seen
	watch   *run.Watch
	notes   []string
}

// setUp makes the session from the first hello.
func (s *Server) setUp(h wire.Hello, fd int) (*session, error) {
	if h.UnackedBytes == 0 {
		h.UnackedBytes = defaultUnacked
	}
	h.UnackedBytes = min(max(h.UnackedBytes, leastUnacked), mostUnacked)
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
	r, err := root.New(root.Config{Dir: s.cfg.Dir, UID: uid, GID: gid})
	if err != nil {
		return nil, err
	}
	ses := &session{hello: h, root: r, reaper: newReaper(s.cfg.PID1), seen: new(run.Seen), watch: new(run.Watch)}
	sp := &spawner{uid: uid, gid: gid, children: ses.reaper, ignored: ignoredSignals()}
	g := &groups{parent: fd}
	if err := errors.Join(s.contain(ses, g), sp.prepare(h, &ses.notes)); err != nil {
		ses.reaper.stop()
		r.Close()
		return nil, err
	}
	if err := sp.start(); err != nil {
		sp.close()
		ses.reaper.stop()
		r.Close()
		return nil, err
	}
	ses.spawner = sp
	vars := mergeEnv(nil, h.Env)
	ses.exec = &executor{
		spawner: sp, groups: g, env: vars, path: pathOf(h.Env), dir: h.Worktree, places: bounded(&h),
		shells: &shells{spawner: sp, groups: g, env: vars, dir: h.Worktree, ctx: s.ctx},
	}
	// A kernel of its own does not say where a shell's command stands in its memory.
	if fd >= 0 && canWait(h.Shell, h.Env) {
		ses.exec.shells.shell = h.Shell
	}
	return ses, nil
}

// contain chooses how programs are told from each other, where the daemon has
// given no cgroup for them.
func (s *Server) contain(ses *session, g *groups) error {
	h := &ses.hello
	switch {
	case g.parent >= 0:
		return nil
	case s.cfg.Cgroup != "":
		tools, err := makeOwnCgroups(s.cfg.Cgroup, h.PIDs)
		g.parent, g.guard = tools, &guard{tools: tools, memory: h.Memory}
		return err
	case h.Memory > 0 || h.PIDs > 0:
		return errors.New("asked to keep limits, and no cgroup of its own to do it with")
	}
	ses.notes = append(ses.notes, "no cgroup for calls: their processes are found by an additional group id, and what they use is not counted")
	if !s.cfg.SameUser {
		g.tags = newTags()
	}
	return nil
}

// pathOf is PATH of env; empty elements, which mean the current directory, are
// left out.
func pathOf(env []string) []string {
	var dirs []string
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			dirs = dirs[:0]
			for d := range strings.SplitSeq(v, ":") {
				if strings.HasPrefix(d, "/") {
					dirs = append(dirs, d)
				}
			}
		}
	}
	return dirs
}

// env is what a call's tool may use.
func (s *Server) env(c *call) *run.Env {
	ses := s.session
	out := &stream{c: c}
	env := &run.Env{
		Root: ses.root, Worktree: ses.hello.Worktree, Home: ses.hello.Home, Tmp: ses.hello.Tmp,
		OutputDir: ses.hello.OutputDir, Shell: ses.hello.Shell,
		Stream: out, Progress: c.progress, Settings: c.req.Settings, Seen: ses.seen, Watch: ses.watch,
		Keep: c.keep, MaxFileSize: ses.hello.FileSize, Paths: c.req.Paths, Ripgrep: s.cfg.Ripgrep,
	}
	env.Exec = func(ctx context.Context, cmd run.Command) (*run.Exit, error) {
		cmd.Env = slices.Concat(c.req.Env, cmd.Env)
		if c.req.Split && cmd.Stdout == env.Stream && (cmd.Stderr == nil || cmd.Stderr == cmd.Stdout) {
			cmd.Stderr = &stream{c: c, stderr: true}
		}
		exit, err := ses.exec.run(ctx, cmd)
		if exit != nil {
			c.exited(exit)
		}
		return exit, err
	}
	return env
}
