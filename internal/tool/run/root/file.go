package root

import (
	"context"
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
)

// File is an open regular file. Its methods are for one goroutine at a time.
type File struct {
	r    *Root
	fd   int
	info Info
	head []byte // read when it was opened, and not yet given to a caller
	end  bool   // nothing comes after head
}

const (
	// readChunk is how much of a file is read by one system call.
	readChunk = 256 << 10
	// prefetch is the size up to which a file is read when it is opened. Going
	// to another thread costs more than reading so little.
	prefetch = 64 << 10
)

// Extent is where the next bytes of the file lie from an offset on: what is before them, and
// from their end to the next ones, is a hole. begin is the size, where no more follow. A file
// system that knows of no holes has the rest in one. It moves nothing that Read reads.
func (f *File) Extent(ctx context.Context, from int64) (begin, end int64, err error) {
	err = f.r.do(ctx, func() error {
		begin, end, err = f.extent(from)
		return sysError("look for holes in", f.info.Path, err)
	})
	return begin, end, err
}

func (f *File) extent(from int64) (begin, end int64, err error) {
	at, err := unix.Seek(f.fd, 0, unix.SEEK_CUR)
	if err != nil {
		return 0, 0, err
	}
	if from >= f.info.Size {
		return f.info.Size, f.info.Size, nil
	}
	begin, end = beneath.Extent(f.fd, from, f.info.Size)
	_, err = unix.Seek(f.fd, at, unix.SEEK_SET)
	return begin, end, err
}

// ReadAt reads the file at an offset, as an io.ReaderAt does, and moves nothing that Read reads.
func (f *File) ReadAt(ctx context.Context, p []byte, at int64) (n int, err error) {
	err = f.r.do(ctx, func() error {
		for n < len(p) {
			m, err := unix.Pread(f.fd, p[n:], at+int64(n))
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return sysError("read", f.info.Path, err)
			}
			if m == 0 {
				return io.EOF
			}
			n += m
		}
		return nil
	})
	return n, err
}

// Open opens a regular file by its canonical path. Anything else is NotRegular,
// found out without opening it: opening a FIFO or a device can block or do
// something.
func (r *Root) Open(ctx context.Context, canonical string) (*File, error) {
	if err := checkPath(canonical); err != nil {
		return nil, err
	}
	var f *File
	err := r.do(ctx, func() error {
		var err error
		f, err = r.open(canonical)
		return err
	})
	return f, err
}

func (r *Root) open(canonical string) (*File, error) {
	if r.ownProcess(canonical) {
		return nil, errf(InvalidPath, "the path %q is about the sandbox's own agent", canonical).next(ownProcess)
	}
	if err := statRegular(r.fd, canonical, canonical, noFollow); err != nil {
		return nil, err
	}
	return r.openSeen(canonical)
}

// openSeen is open for what has just been resolved, and seen to be a regular file.
func (r *Root) openSeen(canonical string) (*File, error) {
	return r.openFile(r.fd, canonical, canonical, noFollow)
}

func (r *Root) openFile(dirfd int, name, path string, resolve uint64) (*File, error) {
	fd, info, err := openSeen(dirfd, name, path, resolve)
	if err != nil {
		return nil, err
	}
	f := &File{r: r, fd: fd, info: info}
	if info.Size > prefetch {
		return f, nil
	}
	if f.head, f.end, err = readSmall(fd, path, info.Size); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return f, nil
}

// readSmall reads about as much as the file claims to have; end reports whether
// that was all.
func readSmall(fd int, path string, size int64) (data []byte, end bool, err error) {
	data = make([]byte, 0, size+512)
	for len(data) < cap(data) {
		n, err := readOnce(fd, path, data[len(data):cap(data)])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			return data, true, nil
		}
		if err != nil {
			return nil, false, err
		}
	}
	return data, false, nil
}

// openRegular opens name below dirfd for reading if it is a regular file. path
// is its canonical path, for messages.
func openRegular(dirfd int, name, path string, resolve uint64) (int, Info, error) {
	if err := statRegular(dirfd, name, path, resolve); err != nil {
		return -1, Info{}, err
	}
	return openSeen(dirfd, name, path, resolve)
}

