package treetar

import (
	"archive/tar"
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/toold/toold/internal/tool/run/root"
)

// Packer packs one tree. Links stay links, and each name of a file is a file of its own.
type Packer struct {
	Root *root.Root
	Top  string    // canonical path of the directory
	Out  io.Writer // takes the tar
	Most int64     // bytes that the tar may have
	// Hides reports whether an entry is left out. What is in a directory is asked about
	// by itself. nil: nothing is.
	Hides func(path string, dir bool) bool
	// Skip are directories that are skipped with all that is in them.
	Skip map[string]bool

	Count

	out     *bounded
	tar     *tar.Writer
	entries int
	buf     []byte

	later []string // directories that were found and are not packed yet
	bytes int      // of their paths
}

// bounded lets at most left bytes through.
type bounded struct {
	w    *bufio.Writer
	left int64
}

// gather is how much is gathered before it is written.
const gather = 64 << 10

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		return 0, ErrTooLarge
	}
	b.left -= int64(len(p))
	return b.w.Write(p)
}

func (p *Packer) begin() {
	p.out = &bounded{w: bufio.NewWriterSize(p.Out, gather), left: p.Most}
	p.tar, p.buf = tar.NewWriter(p.out), make([]byte, gather)
}

// Pack packs the tree. Its error is why the tar is not whole, ErrTooLarge among others.
func (p *Packer) Pack(ctx context.Context) error {
	p.begin()
	if err := p.dir(ctx, p.Top, 0); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := p.tar.Close(); err != nil {
		return p.failed(err)
	}
	return p.out.w.Flush()
}

// failed is why the tar goes no further.
func (p *Packer) failed(err error) error {
	if errors.Is(err, ErrTooLarge) {
		return fmt.Errorf("%w: the archive would have more than %d bytes", ErrTooLarge, p.Most)
	}
	return err
}

// dir packs the directory at a canonical path, and then what is below it. Its error ends
// the packing.
func (p *Packer) dir(ctx context.Context, dir string, depth int) error {
	info, _, err := p.Root.Peek(ctx, dir)
	switch {
	case err != nil && depth > 0:
		return p.missed(ctx, dir, err)
	case err != nil:
		return err
	case info.Kind != root.KindDir:
		return p.missed(ctx, dir, errors.New("it is no directory any more"))
	case depth > MaxDepth:
		return p.missed(ctx, dir, fmt.Errorf("it is more than %d directories deep", MaxDepth))
	case p.Skip[dir]:
		p.Skipped.Add(dir)
		return nil
	}
	if !p.hides(dir, true) {
		p.Dirs++
		if err := p.add(info, &tar.Header{Typeflag: tar.TypeDir}, nil); err != nil {
			return err
		}
	}
	begin := len(p.later)
	var failed error
	err = p.Root.ReadDir(ctx, dir, func(e root.Entry) bool {
		failed = p.entry(ctx, path.Join(dir, e.Name), e.Kind)
		return failed == nil
	})
	if failed == nil && err != nil {
		failed = p.missed(ctx, dir, err)
	}
	for i, end := begin, len(p.later); i < end && failed == nil; i++ {
		failed = p.dir(ctx, p.later[i], depth+1)
	}
	p.forget(begin)
	return failed
}

// forget drops the directories that were found since there were n.
func (p *Packer) forget(n int) {
	for _, dir := range p.later[n:] {
		p.bytes -= len(dir)
	}
	clear(p.later[n:])
	p.later = p.later[:n]
}

// entry packs what a directory has at a canonical path, or remembers it for later.
func (p *Packer) entry(ctx context.Context, at string, kind root.Kind) error {
	switch kind {
	case root.KindDir:
		if p.bytes += len(at); p.bytes > maxPending {
			return fmt.Errorf("%w: the paths of directories beside each other have more than %d bytes", ErrTooLarge, maxPending)
		}
		p.later = append(p.later, at)
		return nil
	case root.KindSymlink:
		return p.link(ctx, at)
	case root.KindFile:
		return p.file(ctx, at)
	}
	p.Skipped.Add(at)
	return nil
}

func (p *Packer) hides(at string, dir bool) bool { return p.Hides != nil && p.Hides(at, dir) }

func (p *Packer) link(ctx context.Context, at string) error {
	if p.hides(at, false) {
		return nil
	}
	info, to, err := p.Root.Peek(ctx, at)
	if err == nil && info.Kind != root.KindSymlink {
		err = errors.New("it is no link any more")
	}
	if err != nil {
		return p.missed(ctx, at, err)
	}
	p.Links++
	return p.add(info, &tar.Header{Typeflag: tar.TypeSymlink, Linkname: to}, nil)
}

func (p *Packer) file(ctx context.Context, at string) error {
	if p.hides(at, false) {
		return nil
	}
	f, err := p.Root.Open(ctx, at)
	if err != nil {
		return p.missed(ctx, at, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	p.Files++
	p.Bytes += f.Info().Size
	return p.add(f.Info(), &tar.Header{Typeflag: tar.TypeReg, Size: f.Info().Size}, f)
}

// add writes an entry, with the content of a file. One that is shorter than it was, or cannot
// be read to its end, is filled up with zeros.
func (p *Packer) add(info root.Info, h *tar.Header, f io.Reader) error {
	if p.entries++; p.entries > MaxEntries {
		return fmt.Errorf("%w: the tree has more than %d entries", ErrTooLarge, MaxEntries)
	}
	h.Name = cmp.Or(strings.TrimPrefix(strings.TrimPrefix(info.Path, p.Top), "/"), ".")
	if h.Typeflag == tar.TypeDir {
		h.Name += "/"
	}
	h.Mode, h.ModTime = int64(info.Mode.Perm()), info.ModTime
	if h.Size > p.out.left {
		return p.failed(ErrTooLarge)
	}
	if err := p.tar.WriteHeader(h); err != nil {
		return p.failed(err)
	}
	short, err := p.content(h.Size, f)
	if short {
		p.Short++
		p.fail(info.Path, errors.New("it became shorter, or could not be read to its end, and has zeros from there on"))
	}
	return p.failed(err)
}

// content writes size bytes.
func (p *Packer) content(size int64, from io.Reader) (short bool, err error) {
	for size > 0 && err == nil {
		buf := p.buf[:min(size, int64(len(p.buf)))]
		n := len(buf)
		if short {
			clear(buf)
		} else {
			n, err = from.Read(buf)
			short = err != nil && int64(n) < size
		}
		_, err = p.tar.Write(buf[:n])
		size -= int64(n)
	}
	return short, err
}

// missed counts what could not be packed; its error ends the packing.
func (p *Packer) missed(ctx context.Context, at string, err error) error {
	code := root.CodeOf(err)
	if ctx.Err() != nil || code == root.Broken || code == root.Aborted {
		return err
	}
	p.fail(at, err)
	return nil
}
