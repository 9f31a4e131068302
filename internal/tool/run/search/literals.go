package search

import "bytes"

// literals finds the next of some texts. It is read only and may be shared.
type literals struct{ needs []literal }

// literal is one text. A text of either case is found by its rarest byte.
type literal struct {
	need
	rare         int // index of the rarest byte
	lower, upper byte
}

// common are letters and signs from frequent to rare, as they are in programs
// and prose together.
const common = " etaoinsrlducmpfhg_.bv(),y\"w-=/:;kx0jq1z2"

func newLiterals(set []need) *literals {
	l := &literals{}
	for _, n := range set {
		lit := literal{need: n}
		best := -1
		for i := range len(n.text) {
			rank := bytes.IndexByte([]byte(common), n.text[i])
			if rank < 0 {
				rank = len(common)
			}
			if rank > best {
				best, lit.rare = rank, i
			}
		}
		lit.lower = n.text[lit.rare]
		lit.upper = lit.lower
		if lit.lower >= 'a' && lit.lower <= 'z' {
			lit.upper = lit.lower - 0x20
		}
		l.needs = append(l.needs, lit)
	}
	return l
}

// finder looks for literals in one text, front to back.
type finder struct {
	lits *literals
	text []byte
	next []int // where each text is next; len(text) = nowhere; -1 = not looked for
	// Where the two cases of the rarest byte of each are next, in the same way.
	lower, upper []int
}

// reset begins with another text.
func (f *finder) reset(l *literals, text []byte) {
	f.lits, f.text = l, text
	n := len(l.needs)
	f.next, f.lower, f.upper = fill(f.next, n), fill(f.lower, n), fill(f.upper, n)
}

func fill(s []int, n int) []int {
	s = s[:0]
	for range n {
		s = append(s, -1)
	}
	return s
}

// find is where from on the next of the texts is, -1 when there is none. from
// must not be less than before.
func (f *finder) find(from int) int {
	best := len(f.text)
	for i := range f.lits.needs {
		if f.next[i] < from {
			f.next[i] = f.look(i, from)
		}
		best = min(best, f.next[i])
	}
	if best == len(f.text) {
		return -1
	}
	return best
}

func (f *finder) look(i, from int) int {
	lit := &f.lits.needs[i]
	if !lit.fold {
		if at := bytes.Index(f.text[from:], []byte(lit.text)); at >= 0 {
			return from + at
		}
		return len(f.text)
	}
	for rare := from + lit.rare; ; rare++ {
		if rare = f.rarest(i, rare); rare == len(f.text) {
			return rare
		}
		if start := rare - lit.rare; equalFold(f.text[start:], lit.text) {
			return start
		}
	}
}

// rarest is where from on the rarest byte of a text is, in either case.
func (f *finder) rarest(i, from int) int {
	lit := &f.lits.needs[i]
	if f.lower[i] < from {
		f.lower[i] = indexByte(f.text, from, lit.lower)
	}
	if f.upper[i] < from {
		f.upper[i] = indexByte(f.text, from, lit.upper)
	}
	return min(f.lower[i], f.upper[i])
}

func indexByte(text []byte, from int, b byte) int {
	if from < len(text) {
		if at := bytes.IndexByte(text[from:], b); at >= 0 {
			return from + at
		}
	}
	return len(text)
}

// equalFold reports whether text begins with lower, which is in lower case.
func equalFold(text []byte, lower string) bool {
	if len(text) < len(lower) {
		return false
	}
	for i := range len(lower) {
		c := text[i]
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
