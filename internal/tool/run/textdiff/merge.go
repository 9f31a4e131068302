package textdiff

import (
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff/lcs"
)

// Merge merges by lines what two texts have made of one base: what one of them has changed
// is taken from it. It gives false where both have changed lines that are the same or touch
// each other, unless they made the same of them. It takes about as much memory as Hunks for
// each of the two.
func Merge(base, ours, theirs []byte) (merged string, ok bool) {
	lines := splitLines(base)
	a, b := newSide(lines, ours), newSide(lines, theirs)
	var out strings.Builder
	put := func(lines []string) {
		for _, l := range lines {
			out.WriteString(l)
		}
	}
	at := 0
	for len(a.diffs)+len(b.diffs) > 0 {
		from, to := together(a.diffs, b.diffs)
		put(lines[at:from])
		mine, changed := a.take(from, to)
		other, changedToo := b.take(from, to)
		switch {
		case !changed:
			mine = other
		case changedToo && !slices.Equal(mine, other):
			return "", false
		}
		put(mine)
		at = to
	}
	put(lines[at:])
	return out.String(), true
}

// side is what a text has made of the base, from where the merge is.
type side struct {
	lines []string
	diffs []lcs.Diff
	shift int // by so many lines it is ahead of the base
}

func newSide(base []string, text []byte) side {
	lines := splitLines(text)
	return side{lines: lines, diffs: compare(base, lines)}
}

// together are the lines of the base that the next difference changes, and those that
// touch it.
func together(a, b []lcs.Diff) (from, to int) {
	if len(a) == 0 || len(b) > 0 && b[0].Start < a[0].Start {
		a, b = b, a
	}
	for from, to = a[0].Start, a[0].Start; ; a, b = b, a {
		switch {
		case len(a) > 0 && a[0].Start <= to:
			to, a = max(to, a[0].End), a[1:]
		case len(b) == 0 || b[0].Start > to:
			return from, to
		}
	}
}

// take is what the side has made of lines of the base. No difference goes beyond them.
func (s *side) take(from, to int) (lines []string, changed bool) {
	begin := from + s.shift
	for len(s.diffs) > 0 && s.diffs[0].End <= to {
		s.shift = s.diffs[0].ReplEnd - s.diffs[0].End
		s.diffs, changed = s.diffs[1:], true
	}
	return s.lines[begin : to+s.shift], changed
}
