package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/process"
	"github.com/toold/toold/internal/thread"
)

// Laying is a tree that is made for its place.
type Laying struct {
	Target string // absolute path inside the sandbox
	// Make makes the tree, attached nowhere. It is called once, on a thread in no namespace of
	// the sandbox's; so is Back.
	Make func() (*os.File, error)
	// Back makes the one that was there before; nil: nobody knows it.
	Back func() (*os.File, error)
}

// Replace puts others into the places of two mounts that are there, in the mount namespace of the
// process whose /proc directory is proc: of that at aside, below which nothing is mounted, and of
// that at tree. Mounts that lie in tree do so afterwards too. It fails with sandbox.ErrBusy where
// something uses what is to go, and with sandbox.ErrMountTarget where the new one has no place for
// a mount that lies in the old one; then that one is in its place. Where the new tree cannot be
// made, that is made again.
//
// The new tree is made when the old one is gone, unless something lies in it: of an overlay over a
// layer that another one still writes to the kernel says in its log that it may behave in any way.
//
// It may end at any moment without anything being lost: something is always mounted at tree, or
// else aside over what is there, from where the next Replace takes it. First that is the old tree,
// then a place holder, an empty directory, then the new one. It closes the file of aside.
func Replace(proc *os.File, tree Laying, aside Detached) error {
	defer aside.File.Close()
	_, err := thread.Run(func() (struct{}, error) {
		root, err := enter(proc)
		if err != nil {
			return struct{}{}, err
		}
		defer root.Close()
		r := &replacing{proc: proc, root: root, tree: tree.Target, aside: aside.Target, step: func() {}}
		return struct{}{}, r.replace(tree, aside)
	})
	return err
}

// replacing is one Replace, on a thread in the namespace.
type replacing struct {
	proc, root  *os.File
	tree, aside string
	step        func() // between two changes; tests end it there
}

func (r *replacing) replace(tree Laying, aside Detached) error {
	if err := r.goOn(); err != nil {
		return err
	}
	if err := r.replaceAside(aside); err != nil {
		return fmt.Errorf("replace %s: %w", r.aside, err)
	}
	if err := r.replaceTree(tree); err != nil {
		return fmt.Errorf("replace %s: %w", r.tree, err)
	}
	return nil
}

// goOn brings what an earlier Replace has begun to an end.
func (r *replacing) goOn() error {
	all, err := r.mounts()
	if err != nil || count(all, r.aside) < 2 {
		return err
	}
	if count(all, r.tree) == 0 {
		return r.move(r.aside, r.tree)
	}
	return r.finish()
}

func (r *replacing) replaceAside(with Detached) error {
	all, err := r.mounts()
	if err == nil && count(all, r.aside) > 0 {
		err = unmountAt(r.root, r.aside, 0)
	}
	if err != nil {
		return err
	}
	r.step()
	return attachOne(r.root, with)
}

func (r *replacing) replaceTree(with Laying) error {
	all, err := r.mounts()
	if err != nil {
		return err
	}
	// What lies in a tree has its places in that, and may have none in one that is made later.
	if count(all, r.tree) == 0 || len(below(r.tree, all)) > 0 {
		return r.put(with.Make)
	}
	if err := r.put(placeHolder); err != nil {
		return err
	}
	r.step()
	err = r.put(with.Make)
	if err == nil || with.Back == nil {
		return err
	}
	r.step()
	if again := r.put(with.Back); again != nil {
		// What err says is of a sandbox that has its tree.
		return fmt.Errorf("%s; put back what was there: %w", plain.Cause(err), again)
	}
	return err
}

// put puts a mount into the place of the tree. A sandbox may have none that is attached nowhere,
// so that it is made elsewhere.
func (r *replacing) put(make func() (*os.File, error)) error {
	f, err := thread.Run(make)
	if err != nil {
		return err
	}
	defer f.Close()
	with := Detached{File: f, Target: r.tree}
	all, err := r.mounts()
	if err != nil {
		return err
	}
	if count(all, r.tree) == 0 {
		return attachOne(r.root, with)
	}
	r.step()
	if err := r.move(r.tree, r.aside); err != nil {
		return err
	}
	r.step()
	if err := attachOne(r.root, with); err != nil {
		return errors.Join(err, r.move(r.aside, r.tree))
	}
	_ = f.Close() // or it would be in use
	r.step()
	return r.finish()
}

