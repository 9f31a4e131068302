package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/thread"
)

// Staged is a detached mount that a runtime takes by a path.
type Staged struct {
	// Source is a path that has the mount for what Stage calls, and for nobody
	// else on the host.
	Source string
	Target string // absolute path inside the sandbox
}

// Plan says by which paths below dir a runtime will find mounts that Stage
// attaches. A mount whose target lies in that of one before it has no path of its
// own: it is attached within that one.
func Plan(dir string, mounts []Detached) []Staged {
	var list []Staged
	for i, m := range mounts {
		if outer(mounts[:i], m.Target) < 0 {
			list = append(list, Staged{Source: stagedAt(dir, i), Target: m.Target})
		}
	}
	return list
}

func stagedAt(dir string, i int) string { return filepath.Join(dir, strconv.Itoa(i)) }

// outer is the outermost mount that target lies in, which has a path of its own; -1 for
// none.
func outer(mounts []Detached, target string) int {
	found := -1
	for i, m := range mounts {
		if strings.HasPrefix(target, m.Target+"/") && (found < 0 || len(m.Target) < len(mounts[found].Target)) {
			found = i
		}
	}
	return found
}

// Stage calls f on a thread with a mount namespace of its own in which the mounts
// are attached below dir, as Plan says. Processes that f starts are born in that
// namespace; it ends with the last of them, and the mounts with it, so that there
// is nothing to clean up, whatever becomes of this process. dir must exist. f must
// not leave the thread behind for others: it ends when f returns.
func Stage(dir string, mounts []Detached, f func() error) error {
	_, err := privately(func() (struct{}, error) {
		for i, m := range mounts {
			if err := stageOne(dir, mounts[:i], i, m); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, f()
	})
	return err
}

// privately runs f on a thread with a mount namespace of its own, of which no other hears,
// and which ends with the thread unless f has started processes in it.
func privately[T any](f func() (T, error)) (T, error) {
	return thread.Run(func() (nothing T, err error) {
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			return nothing, fmt.Errorf("unshare: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return nothing, fmt.Errorf("make mounts private: %w", err)
		}
		return f()
	})
}

func stageOne(dir string, before []Detached, i int, m Detached) error {
	if j := outer(before, m.Target); j >= 0 {
		// What is there is a stranger's: no link is followed.
		root, err := os.OpenFile(stagedAt(dir, j), unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer root.Close()
		return attachOne(root, Detached{File: m.File, Target: strings.TrimPrefix(m.Target, before[j].Target), Over: m.Over})
	}
	at := stagedAt(dir, i)
	if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := unix.MoveMount(int(m.File.Fd()), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("%w: stage %s: %w", sandbox.ErrMountTarget, m.Target, err)
	}
	return nil
}

// Bind shows the directory from at the path to, for this thread's mount namespace
// alone; it is to be used within Stage.
func Bind(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", from, to, err)
	}
	return nil
}
