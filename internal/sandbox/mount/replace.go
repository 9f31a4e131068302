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

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/process"
	"github.com/toold/toold/internal/thread"
)

// Replace puts detached mounts into the places of two that are there, in the mount namespace of
// the process whose /proc directory is proc: of that at aside, below which nothing is mounted,
// and of that at tree. Mounts that lie in tree do so afterwards too. It fails with
// sandbox.ErrBusy where something uses what is to go, and with sandbox.ErrMountTarget where the
// new one has no place for a mount that lies in the old one; then that one is in its place. All
// other errors are sandbox.ErrTorn.
//
// It may end at any moment without anything being lost: the old tree is moved over aside until
// the new one is whole, so that either is always mounted somewhere in the namespace, and the
// next Replace begins with what this one has left. It closes the files of both.
func Replace(proc *os.File, tree, aside Detached) error {
	defer tree.File.Close()
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
	if err != nil && !errors.Is(err, sandbox.ErrBusy) && !errors.Is(err, sandbox.ErrMountTarget) {
		err = fmt.Errorf("%w: %w", sandbox.ErrTorn, err)
	}
	return err
}

// replacing is one Replace, on a thread in the namespace.
type replacing struct {
	proc, root  *os.File
	tree, aside string
	step        func() // between two changes; tests end it there
}

func (r *replacing) replace(tree, aside Detached) error {
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
		err = unmountAt(r.root, r.aside)
	}
	if err != nil {
		return err
	}
	r.step()
	return attachOne(r.root, with)
}

func (r *replacing) replaceTree(with Detached) error {
	all, err := r.mounts()
	if err != nil {
		return err
	}
	if count(all, r.tree) == 0 { // an earlier version was ended between taking off and putting on
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
	_ = with.File.Close() // or it would be in use
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

// moveBelow moves what is mounted in one mount to another, with all that is mounted in that; but for
// what the other has already, as earlier versions left it, and for what lies below another mount. Nothing is moved where the other has no
// place for one of them.
//
// A clone would count against the sandbox's mount namespaces since Linux 6.15, of which it may have none.
func (r *replacing) moveBelow(from, to string) error {
	all, err := r.mounts()
	if err != nil {
		return err
	}
	has := below(to, all)
	var names []string
	for _, name := range below(from, all) {
		if slices.Contains(has, name) || slices.Contains(names, name) || slices.ContainsFunc(names, func(outer string) bool { return strings.HasPrefix(name, outer+"/") }) {
			continue
		}
		if err := r.fits(from+name, to+name); err != nil {
			return err
		}
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

// fits reports with an error that what is mounted at one place cannot be moved to another.
func (r *replacing) fits(from, to string) error {
	var kind [2]uint32
	for i, place := range []string{from, to} {
		var st unix.Stat_t
		f, err := openAt(r.root, place, 0)
		if err != nil {
			return err
		}
		if err = errors.Join(unix.Fstat(int(f.Fd()), &st), f.Close()); err != nil {
			return fmt.Errorf("%s: %w", place, err)
		}
		kind[i] = st.Mode & unix.S_IFMT
	}
	if (kind[0] == unix.S_IFDIR) != (kind[1] == unix.S_IFDIR) {
		return fmt.Errorf("%s: %w: one is a directory, what lies there is not, or the other way about", to, sandbox.ErrMountTarget)
	}
	return nil
}

// takeOff unmounts what is at a place, after all that lies in it.
func (r *replacing) takeOff(place string) error {
	all, err := r.mounts()
	if err != nil {
		return err
	}
	for _, name := range slices.Backward(below(place, all)) {
		if err := unmountAt(r.root, place+name); err != nil {
			return err
		}
		r.step()
	}
	return unmountAt(r.root, place)
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

// unmountAt takes off the mount at target. Its directory is found without following a link.
func unmountAt(root *os.File, target string) error {
	parent, err := OpenPlace(root, filepath.Dir(target))
	if err != nil {
		return err
	}
	defer parent.Close()
	if err := unix.Fchdir(int(parent.Fd())); err != nil {
		return err
	}
	err = unix.Unmount(filepath.Base(target), unix.UMOUNT_NOFOLLOW)
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