// openSeen opens what was a regular file a moment ago. What it has become since is
// not waited for, and seen once it is open.
func openSeen(dirfd int, name, path string, resolve uint64) (int, Info, error) {
	fd, err := openat2(dirfd, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_NOFOLLOW, resolve)
	if err != nil {
		return -1, Info{}, owned(judgedError("open", path, err), func(st *unix.Stat_t) error { return statAt(dirfd, name, resolve, st) })
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, Info{}, sysError("stat", path, err)
	}
	if err := regular(path, &st); err != nil {
		unix.Close(fd)
		return -1, Info{}, err
	}
	return fd, infoOf(path, &st), nil
}

// statAt looks at name below dirfd.
func statAt(dirfd int, name string, resolve uint64, st *unix.Stat_t) error {
	fd, err := openat2(dirfd, name, unix.O_PATH|unix.O_NOFOLLOW, resolve)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fstat(fd, st)
}

// statRegular looks at name below dirfd without opening it for anything.
func statRegular(dirfd int, name, path string, resolve uint64) error {
	var st unix.Stat_t
	if err := statAt(dirfd, name, resolve, &st); err != nil {
		return judgedError("open", path, err)
	}
	return regular(path, &st)
}

func regular(path string, st *unix.Stat_t) error {
	switch kind := kindOf(st.Mode); kind {
	case KindFile:
		return nil
	case KindSymlink:
		return judgedError("open", path, unix.ELOOP)
	default:
		return errf(NotRegular, "%q is not a regular file but a %s", path, kind)
	}
}

// Info is what the file was when it was opened.
func (f *File) Info() Info { return f.info }

// Left is how much there is still to be read, where that is known because the file
// was read to its end when it was opened.
func (f *File) Left() (bytes int, known bool) { return len(f.head), f.end }

// Read implements io.Reader. It never blocks on another process; a file of /proc
// that would is NotRegular.
func (f *File) Read(p []byte) (int, error) {
	if len(f.head) > 0 || f.end {
		return f.read(p)
	}
	var n int
	err := f.r.do(context.Background(), func() error {
		var err error
		n, err = f.read(p)
		return err
	})
	return n, err
}

// read is Read on the right thread.
func (f *File) read(p []byte) (int, error) {
	if len(f.head) > 0 {
		n := copy(p, f.head)
		f.head = f.head[n:]
		return n, nil
	}
	if f.end {
		return 0, io.EOF
	}
	return readOnce(f.fd, f.info.Path, p)
}

// ReadAll reads from the present offset to the end, at most limit bytes: more
// is TooLarge. The size that the file claims is not trusted.
func (f *File) ReadAll(ctx context.Context, limit int64) ([]byte, error) {
	if f.end {
		data := f.head
		f.head = nil
		if int64(len(data)) > limit {
			return nil, tooLarge(f.info.Path, limit)
		}
		return data, nil
	}
	var data []byte
	err := f.r.do(ctx, func() error {
		var err error
		data, err = readAll(ctx, f.read, f.info, limit)
		return err
	})
	return data, err
}

// Close closes the file.
func (f *File) Close() error { return unix.Close(f.fd) }

func readOnce(fd int, path string, p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, err := unix.Read(fd, p)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return 0, errf(NotRegular, "%q is not a regular file: reading it waits for something to happen", path)
		case err != nil:
			return 0, sysError("read", path, err)
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// readAll reads to the end, in portions between which ctx may end it.
func readAll(ctx context.Context, read func([]byte) (int, error), info Info, limit int64) ([]byte, error) {
	if info.Size > limit {
		return nil, tooLarge(info.Path, limit)
	}
	data := make([]byte, 0, info.Size+512)
	for {
		if ctx.Err() != nil {
			return nil, aborted(ctx)
		}
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		n, err := read(data[len(data):min(cap(data), len(data)+readChunk)])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
		if int64(len(data)) > limit {
			return nil, tooLarge(info.Path, limit)
		}
	}
}

func tooLarge(path string, limit int64) error {
	return errf(TooLarge, "%q is larger than %d bytes", path, limit)
}
