package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// lab is a daemon of the benchmark's own and what it is measured with.
type lab struct {
	dir, tree    string
	socket       string
	runc, rg     string // rg is the one that sessions get
	cgroupParent string
	daemon       *testrig.Daemon
	c            *client.Client
	smoke        bool
	tiers        []string // that the group of that name measures
	notes        []string
	cleanups     []func()
}

// repeats lets the benchmark do the same thing again and again, which the daemon
// would otherwise stop. It is looked for all the same.
const repeats = "[permission]\ndoom_loop = \"allow\"\n[doom_loop]\nhard_limit = 0\n"

// labConfig is what labs differ in.
type labConfig struct {
	smoke   bool
	sandbox string // of [sandbox]; "" is the runc that was built
	tiers   []string
}

func newLab(cfg labConfig) *lab {
	if os.Getuid() != 0 {
		must(errors.New("sandboxes need root: run it with sudo"))
	}
	bin := get(filepath.Abs("bin"))
	if _, err := os.Stat(filepath.Join(bin, "toold")); err != nil {
		must(errors.New("no bin/toold here: run `make build` first, and this from the top of the tree"))
	}
	l := &lab{runc: filepath.Join(bin, "runc"), rg: filepath.Join(bin, "ripgrep", "rg"), smoke: cfg.smoke, tiers: cfg.tiers}
	l.dir = get(os.MkdirTemp("", "toold-bench-"))
	l.cgroupParent = "/" + filepath.Base(l.dir)
	if cfg.sandbox == "" {
		cfg.sandbox = fmt.Sprintf("runtime = %q\n", l.runc)
	}
	must(os.Chmod(l.dir, 0o711)) // sessions pass through it
	l.tree = filepath.Join(l.dir, "tree")
	must(os.Mkdir(l.tree, 0o755))
	// Files in memory: a disk's file system has moods of its own (ext4 passes over
	// each inode that was freed in the last minute, of which there are thousands
	// here), and the yardsticks write none.
	if err := unix.Mount("tmpfs", l.tree, "tmpfs", 0, "mode=755,size=256m"); err != nil {
		must(fmt.Errorf("mount a tmpfs for the worktree: %w", err))
	}
	l.socket = testrig.Socket(l.dir)
	config := filepath.Join(l.dir, "config.toml")
	must(os.WriteFile(config, []byte("[sandbox]\n"+cfg.sandbox+repeats), 0o600))
	argv := append([]string{filepath.Join(bin, "toold"), "--config", config}, testrig.Flags(l.dir, l.cgroupParent[1:], uidBase(l.dir))...)
	l.daemon = get(testrig.StartDaemon(l.socket, filepath.Join(l.dir, "log"), argv...))
	l.c = client.New(client.Options{Socket: l.socket})
	return l
}

// uidBase is apart from those of other daemons on this machine, which know
// nothing of each other.
func uidBase(dir string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(dir))
	return (0x7100 + h.Sum32()%0x10*0x80) << 16
}

// close ends all sessions and takes everything away again.
func (l *lab) close() {
	for _, v := range slices.Backward(l.cleanups) {
		v()
	}
	l.cleanups = nil
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if list, err := l.c.ListSessions(ctx, client.SessionQuery{}); err == nil {
		for _, s := range list.Items {
			l.c.EndSession(ctx, s.ID, client.EndOptions{Force: true})
		}
	}
	_ = errors.Join(l.daemon.Terminate(), unix.Unmount(l.tree, unix.MNT_DETACH), os.RemoveAll(l.dir), testrig.RemoveCgroups(l.cgroupParent[1:]))
}

// n is how often to do a thing.
func (l *lab) n(full int) int {
	if l.smoke {
		return max(3, full/100)
	}
	return full
}

func (l *lab) note(format string, args ...any) {
	l.notes = append(l.notes, fmt.Sprintf(format, args...))
}

// bound is a session on the lab's tree.
func (l *lab) bound() client.SessionCreate {
	return client.SessionCreate{Worktree: client.Worktree{Source: l.tree}}
}

func (l *lab) open(ctx context.Context, like client.SessionCreate) (string, error) {
	s, err := l.c.CreateSession(ctx, like)
	if err != nil {
		return "", err
	}
	return s.ID, nil
}

func (l *lab) session(ctx context.Context) (string, error) { return l.open(ctx, l.bound()) }

// making times the making of a session, and ends it.
func (l *lab) making(ctx context.Context, name string, like client.SessionCreate) subject {
	return subject{name: name, op: func() (time.Duration, error) {
		start := time.Now()
		id, err := l.open(ctx, like)
		took := time.Since(start)
		if err != nil {
			return 0, err
		}
		return took, l.end(ctx, id)
	}}
}

func (l *lab) end(ctx context.Context, ids ...string) error {
	for _, id := range ids {
		if _, err := l.c.EndSession(ctx, id, client.EndOptions{Force: true}); err != nil {
			return err
		}
	}
	return nil
}

// call runs a tool and wants it to succeed.
func (l *lab) call(ctx context.Context, session, tool string, input any) error {
	raw, err := json.Marshal(input)
	if err != nil {
		return err
	}
	c, err := l.c.CreateCall(ctx, session, client.CallCreate{Tool: tool, Input: raw}, client.CallOptions{})
	switch {
	case err != nil:
		return err
	case c.Error != nil:
		return c.Error
	case c.IsError:
		return fmt.Errorf("%s failed: %s", tool, c.Output)
	}
	return nil
}

func (l *lab) bash(ctx context.Context, session, command string) error {
	return l.call(ctx, session, "bash", map[string]any{"command": command})
}

func hostBash() error { return exec.Command("bash", "-c", "true").Run() }

func output(name string, args ...string) string {
	b, _ := exec.Command(name, args...).Output()
	return string(b)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// kernelSays is what a file of the kernel's has behind a name.
func kernelSays(file, name string) string {
	for line := range strings.Lines(readFile(file)) {
		if k, v, _ := strings.Cut(line, ":"); strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func readFile(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}
