package search

import (
	"context"
	"fmt"

	"github.com/toold/toold/internal/tool/run/root"
)

// Ignores says what ignore files exclude, for a caller that reads directories itself.
// It is one goroutine's, and must be closed.
type Ignores struct {
	ctx     context.Context
	reader  ignoreReader
	globs   globber
	scratch *root.Scratch
	left    int
	partial string
}

// Place is a directory with the rules that hold in it.
type Place struct{ rules *level }

// NewIgnores is for what is below base, a canonical path.
func NewIgnores(ctx context.Context, r *root.Root, base string) *Ignores {
	i := &Ignores{ctx: ctx, scratch: r.NewScratch(), left: ignoreTotalBytes, globs: globber{ctx: ctx}}
	i.reader = ignoreReader{root: r, base: base, spend: i.spend, cut: func(name string) {
		i.partial = fmt.Sprintf("the ignore file %q is larger than %d KiB", name, ignoreFileBytes>>10)
	}}
	return i
}

// Close gives back the memory of the rules.
func (i *Ignores) Close() { i.scratch.Release() }

// Partial says, in words, why not all rules count; "" = they do.
func (i *Ignores) Partial() string { return i.partial }

// Top is base.
func (i *Ignores) Top() Place {
	return Place{i.reader.level(i.ctx, i.reader.chain(i.ctx), i.reader.base)}
}

// Below is dir, a directory in above.
func (i *Ignores) Below(above Place, dir string) Place {
	return Place{i.reader.level(i.ctx, above.rules, dir)}
}

// Excluded reports whether ignore files exclude path, which is in the place.
func (i *Ignores) Excluded(in Place, path string, dir bool) bool {
	return in.rules.ignored(&i.globs, path, dir)
}

func (i *Ignores) spend(n int) bool {
	if i.left -= n; i.left >= 0 && i.scratch.Take(int64(n)) {
		return true
	}
	if i.partial == "" {
		i.partial = fmt.Sprintf("its ignore files take more than %d MiB, or than there is", ignoreTotalBytes>>20)
	}
	return false
}
