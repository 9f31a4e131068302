package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/thread"
)

// place is a mount namespace on this thread that looks like a sandbox: a tree with two mounts in
// it, one in the other, and a file; and what the tree is compared with.
type place struct {
	t                *testing.T
	dir, tree, aside string
	proc             *os.File
}

// inPlace runs a test in one.
func inPlace(t *testing.T, run func(p *place) error) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	dir := t.TempDir()
	_, err := thread.Run(func() (struct{}, error) {
		err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("tmpfs", dir, "tmpfs", 0, ""), os.Mkdir(dir+"/tree", 0o755), os.Mkdir(dir+"/aside", 0o755))
		if err != nil {
			return struct{}{}, err
		}
		proc, err := os.Open(fmt.Sprintf("/proc/self/task/%d", unix.Gettid()))
		if err != nil {
			return struct{}{}, err
		}
		defer proc.Close()
		return struct{}{}, run(&place{t: t, dir: dir, tree: dir + "/tree", aside: dir + "/aside", proc: proc})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// mount is a detached file system that says its name and has places for others.
func (p *place) mount(name, target string) Detached {
	p.t.Helper()
	f, err := New("tmpfs", "tmpfs", nil, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	err = errors.Join(unix.Mkdirat(int(f.Fd()), "sub", 0o755), p.write(f, "name", name), p.write(f, "file", ""))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = f.Close() })
	return Detached{File: f, Target: target, Plain: true}
}

