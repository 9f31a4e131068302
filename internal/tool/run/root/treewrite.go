package root

import (
	"context"
	"errors"
	"io"
	"strconv"

	"golang.org/x/sys/unix"
)

// Remove removes the entry of that name in d, a directory only if it is empty.
func (d *Dir) Remove(ctx context.Context, name string, dir bool) error {
	return d.do(ctx, "remove", name, func() error {
		flags := 0
		if dir {
			flags = unix.AT_REMOVEDIR
		}
		return unix.Unlinkat(d.fd, name, flags)
	})
}

// Mkdir makes a directory in d, with exactly this mode.
func (d *Dir) Mkdir(ctx context.Context, name string, mode uint32) error {
	err := d.do(ctx, "create", name, func() error { return unix.Mkdirat(d.fd, name, 0o700) })
	if err != nil {
		return err
	}
	return d.Chmod(ctx, name, mode)
}

// Mknod makes a FIFO or a socket in d, with exactly this mode.
func (d *Dir) Mknod(ctx context.Context, name string, kind Kind, mode uint32) error {
	node := uint32(unix.S_IFIFO)
	if kind == KindSocket {
		node = unix.S_IFSOCK
	}
	err := d.do(ctx, "create", name, func() error { return unix.Mknodat(d.fd, name, node|0o600, 0) })
	if err != nil {
		return err
	}
	return d.Chmod(ctx, name, mode)
}

// Symlink makes a link in d.
func (d *Dir) Symlink(ctx context.Context, target, name string) error {
	return d.do(ctx, "create", name, func() error { return unix.Symlinkat(target, d.fd, name) })
}

// Chmod changes the permissions of an entry of d, of no link; "" is d itself.
func (d *Dir) Chmod(ctx context.Context, name string, mode uint32) error {
	return d.do(ctx, "set the mode of", name, func() error {
		if name == "" {
			return unix.Fchmod(d.fd, mode)
		}
		// It need not be readable to be opened so.
		fd, err := openat2(d.fd, name, unix.O_PATH|unix.O_NOFOLLOW, treeResolve)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode)
	})
}

// Mode is the permissions of d as they are now.
func (d *Dir) Mode(ctx context.Context) (mode uint32, err error) {
	err = d.do(ctx, "stat", "", func() error {
		var st unix.Stat_t
		err := unix.Fstat(d.fd, &st)
		mode = st.Mode & 0o7777
		return err
	})
	return mode, err
}

// Put makes a copy of a file the entry of that name in d, in place of a file that is
// there. It has the copied file's mode, modification time and user's extended attributes.
// It is there whole or not at all.
func (d *Dir) Put(ctx context.Context, name string, from *File) error {
	return d.do(ctx, "write to", name, func() error {
		t, err := newTemp(d.fd, true, d.r.named)
		if err != nil {
			return err
		}
		defer t.close()
		if err := t.copyOf(ctx, from); err != nil {
			return err
		}
		if err := t.ensureName(); err != nil {
			return err
		}
		return t.renameOver(name)
	})
}

// copy writes what is left to read of a file.
func (t *temp) copy(ctx context.Context, from *File) error {
	for buf := make([]byte, readChunk); ; {
		n, err := from.read(buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := t.write(ctx, buf[:n]); err != nil {
			return err
		}
	}
}

// copySparse is copy for a file of which nothing was given to a caller. Its holes stay holes.
func (t *temp) copySparse(ctx context.Context, from *File) error {
	begin, end, err := from.extent(0)
	if err == nil && begin == 0 && end >= from.info.Size {
		return t.copy(ctx, from)
	}
	buf := make([]byte, readChunk)
	for ; err == nil && begin < from.info.Size; begin, end, err = from.extent(end) {
		for at := begin; at < min(end, from.info.Size); {
			if ctx.Err() != nil {
				return aborted(ctx)
			}
			n, err := unix.Pread(from.fd, buf[:min(int64(len(buf)), end-at)], at)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return err
			}
			if n == 0 {
				return errf(Stale, "it became shorter while it was copied")
			}
			if _, err := unix.Pwrite(t.fd, buf[:n], at); err != nil {
				return err
			}
			at += int64(n)
		}
	}
	if err != nil {
		return err
	}
	return unix.Ftruncate(t.fd, from.info.Size)
}

// copyOf makes the file a copy of another.
func (t *temp) copyOf(ctx context.Context, from *File) error {
	if err := t.copySparse(ctx, from); err != nil {
		return err
	}
	copyXattrs(from.fd, t.fd) // what belongs to the system is left out
	var st unix.Stat_t
	if err := unix.Fstat(from.fd, &st); err != nil {
		return err
	}
	times := []unix.Timespec{st.Atim, st.Mtim}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(t.fd), times, 0); err != nil {
		return err
	}
	return unix.Fchmod(t.fd, st.Mode&0o7777)
}

// do does work on an entry on one of the root's threads.
func (d *Dir) do(ctx context.Context, verb, name string, f func() error) error {
	return d.r.do(ctx, func() error { return judgedError(verb, d.at(name), f()) })
}
