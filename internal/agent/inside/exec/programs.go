package exec

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/wire"
)

// Programs starts the programs of a session's tools, and sees to their ends.
type Programs struct {
	spawner     *spawner
	reaper      *reaper
	groups      *groups
	shells      *shells
	ipc         ipc
	env         []string // the session's, each name once
	path        []string // its PATH
	dir         string   // where programs run that name no directory
	own, others []string // see bounded
	pid1        bool
}

// Config is what Programs are.
type Config struct {
	// Hello has the worktree, the environment, the shell and the limits.
	Hello *wire.Hello
	// UID and GID are the tools'; -1: the agent's own, for tests.
	UID, GID int
	// Cgroup is a descriptor of the directory below which each program has a cgroup;
	// -1: none.
	Cgroup int
	// OwnCgroup is the directory of a v2 hierarchy that is this sandbox's alone, which
	// is used where Cgroup is none; "": none either.
	OwnCgroup string
	// PID1 is set when this process is the init of its pid namespace: it then reaps
	// everybody's orphans, and ends all processes when the programs are stopped.
	PID1 bool
}

// New begins the thread that starts all programs. Shells wait for their commands until
// ctx ends. notes say which defences this kernel does not give.
func New(ctx context.Context, c Config) (p *Programs, notes []string, err error) {
	h := c.Hello
	sp := &spawner{uid: c.UID, gid: c.GID, children: newReaper(c.PID1), ignored: ignoredSignals()}
	g := &groups{parent: c.Cgroup}
	err = errors.Join(g.contain(c, &notes), sp.prepare(h, &notes))
	if err == nil {
		if err = sp.start(); err != nil {
			sp.close()
		}
	}
	if err != nil {
		sp.children.stop()
		return nil, nil, err
	}
	if sp.note != "" {
		notes = append(notes, sp.note)
	}
	vars := mergeEnv(nil, h.Env)
	p = &Programs{
		spawner: sp, reaper: sp.children, groups: g, env: vars, path: pathOf(h.Env), dir: h.Worktree, ipc: ipc{uid: c.UID, gid: c.GID},
		shells: &shells{spawner: sp, groups: g, env: vars, dir: h.Worktree, ctx: ctx}, pid1: c.PID1,
	}
	p.own, p.others = bounded(h)
	// A kernel of its own does not say where a shell's command stands in its memory.
	if c.Cgroup >= 0 && canWait(h.Shell, h.Env) {
		p.shells.shell = h.Shell
	}
	return p, notes, nil
}

// contain chooses how programs are told from each other, where the daemon has
// given no cgroup for them.
func (g *groups) contain(c Config, notes *[]string) error {
	h := c.Hello
	switch {
	case g.parent >= 0:
		return nil
	case c.OwnCgroup != "":
		tools, err := makeOwnCgroups(c.OwnCgroup, h.PIDs)
		g.parent, g.guard = tools, &guard{tools: tools, memory: h.Memory}
		return err
	case h.Memory > 0 || h.PIDs > 0:
		return errors.New("asked to keep limits, and no cgroup of its own to do it with")
	}
	*notes = append(*notes, "no cgroup for calls: their processes are found by an additional group id, and what they use is not counted")
	if c.UID >= 0 {
		g.tags = newTags()
	}
	return nil
}

// TID is the id of the thread that starts all programs.
func (p *Programs) TID() int { return p.spawner.tid }

// Hides reports whether the kernel can keep directories from programs (run.Command.Unseen).
func (p *Programs) Hides() bool { return p.spawner.landlock.hides() }

// Rest does what can wait until the result of a call is on its way: it removes
// the groups of its programs, and starts the shell for the next one.
func (p *Programs) Rest() { p.shells.rest() }

// Aside ends what waits for a next command, and so uses the worktree.
func (p *Programs) Aside(ctx context.Context) error { return p.shells.aside(ctx) }

// Stop ends all programs; no more may be started. It is false when the thread that
// starts them hangs in the kernel: it ends with this process, if at all.
func (p *Programs) Stop() bool {
	p.shells.close()
	stopped := p.spawner.stop()
	if p.pid1 {
		_ = unix.Kill(-1, unix.SIGKILL)
	}
	if !stopped {
		return false
	}
	if g := p.groups.guard; g != nil {
		g.wg.Wait()
	}
	p.reaper.stop()
	p.spawner.close()
	return true
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
