package treediff

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/root"
)

const (
	// maxText is the size up to which a file is read whole, and its lines are compared,
	// if they are no more than maxLines.
	maxText  = 4 << 20
	maxLines = 200_000
	// maxReason bounds why something is unreadable, in bytes.
	maxReason = 256
	chunk     = 256 << 10
)

// change is one path that differs.
type change struct {
	w          *walk
	path       string
	status     Status
	old, new   half
	unreadable string // why its content could not be compared
	same       bool   // it did not change
	left       bool   // it is in Options.Exclude
	held       *root.Reservation
}

// half is one side of a change.
type half struct {
	node  *root.Node // nil for nothing
	place *place     // that it is in
	data  []byte     // of a file of at most maxText bytes, or where a link leads
}

// kind is what the half is; "" for nothing.
func (h *half) kind() Kind {
	switch {
	case h.node == nil:
		return ""
	case h.node.Kind == root.KindFile:
		return File
	case h.node.Kind == root.KindDir:
		return Dir
	case h.node.Kind == root.KindSymlink:
		return Link
	}
	return Other
}

// large reports whether the half is a file that is not in memory.
func (h *half) large() bool { return h.kind() == File && h.node.Size > maxText }

func (h *half) open(w *walk) (*root.File, error) {
	dir, err := h.place.need(w.ctx)
	if err != nil {
		return nil, err
	}
	return dir.Open(w.ctx, h.node.Name)
}

// release gives up the memory of a change.
func (c *change) release() {
	if c.held != nil {
		c.held.Release()
	}
}

// compare finds out whether there is a difference, and which. It loads what is small.
func (c *change) compare() (bool, error) {
	c.status = c.howDiffers()
	if c.status == "" {
		return false, nil
	}
	if !c.w.out.reads(c) {
		return true, nil
	}
	var err error
	if c.same, err = c.load(); err != nil {
		return true, c.spoiled(err)
	}
	if c.denied() {
		c.unreadable = "it cannot be looked into"
	}
	return !c.same || c.status != Modified || c.unreadable != "" || c.modes(), nil
}

// howDiffers is what can be seen without looking inside; "" = nothing differs.
// Modified means that it may.
func (c *change) howDiffers() Status {
	switch {
	case c.old.node == nil:
		return Added
	case c.new.node == nil:
		return Deleted
	case c.old.kind() != c.new.kind():
		return Type
	case c.w.unchanged(c.old.node, c.new.node):
		return ""
	}
	return Modified
}

// modes reports whether the permissions differ, where they count, or what of Other it is.
func (c *change) modes() bool {
	return c.old.node.Kind != c.new.node.Kind || c.old.kind() != Link && c.old.node.Mode != c.new.node.Mode
}

// denied reports whether a side cannot be looked into.
func (c *change) denied() bool {
	for _, n := range []*root.Node{c.old.node, c.new.node} {
		if n != nil && (n.Denied || n.Kind == root.KindUnknown) {
			return true
		}
	}
	return false
}

// spoiled notes why the content could not be read.
func (c *change) spoiled(err error) error {
	switch root.CodeOf(err) {
	case root.Aborted, root.Broken, "":
		return err
	}
	c.unreadable = plain.Cut(err.Error(), maxReason)
	return nil
}

// load reads what is small of both sides. same is of two files or two links.
func (c *change) load() (same bool, err error) {
	size := int64(0)
	for _, h := range []*half{&c.old, &c.new} {
		if h.kind() == File && !h.large() {
			size += h.node.Size
		}
	}
	if size > 0 {
		// The texts, their lines as strings, and what is written of them.
		if c.held, err = c.w.o.Root.Reserve(c.w.ctx, 4*size+40*min(size, 2*maxLines)); err != nil {
			return false, err
		}
	}
	err = c.w.lent(func() error { return errors.Join(c.read(&c.old), c.read(&c.new)) })
	switch {
	case err != nil || c.status != Modified:
		return false, err
	case c.old.large() && c.new.large():
		same, err = c.sameLarge()
	case !c.old.large() && !c.new.large():
		same = bytes.Equal(c.old.data, c.new.data) // of what has no content both are nil
	}
	if err != nil || same {
		return same, err
	}
	return c.sameIndex()
}

