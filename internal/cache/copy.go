package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
)

// maxDepth is how many directories deep a tree may be that is copied: each holds two
// descriptors.
const maxDepth = 200

// copier copies a tree that sessions wrote. It follows no link and opens nothing by more
// than one name at a time; files, directories and links are copied with their permission
// bits and times, and belong to root. Each name of a file becomes a file of its own.
type copier struct {
	ctx            context.Context //nolint:containedctx // of the one copy that it is for
	files, skipped int64
}

// tree copies what the directory from has to the directory to.
func (c *copier) tree(from, to *os.File, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("it is more than %d directories deep", maxDepth)
	}
	for {
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
		entries, err := from.ReadDir(1024)
		for _, e := range entries {
			if err := c.entry(from, to, e.Name(), depth); err != nil {
				return fmt.Errorf("%s: %w", e.Name(), err)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (c *copier) entry(from, to *os.File, name string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(int(from.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	var err error
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		err = c.dir(from, to, name, depth)
	case unix.S_IFLNK:
		err = c.link(from, to, name)
	case unix.S_IFREG:
		err = c.file(from, to, name)
	default:
		c.skipped++
		return nil
	}
	if err != nil {
		return err
	}
	times := []unix.Timespec{st.Mtim, st.Mtim}
	return unix.UtimesNanoAt(int(to.Fd()), name, times, unix.AT_SYMLINK_NOFOLLOW)
}

func (c *copier) dir(from, to *os.File, name string, depth int) error {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY
	src, err := beneath.OpenFile(from, name, flags, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	if err := unix.Mkdirat(int(to.Fd()), name, 0o700); err != nil {
		return err
	}
	dst, err := beneath.OpenFile(to, name, flags, 0)
	if err != nil {
		return err
	}
	defer dst.Close()
	if err := c.tree(src, dst, depth+1); err != nil {
		return err
	}
	return sameMode(src, dst)
}

func (c *copier) link(from, to *os.File, name string) error {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(from.Fd()), name, buf)
	if err != nil {
		return err
	}
	c.files++
	return unix.Symlinkat(string(buf[:n]), int(to.Fd()), name)
}

func (c *copier) file(from, to *os.File, name string) error {
	// Should a FIFO have come into its place, this does not wait for it.
	src, err := beneath.OpenFile(from, name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := beneath.OpenFile(to, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	c.files++
	return errors.Join(c.content(dst, src), sameMode(src, dst), dst.Close())
}

// copyAtOnce is how many bytes are copied between two looks at whether to go on.
const copyAtOnce = 16 << 20

// content copies what a file has. Holes stay holes.
func (c *copier) content(dst, src *os.File) error {
	fi, err := src.Stat()
	if err != nil {
		return err
	}
	for at, end := int64(0), int64(0); at < fi.Size(); at = end {
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
		at, end = beneath.Extent(int(src.Fd()), at, fi.Size())
		end = min(end, at+copyAtOnce)
		_, err := io.Copy(io.NewOffsetWriter(dst, at), io.NewSectionReader(src, at, end-at))
		if err != nil {
			return err
		}
	}
	return dst.Truncate(fi.Size())
}

// sameMode gives a copy the permission bits of what it is of, and no others.
func sameMode(src, dst *os.File) error {
	fi, err := src.Stat()
	if err != nil {
		return err
	}
	return dst.Chmod(fi.Mode() & fs.ModePerm)
}
