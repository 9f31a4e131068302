package apply

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/hostlock"
)

// hold is the lock on a source: whoever looks at one to write to it has it, among all daemons of
// the host. It is a lock of its own on each name of the source, and one with others on the names
// of the directories above, so that sources which lie in one another are not written to at once,
// and neighbours are. The names are two, and one is enough: the inode, which stays when somebody
// renames it, and the path in its file system, which is the same whichever mount leads there.
// What another file system is mounted in is not above: no job goes over a mount.
//
// A job that is killed loses the lock, and leaves a mark if its plan was committed. The next job
// whose lock is in the way of it carries that plan out first.
type hold struct {
	file hostlock.File
	sourceNames
}

// sourceNames are those of a source and of the directories above it: bytes of the file of locks.
type sourceNames struct {
	Own   []int64 `json:"own"`
	Above []int64 `json:"above"`
}

// ErrHeld: the lock on the source could not be had, or what another job has left there not be
// finished. Nothing was changed.
var ErrHeld = errors.New("another apply writes to the same files")

// holdTime is how long a job waits for others: an apply of the largest tree takes less.
const holdTime = 30 * time.Second

// errBusy: somebody else carries out what an earlier job has left.
var errBusy = errors.New("another one carries it out")

// waitOn waits a little for others, and fails with ErrHeld when that was long enough, or nobody waits for it any more.
func waitOn(ctx context.Context, end time.Time) error {
	if time.Now().After(end) {
		return fault.Overloaded.Errorf("nothing was applied: %w, for more than %v now", ErrHeld, holdTime).Next("try again when it is over")
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrHeld, context.Cause(ctx))
	case <-time.After(10 * time.Millisecond):
		return nil
	}
}

// hold takes the lock on the source of a job, and finishes what others have left there.
func (d *state) hold(ctx context.Context, source *os.File) error {
	n, err := soon(ctx, func() (sourceNames, error) { return namesOf(source) })
	if err != nil {
		return writeError(err)
	}
	if err := os.MkdirAll(marksDir(), 0o700); err != nil {
		return fmt.Errorf("lock a source: %w", err)
	}
	for end := time.Now().Add(holdTime); ; {
		h := &hold{sourceNames: n}
		if h.file, err = hostlock.Open(filepath.Join(hostlock.Dir(), "sources")); err != nil {
			return fmt.Errorf("lock a source: %w", err)
		}
		ok, err := h.lock()
		if ok {
			d.held = h
			step("held")
			if err := d.finishOthers(ctx); err == nil {
				return nil
			} else if d.letGo(); !errors.Is(err, errBusy) {
				return err
			}
			// The one that is busy with it waits for the lock.
		} else if err := errors.Join(err, h.file.Close()); err != nil {
			return fmt.Errorf("lock a source: %w", err)
		}
		if err := waitOn(ctx, end); err != nil {
			return err
		}
	}
}

// letGo gives the lock back; a thread that is left behind has it until it ends.
func (d *state) letGo() {
	if d.held != nil {
		_ = d.held.file.Close()
		d.held = nil
	}
}

// lock tries to get all of the locks.
func (h *hold) lock() (bool, error) {
	for _, n := range h.Own {
		if ok, err := h.file.Lock(unix.F_WRLCK, n); !ok {
			return false, err
		}
	}
	for _, n := range h.Above {
		if ok, err := h.file.Lock(unix.F_RDLCK, n); !ok {
			return false, err
		}
	}
	return true, nil
}

// nameOf is the byte that stands for a name.
func nameOf(format string, args ...any) int64 {
	sum := sha256.Sum256(fmt.Appendf(nil, format, args...))
	return int64(binary.BigEndian.Uint64(sum[:]) >> 2) // no file has more
}

// namesOf gives the names of a directory. It may hang where its file system does.
func namesOf(dir *os.File) (n sourceNames, err error) {
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return n, err
	}
	defer func() { _ = unix.Close(fd) }()
	var mount uint64
	for last := int64(-1); ; {
		var st unix.Statx_t
		// What the kernel knows will do: a file system may be served by a program that never answers.
		if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_INO|unix.STATX_MNT_ID, &st); err != nil {
			return n, err
		}
		name := nameOf("inode %d:%d %d", st.Dev_major, st.Dev_minor, st.Ino)
		if name == last {
			break // the root is above itself
		}
		if last < 0 {
			n.Own, mount = append(n.Own, name), st.Mnt_id
		} else {
			n.Above = append(n.Above, name)
		}
		last = name
		up, err := unix.Openat2(fd, "..", &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_XDEV})
		if errors.Is(err, unix.EXDEV) {
			break
		}
		if err != nil {
			return n, err
		}
		_ = unix.Close(fd)
		fd = up
	}
	place, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return n, err
	}
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return uint64(m.ID) != mount, uint64(m.ID) == mount })
	if err != nil || len(mounts) == 0 {
		return n, err // a mount that is not among ours has nothing above
	}
	m := mounts[0]
	below, ok := strings.CutPrefix(place, strings.TrimSuffix(m.Mountpoint, "/"))
	if !ok || below != "" && below[0] != '/' {
		return n, nil // moved meanwhile
	}
	p := path.Join("/", m.Root, below)
	n.Own = append(n.Own, nameOf("path %d:%d %s", m.Major, m.Minor, p))
	for p != "/" {
		p = path.Dir(p)
		n.Above = append(n.Above, nameOf("path %d:%d %s", m.Major, m.Minor, p))
	}
	return n, nil
}

// near says whether one of two sources is, or lies in, the other.
func (n sourceNames) near(m sourceNames) bool {
	in := func(all []int64) func(int64) bool { return func(x int64) bool { return slices.Contains(all, x) } }
	return slices.ContainsFunc(n.Own, in(m.Own)) || slices.ContainsFunc(n.Own, in(m.Above)) || slices.ContainsFunc(m.Own, in(n.Above))
}