func (p *place) write(dir *os.File, name, text string) error {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// furnish attaches what a session has at first.
func (p *place) furnish() error {
	root, err := os.OpenFile("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, m := range []Detached{
		p.mount("tree 0", p.tree), p.mount("in it", p.tree+"/sub"), p.mount("in that", p.tree+"/sub/sub"), p.mount("aside 0", p.aside),
	} {
		err = errors.Join(err, attachOne(root, m), m.File.Close())
	}
	file, e := os.CreateTemp(p.dir, "")
	if e != nil {
		return errors.Join(err, e)
	}
	defer file.Close()
	_, e = file.WriteString("a file")
	return errors.Join(err, e, unix.Mount(file.Name(), p.tree+"/file", "", unix.MS_BIND, ""))
}

// shows says what is where, and what is mounted.
func (p *place) shows() string {
	var all []string
	for _, name := range []string{"tree/name", "tree/file", "tree/sub/name", "tree/sub/sub/name", "aside/name"} {
		b, err := os.ReadFile(filepath.Join(p.dir, name))
		if err != nil {
			b = []byte("none")
		}
		all = append(all, string(b))
	}
	info, err := (&replacing{proc: p.proc}).mounts()
	if err != nil {
		p.t.Fatal(err)
	}
	n := 0
	for _, m := range info {
		if strings.HasPrefix(m.Mountpoint, p.dir+"/") {
			n++
		}
	}
	return fmt.Sprintf("%s, %d mounts", strings.Join(all, ", "), n)
}

// ended is thrown where a daemon dies.
type ended struct{}

// replace is Replace on this thread, which ends at a step, 0 for none. It reports whether there
// was such a step.
func (p *place) replace(n, step int) (died bool, err error) {
	root, err := os.OpenFile("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return false, err
	}
	defer root.Close()
	defer func() {
		if x := recover(); x == (ended{}) {
			died = true
		} else if x != nil {
			panic(x)
		}
	}()
	r := &replacing{proc: p.proc, root: root, tree: p.tree, aside: p.aside, step: func() {
		if step--; step == 0 {
			panic(ended{})
		}
	}}
	tree, aside := p.mount(fmt.Sprint("tree ", n), p.tree), p.mount(fmt.Sprint("aside ", n), p.aside)
	defer tree.File.Close()
	defer aside.File.Close()
	return false, r.replace(tree, aside)
}

func furnished(n int) string {
	return fmt.Sprintf("tree %d, a file, in it, in that, aside %[1]d, 5 mounts", n)
}

// TestReplaceDies: a daemon may die between any two changes, also while it does again what an
// earlier one was at; what is mounted in the tree is there afterwards, and nothing else is.
func TestReplaceDies(t *testing.T) {
	t.Parallel()
	steps := 0
	for first, died := 1, true; died; first++ {
		for second := 0; second <= steps+1; second++ {
			inPlace(t, func(p *place) (err error) {
				if err := p.furnish(); err != nil {
					return err
				}
				if died, err = p.replace(1, first); err != nil {
					return fmt.Errorf("died at %d: %w", first, err)
				}
				if _, err := p.replace(2, second); err != nil {
					return fmt.Errorf("died at %d, then %d: %w", first, second, err)
				}
				if _, err := p.replace(3, 0); err != nil {
					return fmt.Errorf("after %d and %d: %w", first, second, err)
				}
				if got, want := p.shows(), furnished(3); got != want {
					t.Errorf("died at %d, then %d: %s, want %s", first, second, got, want)
				}
				return nil
			})
		}
		steps = first
	}
	if steps < 6 {
		t.Errorf("there were %d steps", steps)
	}
}

// TestReplaceCloned: a daemon of an earlier version, which cloned what is mounted in the tree, may have died while it did.
func TestReplaceCloned(t *testing.T) {
	t.Parallel()
	for _, cloned := range [][]string{{"/sub"}, {"/sub", "/sub/sub"}, {"/file"}, {"/file", "/sub", "/sub/sub"}} {
		inPlace(t, func(p *place) error {
			if err := p.furnish(); err != nil {
				return err
			}
			if died, err := p.replace(1, 4); err != nil || !died {
				return fmt.Errorf("died %v: %w", died, err)
			}
			for _, name := range cloned {
				if err := unix.Mount(p.aside+name, p.tree+name, "", unix.MS_BIND, ""); err != nil {
					return err
				}
			}
			if _, err := p.replace(2, 0); err != nil {
				return err
			}
			if got, want := p.shows(), furnished(2); got != want {
				t.Errorf("%s: %s, want %s", cloned, got, want)
			}
			return nil
		})
	}
}

// TestReplaceRefused: where something uses the tree, or the new one has no place for what is
// mounted in it, all is as it was; also where a daemon had died there.
func TestReplaceRefused(t *testing.T) {
	t.Parallel()
	refuse := map[string]func(p *place, m Detached) (undo func() error, want error){
		"in use": func(p *place, _ Detached) (func() error, error) {
			f, err := os.Open(p.tree + "/name")
			if err != nil {
				p.t.Fatal(err)
			}
			return f.Close, sandbox.ErrBusy
		},
		"no place": func(p *place, m Detached) (func() error, error) {
			if err := unix.Unlinkat(int(m.File.Fd()), "sub", unix.AT_REMOVEDIR); err != nil {
				p.t.Fatal(err)
			}
			return func() error { return nil }, sandbox.ErrMountTarget
		},
		"another kind": func(p *place, m Detached) (func() error, error) {
			dir := int(m.File.Fd())
			if err := errors.Join(unix.Unlinkat(dir, "file", 0), unix.Mkdirat(dir, "file", 0o755)); err != nil {
				p.t.Fatal(err)
			}
			return func() error { return nil }, sandbox.ErrMountTarget
		},
	}
	for name, begin := range refuse {
		for step := range 8 {
			inPlace(t, func(p *place) error {
				if err := p.furnish(); err != nil {
					return err
				}
				if _, err := p.replace(1, step); err != nil {
					return err
				}
				root, err := os.OpenFile("/", unix.O_PATH|unix.O_DIRECTORY, 0)
				if err != nil {
					return err
				}
				defer root.Close()
				tree, aside := p.mount("tree 2", p.tree), p.mount("aside 2", p.aside)
				r := &replacing{proc: p.proc, root: root, tree: p.tree, aside: p.aside, step: func() {}}
				if err := r.goOn(); err != nil {
					return err
				}
				before := p.shows()
				undo, want := begin(p, tree)
				if err := r.replace(tree, aside); !errors.Is(err, want) {
					t.Errorf("%s, died at %d: %v", name, step, err)
				}
				inTree := func(shown string) string { return strings.Join(strings.Split(shown, ", ")[:4], ", ") }
				if got := p.shows(); inTree(got) != inTree(before) || !strings.HasSuffix(got, ", 5 mounts") {
					t.Errorf("%s, died at %d: %s, before %s", name, step, got, before)
				}
				return undo()
			})
		}
	}
}
