package shell

import (
	"fmt"
	"slices"
)

// findings are what a text is found to do, so far. Those of the text and of the
// scripts inside of it are the same, but for a script that is read in two ways: each
// reading has a Result of its own. Its methods judge what they are given; the scanner's
// know where in the text they are.
type findings struct {
	out   *Result
	facts *facts // of the whole text
}

// opaque notes the reason; the first one stays.
func (f *findings) opaque(format string, args ...any) {
	if !f.out.Opaque {
		f.out.Opaque, f.out.Why = true, fmt.Sprintf(format, args...)
	}
}

// command lists a command, unless there are too many.
func (f *findings) command(cmd Command) {
	if len(f.out.Commands) >= maxCommands {
		f.opaque("it has more than %d commands", maxCommands)
		return
	}
	f.out.Commands = append(f.out.Commands, cmd)
}

// path lists p among what is named or, with write, written. Beyond the bound
// one path that cannot be resolved stands for all others.
func (f *findings) path(p Path, write bool) {
	list := &f.out.Paths
	if write {
		list = &f.out.Writes
	}
	switch n := len(f.out.Paths) + len(f.out.Writes); {
	case n < maxPaths:
	case !p.Weak && n-f.weak() >= maxPaths:
		p = Path{Text: fmt.Sprintf("more than %d paths", maxPaths)}
	case p.Weak && n >= 2*maxPaths:
		p.Text = "…"
	}
	if !slices.Contains(*list, p) {
		*list = append(*list, p)
	}
}

// weak is how many of the paths the text does not speak of.
func (f *findings) weak() (n int) {
	for i := range f.out.Paths {
		if f.out.Paths[i].Weak {
			n++
		}
	}
	return n
}

// add lists what r lists.
func (f *findings) add(r *Result) {
	for _, cmd := range r.Commands {
		f.command(cmd)
	}
	for _, p := range r.Writes {
		f.path(p, true)
	}
	for _, p := range r.Paths {
		f.path(p, false)
	}
}
