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

// furnish attaches what a session has at first, bare with nothing in its tree.
func (p *place) furnish(bare bool) error {
	root, err := os.OpenFile("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	mounts := []Detached{p.mount("tree 0", p.tree), p.mount("aside 0", p.aside)}
	if !bare {
		mounts = append(mounts, p.mount("in it", p.tree+"/sub"), p.mount("in that", p.tree+"/sub/sub"))
	}
	for _, m := range mounts {
		err = errors.Join(err, attachOne(root, m), m.File.Close())
	}
	if bare {
		return err
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
	aside := p.mount(fmt.Sprint("aside ", n), p.aside)
	defer aside.File.Close()
	return false, r.replace(p.laying(fmt.Sprint("tree ", n)), aside)
}

// laying is a tree that says its name.
func (p *place) laying(name string) Laying {
	return Laying{Target: p.tree, Make: func() (*os.File, error) { return p.mount(name, p.tree).File, nil }}
}

func furnished(bare bool, tree string, aside int) string {
	if bare {
		return fmt.Sprintf("%s, , none, none, aside %d, 2 mounts", tree, aside)
	}
	return fmt.Sprintf("%s, a file, in it, in that, aside %d, 5 mounts", tree, aside)
}

// TestReplaceDies: a daemon may die between any two changes, also while it does again what an
// earlier one was at; what is mounted in the tree is there afterwards, and nothing else is.
func TestReplaceDies(t *testing.T) {
	t.Parallel()
	for _, bare := range []bool{false, true} {
		steps := 0
		for first, died := 1, true; died; first++ {
			for second := 0; second <= steps+1; second++ {
				inPlace(t, func(p *place) (err error) {
					if err := p.furnish(bare); err != nil {
						return err
					}
					if died, err = p.replace(1, first); err != nil {
						return fmt.Errorf("died at %d: %w", first, err)
					}
					if p.shows() == "none, none, none, none, none, 0 mounts" {
						t.Errorf("died at %d: nothing is there", first)
					}
					if _, err := p.replace(2, second); err != nil {
						return fmt.Errorf("died at %d, then %d: %w", first, second, err)
					}
					if _, err := p.replace(3, 0); err != nil {
						return fmt.Errorf("after %d and %d: %w", first, second, err)
					}
					if got, want := p.shows(), furnished(bare, "tree 3", 3); got != want {
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
}

// TestReplaceRefused: where something uses the tree, or the new one cannot be made, or has no place
// for what is mounted in the old one, all is as it was; also where a daemon had died there.
func TestReplaceRefused(t *testing.T) {
	t.Parallel()
	none := func() error { return nil }
	for _, c := range []struct {
		name  string
		bare  bool
		begin func(p *place, tree *Laying) (undo func() error)
		want  error
	}{
		{"in use", false, (*place).use, sandbox.ErrBusy},
		{"in use and bare", true, (*place).use, sandbox.ErrBusy},
		{"no place", false, func(_ *place, tree *Laying) func() error {
			m, err := tree.Make()
			if err == nil {
				err = unix.Unlinkat(int(m.Fd()), "sub", unix.AT_REMOVEDIR)
			}
			tree.Make = func() (*os.File, error) { return m, err }
			return none
		}, sandbox.ErrMountTarget},
		{"not made", true, func(_ *place, tree *Laying) func() error {
			tree.Make = func() (*os.File, error) { return nil, unix.ENOSPC }
			return none
		}, unix.ENOSPC},
	} {
		for step := range 10 {
			inPlace(t, func(p *place) error {
				if err := p.furnish(c.bare); err != nil {
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
				tree, aside := p.laying("tree 2"), p.mount("aside 2", p.aside)
				r := &replacing{proc: p.proc, root: root, tree: p.tree, aside: p.aside, step: func() {}}
				if err := r.goOn(); err != nil {
					return err
				}
				was, _, _ := strings.Cut(p.shows(), ", ")
				if was == "none" { // a place holder, of which nothing is in use
					if errors.Is(c.want, sandbox.ErrBusy) {
						return nil
					}
					was = "tree 0"
				}
				tree.Back = p.laying(was).Make
				undo := c.begin(p, &tree)
				if err := r.replace(tree, aside); !errors.Is(err, c.want) {
					t.Errorf("%s, died at %d: %v", c.name, step, err)
				}
				if got, want := p.shows(), furnished(c.bare, was, 2); got != want {
					t.Errorf("%s, died at %d: %s, want %s", c.name, step, got, want)
				}
				return undo()
			})
		}
	}
}

// use has something of the tree open.
func (p *place) use(*Laying) func() error {
	f, err := os.Open(p.tree + "/name")
	if err != nil {
		p.t.Error(err)
		return func() error { return nil }
	}
	return f.Close
}

// TestReplaceFirstGone: when the new tree is made, no overlay has the layers of the old one any more:
// the kernel, which otherwise only warns, refuses such layers to one with an index.
func TestReplaceFirstGone(t *testing.T) {
	t.Parallel()
	inPlace(t, func(p *place) error {
		if err := p.furnish(true); err != nil {
			return err
		}
		layers := t.TempDir()
		overlay := func(upper, lower string) (*os.File, error) {
			err := errors.Join(os.MkdirAll(filepath.Join(layers, upper, "work"), 0o755), os.MkdirAll(filepath.Join(layers, upper, "root/sub"), 0o755),
				os.WriteFile(filepath.Join(layers, upper, "root/file"), nil, 0o600))
			if err != nil {
				return nil, err
			}
			return New("overlay", "overlay", map[string]string{
				"lowerdir": lower, "upperdir": filepath.Join(layers, upper, "root"), "workdir": filepath.Join(layers, upper, "work"), "index": "on",
			}, 0)
		}
		source := filepath.Join(layers, "source")
		first := filepath.Join(layers, "first/root")
		if err := os.Mkdir(source, 0o755); err != nil {
			return err
		}
		replace := func(make func() (*os.File, error)) error {
			root, err := os.OpenFile("/", unix.O_PATH|unix.O_DIRECTORY, 0)
			if err != nil {
				return err
			}
			defer root.Close()
			r := &replacing{proc: p.proc, root: root, tree: p.tree, aside: p.aside, step: func() {}}
			aside := p.mount("aside", p.aside)
			defer aside.File.Close()
			return r.replace(Laying{Target: p.tree, Make: make}, aside)
		}
		if err := replace(func() (*os.File, error) { return overlay("first", source) }); err != nil {
			return err
		}
		if f, err := overlay("other", first+":"+source); !errors.Is(err, unix.EBUSY) {
			_ = f.Close()
			t.Skipf("this kernel does not say when a layer is in use: %v", err)
		}
		return replace(func() (*os.File, error) { return overlay("second", first+":"+source) })
	})
}
