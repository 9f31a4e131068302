package image

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// packer writes a directory as a tar archive. The directory may be another
// user's, who changes it meanwhile: it is walked by descriptors, and no link is
// followed.
type packer struct {
	ctx    context.Context
	w      *tar.Writer
	budget *budget
	dev    uint64            // the file system that is packed
	skip   [2]uint64         // device and inode of a directory that is left out
	links  map[uint64]string // names of inodes that have several, by inode
	buf    []byte
}

// pack writes what is in dir, in an order that follows from the names alone.
// Other file systems, the directory skip, sockets and extended attributes are
// left out. The limits of b hold.
func pack(ctx context.Context, w io.Writer, dir, skip *os.File, b *budget) error {
	var st, other unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return err
	}
	if err := unix.Fstat(int(skip.Fd()), &other); err != nil {
		return err
	}
	p := &packer{
		ctx: ctx, w: tar.NewWriter(w), budget: b, dev: st.Dev, skip: [2]uint64{other.Dev, other.Ino},
		links: map[uint64]string{}, buf: make([]byte, 256<<10),
	}
	if err := p.directory(int(dir.Fd()), ".", ".", &st); err != nil {
		return err
	}
	return p.w.Close()
}

// directory packs a directory: name in dirfd, which is rel from the root.
func (p *packer) directory(dirfd int, name, rel string, st *unix.Stat_t) error {
	if strings.Count(rel, "/") >= maxDepth {
		return fmt.Errorf("%q: %w: it is deeper than %d directories", quotable(rel), ErrTooLarge, maxDepth)
	}
	if err := p.header(rel+"/", tar.TypeDir, st, ""); err != nil {
		return err
	}
	if st.Dev != p.dev || [2]uint64{st.Dev, st.Ino} == p.skip {
		return nil
	}
	var names []string
	err := eachName(dirfd, name, func(_ int, n string) error {
		names = append(names, n)
		return p.budget.entry(len(n))
	})
	if err != nil {
		return fmt.Errorf("%q: %w", quotable(rel), err)
	}
	open, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%q: %w", quotable(rel), err)
	}
	defer unix.Close(open)
	slices.Sort(names)
	for _, n := range names {
		if err := p.entry(open, n, path.Join(rel, n)); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) entry(dirfd int, name, rel string) error {
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	if strings.HasPrefix(name, whiteoutPrefix) {
		return fmt.Errorf("%q: %w: in an image, names that begin with %q mean a removal", quotable(rel), ErrRefused, whiteoutPrefix)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("%q: %w", quotable(rel), err)
	}
	kind := st.Mode & unix.S_IFMT
	if kind == unix.S_IFDIR {
		return p.directory(dirfd, name, rel, &st)
	}
	if err := p.other(dirfd, name, rel, kind, &st); err != nil {
		return fmt.Errorf("%q: %w", quotable(rel), err)
	}
	return nil
}

// other packs what is no directory.
func (p *packer) other(dirfd int, name, rel string, kind uint32, st *unix.Stat_t) error {
	if kind == unix.S_IFSOCK {
		return nil // nobody listens in a copy
	}
	if first, ok := p.links[st.Ino]; ok && st.Nlink > 1 {
		return p.header(rel, tar.TypeLink, st, first)
	}
	switch kind {
	case unix.S_IFREG:
		if st.Nlink > 1 {
			p.links[st.Ino] = rel
		}
		return p.file(dirfd, name, rel)
	case unix.S_IFLNK:
		n, err := unix.Readlinkat(dirfd, name, p.buf[:maxPath])
		if err != nil {
			return err
		}
		return p.header(rel, tar.TypeSymlink, st, string(p.buf[:n]))
	case unix.S_IFIFO:
		return p.header(rel, tar.TypeFifo, st, "")
	case unix.S_IFBLK:
		return p.header(rel, tar.TypeBlock, st, "")
	default:
		return p.header(rel, tar.TypeChar, st, "")
	}
}

// file packs a regular file, as many bytes as it has when it is opened.
func (p *packer) file(dirfd int, name, rel string) error {
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("%w: it was replaced while it was read", ErrInvalid)
	}
	if st.Size > p.budget.limits.FileBytes {
		return fmt.Errorf("%w: it has %d bytes, and a file may have %d", ErrTooLarge, st.Size, p.budget.limits.FileBytes)
	}
	if err := p.header(rel, tar.TypeReg, &st, ""); err != nil {
		return err
	}
	in := io.LimitReader(&countingReader{ctx: p.ctx, r: f}, st.Size)
	n, err := io.CopyBuffer(struct{ io.Writer }{p.w}, in, p.buf)
	if err == nil && n < st.Size {
		return fmt.Errorf("%w: it became shorter while it was read", ErrInvalid)
	}
	return err
}

func (p *packer) header(rel string, kind byte, st *unix.Stat_t, link string) error {
	h := &tar.Header{
		Typeflag: kind, Name: rel, Linkname: link, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: time.Unix(st.Mtim.Sec, 0), Format: tar.FormatPAX,
	}
	switch kind {
	case tar.TypeReg:
		h.Size = st.Size
	case tar.TypeChar, tar.TypeBlock:
		h.Devmajor, h.Devminor = int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	}
	return p.w.WriteHeader(h)
}
