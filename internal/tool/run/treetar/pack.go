package treetar

import (
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

	tar   *Writer
	later []string // directories that were found and are not packed yet
	bytes int      // of their paths
}

// Pack packs the tree. Its error is why the tar is not whole, ErrTooLarge among others.
func (p *Packer) Pack(ctx context.Context) error {
	p.tar = NewWriter(p.Out, p.Most)
	if err := p.dir(ctx, p.Top, 0); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return p.tar.Close()
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
		if err := p.add(info, Entry{Kind: Dir}, nil); err != nil {
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
	return p.add(info, Entry{Kind: Link, Target: to}, nil)
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
	return p.add(f.Info(), Entry{Kind: File, Size: f.Info().Size}, f)
}

// add writes an entry.
func (p *Packer) add(info root.Info, e Entry, f *root.File) error {
	e.Name = strings.TrimPrefix(strings.TrimPrefix(info.Path, p.Top), "/")
	if e.Name == "" {
		e.Name = "."
	}
	e.Mode, e.Time = info.Mode, info.ModTime
	short, err := p.tar.Add(&e, f)
	if short {
		p.fail(info.Path, errors.New("it became shorter, or could not be read to its end, and has zeros from there on"))
	}
	return err
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
