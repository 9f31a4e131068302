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

// Replace puts detached mounts into the places of mounts at the same targets, in the
// mount namespace of the process whose /proc directory is proc. Mounts that lie in one of
// them do so afterwards too. One that something uses fails with sandbox.ErrBusy and stays;
// those before it in the list are replaced by then.
func Replace(proc *os.File, mounts []Detached) error {
	_, err := thread.Run(func() (struct{}, error) {
		there, err := mountsOf(proc)
		if err != nil {
			return struct{}{}, err
		}
		root, err := enter(proc)
		if err != nil {
			return struct{}{}, err
		}
		defer root.Close()
		for _, m := range mounts {
			if err := replaceOne(root, m, there); err != nil {
				return struct{}{}, fmt.Errorf("replace %s: %w", m.Target, err)
			}
		}
		return struct{}{}, nil
	})
	return err
}

// mountsOf are all mounts that a process sees.
func mountsOf(proc *os.File) ([]*mountinfo.Info, error) {
	f, err := process.OpenIn(proc, "mountinfo", unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return mountinfo.GetMountsFromReader(f, nil)
}

func replaceOne(root *os.File, m Detached, there []*mountinfo.Info) error {
	lifted, err := lift(root, below(m.Target, there))
	if err == nil {
		if err = unmountAt(root, m.Target); err == nil {
			err = attachOne(root, m)
		}
	}
	for _, l := range slices.Backward(lifted) {
		err = errors.Join(err, attachOne(root, l), l.File.Close())
	}
	return err
}

// below are the places of mounts below a place, the deepest first.
func below(place string, mounts []*mountinfo.Info) []string {
	var list []string
	for _, m := range mounts {
		if strings.HasPrefix(m.Mountpoint, place+"/") {
			list = append(list, m.Mountpoint)
		}
	}
	slices.Sort(list)
	slices.Reverse(list)
	return list
}

// lift takes mounts off their targets and keeps them. Those that it gives with an error
// are to be put back.
func lift(root *os.File, targets []string) (lifted []Detached, err error) {
	for _, t := range targets {
		at, err := OpenPlace(root, t)
		if err != nil {
			return lifted, err
		}
		fd, err := unix.OpenTree(int(at.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
		_ = at.Close() // or the mount is in use
		if err != nil {
			return lifted, fmt.Errorf("%s: open_tree: %w", t, err)
		}
		m := Detached{File: os.NewFile(uintptr(fd), t), Target: t}
		if err := unmountAt(root, t); err != nil {
			return lifted, errors.Join(err, m.File.Close())
		}
		lifted = append(lifted, m)
	}
	return lifted, nil
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
