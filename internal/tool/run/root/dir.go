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
	if err := checkPath(canonical); err != nil {
		return err
	}
	fd := -1
	err := r.do(ctx, func() error {
		var err error
		fd, err = r.openDir(canonical, unix.O_RDONLY)
		return err
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	l := listings.Get().(*listing)
	defer func() {
		clear(l.entries[:cap(l.entries)])
		listings.Put(l)
	}()
	for {
		err := r.do(ctx, func() error {
			var err error
			l.entries, err = readEntries(fd, canonical, l.buf[:], l.entries[:0])
			return err
		})
		if err != nil || len(l.entries) == 0 {
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
		return -1, errf(InvalidPath, "the path %q is about the sandbox's own agent", canonical)
	}
	fd, err := openat2(r.fd, canonical, flags|unix.O_DIRECTORY, 0, noFollow)
	if errors.Is(err, unix.ENOTDIR) {
		return -1, errf(NotRegular, "%q is not a directory", canonical)
	}
	return fd, judgedError("open", canonical, err)
}

// readEntries appends the next entries to entries; none means the end.
func readEntries(fd int, path string, buf []byte, entries []Entry) ([]Entry, error) {
	for len(entries) == 0 {
		n, err := unix.Getdents(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err == unix.ENOENT { // removed meanwhile
			return entries, nil
		}
		if err != nil {
			return entries, sysError("list", path, err)
		}
		if n == 0 {
			return entries, nil
		}
		entries = parseEntries(buf[:n], entries)
	}
	for i := range entries {
		if entries[i].Kind == KindUnknown {
			entries[i].Kind = entryKind(fd, entries[i].Name)
		}
	}
	return entries, nil
}

// parseEntries reads records of linux_dirent64: inode (8 bytes), offset (8),
// length of the record (2), type (1), name ending with NUL.
func parseEntries(b []byte, entries []Entry) []Entry {
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
		if s := string(name); s != "." && s != ".." && s != "" {
			entries = append(entries, Entry{Name: s, Kind: kindOf(uint32(b[18]) << 12)})
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
