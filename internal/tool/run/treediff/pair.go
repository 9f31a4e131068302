package treediff

import (
	"bytes"
	"context"
	"io"

	"github.com/toold/toold/internal/tool/run/root"
)

// MaxSide bounds the content of a Side, in bytes.
const MaxSide = maxText

// Side is what is at a path, at hand: a File or Link with its content or target, or nothing.
type Side struct {
	Kind Kind
	Mode uint32 // permissions; of a file
	Data []byte // at most MaxSide
}

// Pair is a path of which both sides are at hand.
type Pair struct {
	Path     string
	Old, New Side
	// Paths are as in Options: what of them names a path that git refuses has it in the patch.
	Paths []string
}

// Line is what a list says of the pair; nil where both sides are the same.
func (p *Pair) Line() *Line {
	c := p.change(context.Background())
	if c == nil {
		return nil
	}
	l := c.line()
	return &l
}

// WritePatch writes what a patch has of the pair, nothing where both sides are the same.
func (p *Pair) WritePatch(ctx context.Context, out io.Writer) (Totals, error) {
	c := p.change(ctx)
	if c == nil {
		return Totals{}, nil
	}
	to := newPatch(c.w, out)
	if err := to.visit(c); err != nil {
		return c.w.totals, err
	}
	return c.w.totals, to.end()
}

// change is nil where nothing differs.
func (p *Pair) change(ctx context.Context) *change {
	w := &walk{ctx: ctx, o: Options{Paths: p.Paths}}
	c := &change{w: w, path: p.Path, old: p.Old.half(), new: p.New.half()}
	switch {
	case p.Old.Kind == "" && p.New.Kind == "":
		return nil
	case p.Old.Kind == "":
		c.status = Added
	case p.New.Kind == "":
		c.status = Deleted
	case p.Old.Kind != p.New.Kind:
		c.status = Type
	case p.same(c) && !c.modes():
		return nil
	default:
		c.status = Modified
	}
	w.totals.Files = 1
	return c
}

// same reports whether two sides of a kind have the same content.
func (p *Pair) same(c *change) bool {
	if bytes.Equal(p.Old.Data, p.New.Data) {
		return true
	}
	same, err := c.sameIndex()
	return err == nil && same
}

func (s *Side) half() half {
	switch s.Kind {
	case File:
		return half{node: &root.Node{Kind: root.KindFile, Mode: s.Mode, Size: int64(len(s.Data))}, data: s.Data}
	case Link:
		return half{node: &root.Node{Kind: root.KindSymlink}, data: s.Data}
	}
	return half{}
}
