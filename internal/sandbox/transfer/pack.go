package transfer

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/thread"
	"github.com/toold/toold/internal/worktree/apply"
)

// Into says how an archive shows what it holds.
type Into struct {
	Prefix   string // goes before all names
	UID, GID int
	// ReadOnly lets everybody read and run what the owner can, and nobody write.
	ReadOnly bool
}

// Pack writes what is in dir as a tar archive. What owner may not read, what is
// neither file, directory nor link, and what is mounted there is left out and
// counted.
func Pack(ctx context.Context, w io.Writer, dir *os.File, owner thread.User, into Into, limits Limits) (*Manifest, error) {
	p := &packer{
		ctx: ctx, tar: tar.NewWriter(w), into: into, limits: limits,
		manifest: &Manifest{entries: map[string]*apply.Entry{}},
	}
	err := beneath.As(ctx, owner, dir, func(root int) error {
		fd, err := beneath.Open(root, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		if err := p.header(&tar.Header{Typeflag: tar.TypeDir, Mode: 0o755}, ""); err != nil {
			_ = unix.Close(fd)
			return err
		}
		if err := p.dir(fd, "", 0); err != nil {
			return err
		}
		return p.tar.Close()
	})
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", dir.Name(), err)
	}
	return p.manifest, nil
}

type packer struct {
	ctx      context.Context
	tar      *tar.Writer
	into     Into
	limits   Limits
	bytes    int64
	names    int
	manifest *Manifest
}

// skippable are errors about one entry.
func skippable(err error) bool {
	for _, e := range []error{unix.EACCES, unix.EPERM, unix.ENOENT, unix.ELOOP, unix.EXDEV, unix.ENXIO, unix.ENOTDIR, unix.ENAMETOOLONG} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// dir packs what is in the directory fd, which it closes.
func (p *packer) dir(fd int, rel string, depth int) error {
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	if depth > maxDepth {
		return fmt.Errorf("%q is more than %d directories deep: %w", rel, maxDepth, ErrTooLarge)
	}
	for {
		names, err := f.Readdirnames(1000)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		slices.Sort(names)
		for _, name := range names {
			if err := p.ctx.Err(); err != nil {
				return context.Cause(p.ctx)
			}
			err := p.entry(fd, name, path.Join(rel, name), depth)
			if skippable(err) {
				p.manifest.Skipped++
			} else if err != nil {
				return err
			}
		}
	}
}

func (p *packer) entry(dir int, name, rel string, depth int) error {
	fd, err := beneath.Open(dir, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	kind := beneath.KindOf(st.Mode)
	if kind == "" || len(rel) > maxPath {
		p.manifest.Skipped++
		return nil
	}
	if len(p.manifest.entries) >= p.limits.Files {
		return fmt.Errorf("more than %d files: %w", p.limits.Files, ErrTooLarge)
	}
	if err := p.name(rel); err != nil {
		return err
	}
	switch kind {
	case beneath.Dir:
		return p.subdir(dir, name, rel, &st, depth)
	case beneath.Link:
		return p.link(fd, rel, &st)
	default:
		return p.file(dir, name, rel)
	}
}

// header is that of what st is of.
func header(flag byte, st *unix.Stat_t) *tar.Header {
	return &tar.Header{Typeflag: flag, Mode: int64(st.Mode & 0o777), ModTime: time.Unix(st.Mtim.Unix())}
}

// entered is what the manifest has of what st is of.
func entered(st *unix.Stat_t) *apply.Entry {
	return &apply.Entry{Kind: beneath.KindOf(st.Mode), Perm: st.Mode & 0o777, CTime: st.Ctim.Nano()}
}

// name counts a name that is kept.
func (p *packer) name(s string) error {
	if p.names += len(s); p.names > p.limits.names() {
		return fmt.Errorf("names of more than %d bytes: %w", p.limits.names(), ErrTooLarge)
	}
	return nil
}

func (p *packer) subdir(dir int, name, rel string, st *unix.Stat_t, depth int) error {
	fd, err := beneath.Open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	if err := p.header(header(tar.TypeDir, st), rel); err != nil {
		_ = unix.Close(fd)
		return err
	}
	p.manifest.entries[rel] = entered(st)
	return p.dir(fd, rel, depth+1)
}

func (p *packer) link(fd int, rel string, st *unix.Stat_t) error {
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return err
	}
	e, h := entered(st), header(tar.TypeSymlink, st)
	e.Link, h.Linkname = string(buf[:n]), string(buf[:n])
	if err := p.name(e.Link); err != nil {
		return err
	}
	p.manifest.entries[rel] = e
	return p.header(h, rel)
}

func (p *packer) file(dir int, name, rel string) error {
	fd, err := beneath.Open(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if beneath.KindOf(st.Mode) != beneath.File {
		p.manifest.Skipped++
		return nil
	}
	if p.bytes += st.Size; p.bytes > p.limits.Bytes {
		return fmt.Errorf("more than %d MiB: %w", p.limits.Bytes>>20, ErrTooLarge)
	}
	e, h := entered(&st), header(tar.TypeReg, &st)
	h.Size = st.Size
	if err := p.header(h, rel); err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(p.tar, sum), io.LimitReader(f, st.Size))
	if err != nil {
		return err
	}
	// A file that shrinks meanwhile is made up with zeros, which are not in the manifest:
	// it has changed on both sides.
	if n < st.Size {
		if _, err := io.CopyN(p.tar, zeros{}, st.Size-n); err != nil {
			return err
		}
	}
	sum.Sum(e.SHA256[:0])
	p.manifest.entries[rel] = e
	return nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func (p *packer) header(h *tar.Header, rel string) error {
	h.Name = strings.TrimSuffix(path.Join(p.into.Prefix, rel), "/")
	if h.Typeflag == tar.TypeDir {
		h.Name += "/"
	}
	if p.into.ReadOnly && h.Typeflag != tar.TypeSymlink {
		h.Mode = h.Mode >> 6 & 5 * 0o111
	}
	h.Uid, h.Gid, h.Format = p.into.UID, p.into.GID, tar.FormatPAX
	return p.tar.WriteHeader(h)
}