// finish gives the new tree what is mounted in the old one, which lies aside, and takes that
// off; or else it puts the old one back.
func (r *replacing) finish() error {
	err := r.moveBelow(r.aside, r.tree)
	if err == nil {
		err = r.takeOff(r.aside)
	}
	if err == nil || !errors.Is(err, sandbox.ErrBusy) && !errors.Is(err, sandbox.ErrMountTarget) {
		return err
	}
	r.step()
	return errors.Join(err, r.moveBelow(r.tree, r.aside), r.takeOff(r.tree), r.move(r.aside, r.tree))
}

// moveBelow moves what is mounted in one mount to another. What is mounted in that goes with it.
func (r *replacing) moveBelow(from, to string) error {
	all, err := r.mounts()
	if err != nil {
		return err
	}
	var names []string
	for _, name := range below(from, all) {
		if slices.ContainsFunc(names, func(outer string) bool { return strings.HasPrefix(name, outer+"/") }) {
			continue
		}
		at, err := openAt(r.root, to+name, 0)
		if err != nil {
			return err
		}
		_ = at.Close() // it was opened to see that it is there
		names = append(names, name)
	}
	for _, name := range names {
		if err := r.move(from+name, to+name); err != nil {
			return err
		}
		r.step()
	}
	return nil
}

// takeOff unmounts what is at a place, in which nothing is mounted. A place holder goes whoever
// uses it: it has nothing of the session's.
func (r *replacing) takeOff(place string) error {
	all, err := r.mounts()
	if err != nil {
		return err
	}
	flags := 0
	if holdsPlace(all, place) {
		flags = unix.MNT_DETACH
	}
	return unmountAt(r.root, place, flags)
}

// move moves the uppermost mount at a place, with all that lies in it, over what is at another.
func (r *replacing) move(from, to string) error {
	f, err := openAt(r.root, from, 0)
	if err != nil {
		return err
	}
	defer f.Close() // before it is taken off, or it is in use
	return attachOne(r.root, Detached{File: f, Target: to, Plain: true})
}

// mounts are all that the process sees.
func (r *replacing) mounts() ([]*mountinfo.Info, error) {
	f, err := process.OpenIn(r.proc, "mountinfo", unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return mountinfo.GetMountsFromReader(f, nil)
}

// count is how many mounts lie one over the other at a place.
func count(mounts []*mountinfo.Info, place string) (n int) {
	for _, m := range mounts {
		if m.Mountpoint == place {
			n++
		}
	}
	return n
}

// below are the places of mounts below a place, without its name, each before those in it.
func below(place string, mounts []*mountinfo.Info) (names []string) {
	for _, m := range mounts {
		if name, ok := strings.CutPrefix(m.Mountpoint, place); ok && strings.HasPrefix(name, "/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// holdsPlace reports whether the uppermost mount at a place is a place holder.
func holdsPlace(mounts []*mountinfo.Info, place string) bool {
	covered := map[int]bool{}
	for _, m := range mounts {
		covered[m.Parent] = covered[m.Parent] || m.Mountpoint == place
	}
	return slices.ContainsFunc(mounts, func(m *mountinfo.Info) bool {
		return m.Mountpoint == place && !covered[m.ID] && m.FSType == "tmpfs" && m.Source == placeSource
	})
}

// placeSource is what the kernel shows a place holder by.
const placeSource = "place"

// placeHolder is an empty file system that nobody writes to.
func placeHolder() (*os.File, error) {
	return New("tmpfs", placeSource, map[string]string{"size": "4k", "mode": "755"}, unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_RDONLY)
}

// unmountAt takes off the mount at target. Its directory is found without following a link.
func unmountAt(root *os.File, target string, flags int) error {
	parent, err := OpenPlace(root, filepath.Dir(target))
	if err != nil {
		return err
	}
	defer parent.Close()
	if err := unix.Fchdir(int(parent.Fd())); err != nil {
		return err
	}
	err = unix.Unmount(filepath.Base(target), unix.UMOUNT_NOFOLLOW|flags)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%s: %w", target, sandbox.ErrBusy)
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	return nil
}

// OpenPlace opens a directory of the sandbox with this root, as itself: over no link, and
// with O_PATH.
func OpenPlace(root *os.File, path string) (*os.File, error) {
	return openAt(root, path, unix.O_DIRECTORY)
}

// openAt is OpenPlace with other flags than that of a directory.
func openAt(root *os.File, path string, flags uint64) (*os.File, error) {
	rel := strings.TrimPrefix(filepath.Clean(path), "/")
	if rel == "" {
		rel = "."
	}
	fd, err := unix.Openat2(int(root.Fd()), rel, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | flags,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, sandbox.ErrMountTarget, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}
