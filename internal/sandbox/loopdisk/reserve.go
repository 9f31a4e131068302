package loopdisk

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
)

// A disk of Create has a reserve: who fills it takes all that there is, and then no directory
// could be made on it, not even to begin anew. The reserve is files, each a file and some
// bytes that nobody else has.
const (
	reserveDir   = "reserve"
	reserveFiles = 64
	reserveBytes = 16 << 10 // of each
	reserveStep  = 16       // files that Spend takes at a time
	tightBytes   = 1 << 20
	tightFiles   = 64
)

func addReserve(path string) error {
	root, err := Mount(path)
	if err != nil {
		return err
	}
	// Written now: a program that is just being started may keep it mounted beyond this, and the file is copied next.
	err = errors.Join(unix.Mkdirat(int(root.Fd()), reserveDir, 0o700), Refill(root), beneath.Sync(int(root.Fd())))
	return errors.Join(err, root.Close())
}

// Spend gives up a part of a disk's reserve where the disk is nearly full; root is its mount.
// What is free then goes to whoever is quicker, so that nobody else may write meanwhile.
// ENOSPC: there is nothing left of it.
func Spend(root *os.File) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &st); err != nil {
		return err
	}
	if int64(st.Bavail)*st.Bsize >= tightBytes && st.Ffree >= tightFiles {
		return nil
	}
	n := 0
	for i := 0; i < reserveFiles && n < reserveStep; i++ {
		err := unix.Unlinkat(int(root.Fd()), reserved(i), 0)
		if err == nil {
			n++
		} else if !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	if n == 0 {
		return unix.ENOSPC
	}
	return nil
}

// Refill makes a disk's reserve whole again, as far as there is room.
func Refill(root *os.File) error {
	if unix.Faccessat(int(root.Fd()), reserved(0), unix.F_OK, 0) == nil {
		return nil // which is the first to go, and the last to come
	}
	for i := reserveFiles - 1; i >= 0; i-- {
		fd, err := unix.Openat(int(root.Fd()), reserved(i), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err == nil {
			err = errors.Join(unix.Fallocate(fd, 0, 0, reserveBytes), unix.Close(fd))
		}
		if errors.Is(err, unix.ENOSPC) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func reserved(i int) string { return reserveDir + "/" + strconv.Itoa(i) }
