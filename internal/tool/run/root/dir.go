package root

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// Entry is one name in a directory.
type Entry struct {
	Name string // as it is: any bytes but NUL and "/"
	Kind Kind   // of the entry itself; a symlink is KindSymlink
}

// dirBuffer holds about a thousand entries; each filling is one piece of work.
const dirBuffer = 32 << 10

// listing is what one ReadDir needs; to make it anew for each of many small
// directories costs as much as to read them.
type listing struct {
	buf     [dirBuffer]byte
	entries []Entry
}

var listings = sync.Pool{New: func() any { return new(listing) }}

// ReadDir calls visit with the entries of a directory in the order that the
// file system has them, without "." and "..", until visit returns false. It
// holds only a few entries at a time, so the size of the directory does not
// matter. visit runs on the caller's goroutine.
func (r *Root) ReadDir(ctx context.Context, canonical string, visit func(Entry) bool) error {
	return r.ReadDirOnly(ctx, canonical, nil, visit)
}

// ReadDirOnly is ReadDir without the entries that keep is false of: where few of many
// are wanted, the others cost no more than that question. name is valid until keep
// returns, and the kind may be unknown. keep runs on a thread of the root.
func (r *Root) ReadDirOnly(ctx context.Context, canonical string, keep func(name []byte, kind Kind) bool, visit func(Entry) bool) error {
	if err := checkPath(canonical); err != nil {
		return err
	}
	l := listings.Get().(*listing)
	defer func() {
		clear(l.entries[:cap(l.entries)])
		listings.Put(l)
	}()
	fd := -1
	defer func() {
		if fd >= 0 {
			_ = unix.Close(fd) // it was only read
		}
	}()
	for {
		more := false
		err := r.do(ctx, func() error {
			var err error
			if fd < 0 {
				if fd, err = r.openDir(canonical, unix.O_RDONLY); err != nil {
					return err
				}
			}
			l.entries, more, err = readEntries(fd, canonical, l.buf[:], l.entries[:0], keep)
			return err
		})
		if err != nil || !more {
			return err
		}
		for _, e := range l.entries {
			if !visit(e) {
				return nil
			}
		}
	}
}

func (r *Root) openDir(canonical string, flags int) (int, error) {
	if r.ownProcess(canonical) {
		return -1, errf(InvalidPath, "the path %q is about the sandbox's own agent", canonical).next(ownProcess)
	}
	fd, err := openat2(r.fd, canonical, flags|unix.O_DIRECTORY, noFollow)
	if errors.Is(err, unix.ENOTDIR) {
		return -1, errf(NotRegular, "%q is not a directory", canonical)
	}
	return fd, owned(judgedError("open", canonical, err), func(st *unix.Stat_t) error { return statAt(r.fd, canonical, noFollow, st) })
}

// readEntries appends the next entries to entries, as far as keep is true of them;
// more is false at the end.
func readEntries(fd int, path string, buf []byte, entries []Entry, keep func([]byte, Kind) bool) (_ []Entry, more bool, err error) {
	n, err := unix.Getdents(fd, buf)
	for err == unix.EINTR {
		n, err = unix.Getdents(fd, buf)
	}
	if err == unix.ENOENT { // removed meanwhile
		return entries, false, nil
	}
	if err != nil {
		return entries, false, sysError("list", path, err)
	}
	entries = parseEntries(buf[:n], entries, keep)
	for i := range entries {
		if entries[i].Kind == KindUnknown {
			entries[i].Kind = entryKind(fd, entries[i].Name)
		}
	}
	return entries, n > 0, nil
}

// parseEntries reads records of linux_dirent64: inode (8 bytes), offset (8),
// length of the record (2), type (1), name ending with NUL.
func parseEntries(b []byte, entries []Entry, keep func([]byte, Kind) bool) []Entry {
	const header = 19
	for len(b) >= header {
		size := int(binary.NativeEndian.Uint16(b[16:]))
		if size < header || size > len(b) {
			break
		}
		name := b[header:size]
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		kind := kindOf(uint32(b[18]) << 12)
		if string(name) != "." && string(name) != ".." && len(name) > 0 && (keep == nil || keep(name, kind)) {
			entries = append(entries, Entry{Name: string(name), Kind: kind})
		}
		b = b[size:]
	}
	return entries
}

// entryKind is for file systems that do not tell the type in the listing.
func entryKind(dirfd int, name string) Kind {
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return KindUnknown
	}
	return kindOf(st.Mode)
}
