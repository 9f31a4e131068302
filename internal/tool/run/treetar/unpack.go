package treetar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/tool/run/root"
)

// Unpacker unpacks one tar as it comes. Nothing is written through a link; setuid, setgid
// and sticky bits are dropped; files that are there are replaced, each in one step, and
// keep their permission bits, as directories do. A hard link arrives as a file.
type Unpacker struct {
	Root *root.Root
	Top  string    // canonical path of the directory, which is made where it is missing
	In   io.Reader // gives the tar
	Most int64     // bytes that the tar, and its files together, may have
	// Plain refuses files with holes and hard links, as no Packer writes them: then no more
	// is written than comes.
	Plain bool
	// Umask are permission bits that nothing gets that is made.
	Umask fs.FileMode
	// MaxFile bounds one file in bytes; 0 does not.
	MaxFile int64
	// Leaves reports whether what is at the path of an entry is to stay as it is. nil:
	// nothing is.
	Leaves func(path string, e *Entry) bool
	// Readable says why a file may not be read, for those that hard links are made of.
	// nil: all may.
	Readable func(path string) error

	Count

	tar *Reader
	buf []byte
	top *root.NewDir // if it was made
	// late are new directories that their maker may not use when all is done.
	late      []lateMode
	lateBytes int
}

// lateMode is a directory and its permission bits.
type lateMode struct {
	dir  *root.NewDir
	mode fs.FileMode
}

// unpackBuffer is how much of a file is written at a time.
const unpackBuffer = 256 << 10

// Unpack unpacks the tar. Its error is why it ended before the tar did; what was written
// until then stays. What could not be written alone is counted.
func (u *Unpacker) Unpack(ctx context.Context) error {
	u.tar, u.buf = NewReader(u.In, u.Most), make([]byte, unpackBuffer)
	u.tar.plain = u.Plain
	err := u.makeTop(ctx)
	for err == nil && ctx.Err() == nil {
		err = u.next(ctx)
	}
	for _, l := range slices.Backward(u.late) {
		// One that fails is gone, or somebody else's by now.
		_ = u.Root.SetMode(context.WithoutCancel(ctx), l.dir, l.mode)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx) // what it did to the tar says less
	case errors.Is(err, io.EOF):
		return nil
	}
	return err
}

func (u *Unpacker) makeTop(ctx context.Context) (err error) {
	if u.Top != "/" {
		u.top, err = u.Root.MakeDir(ctx, u.Top, 0o755&^u.Umask)
	}
	return err
}

// next unpacks one entry; io.EOF is the end.
func (u *Unpacker) next(ctx context.Context) error {
	e, err := u.tar.Next()
	if err != nil {
		return err
	}
	e.Mode &^= u.Umask
	at := path.Join(u.Top, e.Name)
	err = u.entry(ctx, e, at)
	if err != nil && !fatal(ctx, err) {
		u.fail(at, err)
		err = nil
	}
	return err
}

// fatal reports whether an error is about more than one entry.
func fatal(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return true
	}
	switch root.CodeOf(err) {
	case "", root.Aborted, root.Broken:
		return true
	}
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.EIO)
}

func (u *Unpacker) entry(ctx context.Context, e *Entry, at string) error {
	if e.Kind == Other {
		u.Skipped.Add(at)
		return nil
	}
	if u.Leaves != nil && at != u.Top && u.Leaves(at, e) {
		return nil
	}
	switch e.Kind {
	case Dir:
		return u.dir(ctx, e, at)
	case Link:
		return u.link(ctx, e, at)
	case HardLink:
		return u.copyOf(ctx, path.Join(u.Top, e.Target), at)
	}
	return u.file(ctx, at, u.tar, e.Size, e.Mode)
}

// through words the error for a path that goes through a link.
func through(err error, at string) error {
	if root.CodeOf(err) == root.Stale {
		return &root.Error{Code: root.Stale, Msg: fmt.Sprintf("%q goes through a link, or was changed meanwhile", at), Err: err}
	}
	return err
}

func (u *Unpacker) link(ctx context.Context, e *Entry, at string) error {
	if err := u.Root.PutLink(ctx, at, e.Target); err != nil {
		return through(err, at)
	}
	u.Links++
	return nil
}

func (u *Unpacker) dir(ctx context.Context, e *Entry, at string) error {
	made, own := u.top, false
	if at != u.Top {
		var err error
		if made, err = u.Root.MakeDir(ctx, at, e.Mode); err != nil {
			return through(err, at)
		}
		own = e.Mode&0o700 == 0o700
	}
	u.Dirs++
	if made == nil || own {
		return nil
	}
	if u.lateBytes += len(at); u.lateBytes > maxPending {
		return fmt.Errorf("%w: the paths of directories that their owner may not use have more than %d bytes", ErrTooLarge, maxPending)
	}
	u.late = append(u.late, lateMode{made, e.Mode})
	return nil
}

// file writes a file of size bytes.
func (u *Unpacker) file(ctx context.Context, at string, from io.Reader, size int64, mode fs.FileMode) error {
	if u.MaxFile > 0 && size > u.MaxFile {
		return &root.Error{Code: root.TooLarge, Msg: fmt.Sprintf("%q has %d bytes; a file may have %d", at, size, u.MaxFile)}
	}
	p, err := u.Root.Begin(ctx, at, root.BeginOptions{Parents: true, OverLink: true})
	if err != nil {
		return through(err, at)
	}
	defer p.Close()
	left := size
	for ; left > int64(len(u.buf)); left -= int64(len(u.buf)) {
		if _, err := io.ReadFull(from, u.buf); err != nil {
			return err
		}
		if err := p.Append(ctx, u.buf); err != nil {
			return err
		}
	}
	if _, err := io.ReadFull(from, u.buf[:left]); err != nil {
		return err
	}
	done, err := p.Commit(ctx, u.buf[:left], root.CommitOptions{Mode: &mode})
	if err != nil {
		return through(err, at)
	}
	if done.Names > 0 {
		u.Parted.Add(at)
	}
	u.Files++
	u.Bytes += size
	return nil
}

// copyOf makes a file of what another one in the tree has.
func (u *Unpacker) copyOf(ctx context.Context, of, at string) error {
	if u.Readable != nil {
		if err := u.Readable(of); err != nil {
			return &root.Error{Code: root.Denied, Msg: fmt.Sprintf("%q is a hard link to %q: %s", at, of, err), Err: err}
		}
	}
	f, err := u.Root.Open(ctx, of)
	if err != nil {
		return through(err, of)
	}
	defer func() { _ = f.Close() }() // it was only read
	if err := u.tar.Spend(f.Info().Size); err != nil {
		return err
	}
	err = u.file(ctx, at, f, f.Info().Size, f.Info().Mode)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = &root.Error{Code: root.Stale, Msg: fmt.Sprintf("%q was changed while it was copied to %q", of, at), Err: err}
	}
	return err
}