// sameIndex reports whether two files are indexes of git with the same entries.
func (c *change) sameIndex() (bool, error) {
	if c.old.kind() != File || c.new.kind() != File || !isIndex(c.path) {
		return false, nil
	}
	reader := func(h *half) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) {
			if h.large() {
				return h.open(c.w)
			}
			return io.NopCloser(bytes.NewReader(h.data)), nil
		}
	}
	return sameIndex(reader(&c.old), reader(&c.new), c.old.node.Size, c.new.node.Size)
}

func (c *change) read(h *half) error {
	switch {
	case h.kind() == Link:
		dir, err := h.place.need(c.w.ctx)
		if err != nil {
			return err
		}
		to, err := dir.Readlink(c.w.ctx, h.node.Name)
		h.data = []byte(to)
		return err
	case h.kind() != File || h.large():
		return nil
	}
	f, err := h.open(c.w)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	if h.data, err = f.ReadAll(c.w.ctx, maxText); err == nil {
		h.node.Size = int64(len(h.data)) // it may have changed since it was listed
	}
	return err
}

// sameLarge compares two files that are too large to hold.
func (c *change) sameLarge() (bool, error) {
	if c.old.node.Size != c.new.node.Size {
		return false, nil
	}
	old, err := c.old.open(c.w)
	if err != nil {
		return false, err
	}
	defer func() { _ = old.Close() }()
	new, err := c.new.open(c.w)
	if err != nil {
		return false, err
	}
	defer func() { _ = new.Close() }()
	a, b := make([]byte, chunk), make([]byte, chunk)
	for at, end := int64(0), int64(0); ; {
		if at == end {
			if at, end, err = eitherData(c.w.ctx, old, new, at); err != nil || at >= c.old.node.Size {
				return err == nil, err
			}
			if end <= at {
				return false, nil // one of them is shorter by now
			}
		}
		size := min(end-at, chunk)
		n, err := old.ReadAt(c.w.ctx, a[:size], at)
		m, err2 := new.ReadAt(c.w.ctx, b[:size], at)
		switch {
		case !bytes.Equal(a[:n], b[:m]):
			return false, nil
		case err == nil && err2 == nil:
			at += size
		case errors.Is(err, io.EOF) && errors.Is(err2, io.EOF):
			return true, nil
		default:
			return false, errors.Join(err, err2)
		}
	}
}

// eitherData is the next part of two files, from an offset on, in which one of them at least has no hole.
func eitherData(ctx context.Context, a, b *root.File, from int64) (begin, end int64, err error) {
	first, firstEnd, err := a.Extent(ctx, from)
	if err != nil {
		return 0, 0, err
	}
	other, otherEnd, err := b.Extent(ctx, from)
	if other < first {
		first, firstEnd, other, otherEnd = other, otherEnd, first, firstEnd
	}
	if other == first {
		return first, min(firstEnd, otherEnd), err
	}
	return first, min(firstEnd, other), err
}

// stream passes the content of a file on, exactly as many bytes as the entry has.
func (c *change) stream(h *half, to io.Writer) error {
	if !h.large() {
		_, err := to.Write(h.data)
		return err
	}
	f, err := h.open(c.w)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	buf, begin, end := make([]byte, chunk), int64(0), int64(0)
	for at, size := int64(0), h.node.Size; at < size; {
		if err := c.w.ctx.Err(); err != nil {
			return err
		}
		if at == end {
			if begin, end, err = f.Extent(c.w.ctx, at); err != nil {
				return err
			}
			if end <= at { // the file is shorter by now
				begin, end = at, size
			}
		}
		part := buf[:min(end-at, size-at, chunk)]
		if at < begin {
			part = zeros[:min(begin-at, size-at, chunk)]
		} else if n, err := f.ReadAt(c.w.ctx, part, at); n < len(part) {
			return &root.Error{Code: root.Stale, Msg: "it changed while it was read", Err: err}
		}
		if _, err := to.Write(part); err != nil {
			return err
		}
		at += int64(len(part))
	}
	return nil
}

// zeros are those of holes.
var zeros [chunk]byte

// isText reports whether the lines of the files of a change can be compared.
func (c *change) isText() bool {
	for _, h := range []*half{&c.old, &c.new} {
		if h.kind() != File {
			continue
		}
		if h.large() || bytes.IndexByte(h.data, 0) >= 0 || bytes.Count(h.data, []byte{'\n'}) > maxLines {
			return false
		}
	}
	return true
}
