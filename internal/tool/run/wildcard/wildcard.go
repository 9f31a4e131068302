// Package wildcard matches texts with * and ?, the patterns of rules, in time linear in
// the text. The daemon judges with it, and tools in the sandbox use it to find the
// files that they must not show.
package wildcard

import (
	"strings"
	"unicode/utf8"
)

// MaxChunk is how many characters may stand between two * when a ? is among them,
// for the matching to be fast.
const MaxChunk = 64

// Glob is a compiled wildcard: * is any run of characters, ? is one, everything
// else is itself. It is matched in time linear in the text, whatever both are:
// the parts between stars are looked for one after the other, each at the first
// place where it stands, and none is ever looked for again.
type Glob struct {
	pattern        string
	star           bool // there is one; otherwise prefix is all
	prefix, suffix chunk
	middle         []finder
}

// Compile takes every text: what is no wildcard is itself.
func Compile(p string) Glob {
	parts := strings.Split(p, "*")
	last := len(parts) - 1
	g := Glob{pattern: p, star: last > 0, prefix: newChunk(parts[0])}
	if last == 0 {
		return g
	}
	g.suffix = newChunk(parts[last])
	for _, part := range parts[1:last] {
		if part != "" {
			g.middle = append(g.middle, newFinder(part))
		}
	}
	return g
}

// String is the pattern.
func (g *Glob) String() string { return g.pattern }

// Part is a text that each match of a pattern for paths has in one of its names, the
// longest that is known; "" where there may be none.
func (g *Glob) Part() string {
	longest := ""
	for part := range strings.FieldsFuncSeq(g.pattern, func(r rune) bool { return strings.ContainsRune("*?/", r) }) {
		if len(part) > len(longest) {
			longest = part
		}
	}
	return longest
}

// Match reports whether the pattern stands for all of text.
func (g *Glob) Match(text string) bool {
	n, ok := g.prefix.at(text)
	if !ok {
		return false
	}
	text = text[n:]
	if !g.star {
		return text == ""
	}
	if n, ok = g.suffix.before(text); !ok {
		return false
	}
	text = text[:len(text)-n]
	for i := range g.middle {
		end := g.middle[i].find(text)
		if end < 0 {
			return false
		}
		text = text[end:]
	}
	return true
}

// chunk is a part of a glob without stars. A "?" in it is always the wildcard,
// since there is no way to write it otherwise.
type chunk struct {
	text string
	any  bool // there is a ? in it
}

func newChunk(s string) chunk { return chunk{s, strings.Contains(s, "?")} }

// at reports whether text begins with the chunk, and how long that is.
func (c chunk) at(text string) (int, bool) {
	if !c.any {
		return len(c.text), strings.HasPrefix(text, c.text)
	}
	rest := text
	for i := range len(c.text) {
		switch {
		case rest == "":
			return 0, false
		case c.text[i] == '?':
			_, n := utf8.DecodeRuneInString(rest)
			rest = rest[n:]
		case rest[0] != c.text[i]:
			return 0, false
		default:
			rest = rest[1:]
		}
	}
	return len(text) - len(rest), true
}

// before reports whether text ends with the chunk, and how long that is.
func (c chunk) before(text string) (int, bool) {
	if !c.any {
		return len(c.text), strings.HasSuffix(text, c.text)
	}
	rest := text
	for i := len(c.text) - 1; i >= 0; i-- {
		switch {
		case rest == "":
			return 0, false
		case c.text[i] == '?':
			_, n := utf8.DecodeLastRuneInString(rest)
			rest = rest[:len(rest)-n]
		case rest[len(rest)-1] != c.text[i]:
			return 0, false
		default:
			rest = rest[:len(rest)-1]
		}
	}
	return len(text) - len(rest), true
}

// finder looks for a chunk that may stand anywhere.
type finder struct {
	chunk
	bits *bits // for chunks with a ?
}

func newFinder(s string) finder {
	f := finder{chunk: newChunk(s)}
	if f.any && utf8.RuneCountInString(s) <= MaxChunk {
		f.bits = newBits(s)
	}
	return f
}

// find gives the end of the first place where the chunk stands; -1 for none.
func (f *finder) find(text string) int {
	switch {
	case !f.any:
		if i := strings.Index(text, f.text); i >= 0 {
			return i + len(f.text)
		}
		return -1
	case f.bits != nil:
		return f.bits.find(text)
	}
	// Longer than checkPattern lets through: correct, but not fast.
	for i := range text {
		if n, ok := f.at(text[i:]); ok {
			return i + n
		}
	}
	return -1
}

// bits looks for all beginnings of a chunk at once (Shift-And): bit i of the
// state says that the last i+1 characters are the first i+1 of the chunk. All
// places have the same number of characters, so that the first one to end is
// also the first one to begin.
type bits struct {
	// ascii and other give the number of a character in masks, which say where in
	// the chunk it may stand; those that are not in it have 0, the mask of "?".
	ascii [utf8.RuneSelf]uint8
	other map[rune]uint8
	masks []uint64
	last  uint64
}

func newBits(s string) *bits {
	b := &bits{masks: []uint64{0}}
	bit := uint64(1)
	for _, r := range s {
		if r == '?' {
			b.masks[0] |= bit
		} else {
			b.masks[b.number(r)] |= bit
		}
		b.last = bit
		bit <<= 1
	}
	for i := range b.masks {
		b.masks[i] |= b.masks[0]
	}
	return b
}

// number finds or makes the number of a character.
func (b *bits) number(r rune) uint8 {
	if r < utf8.RuneSelf {
		if b.ascii[r] == 0 {
			b.ascii[r] = b.grow()
		}
		return b.ascii[r]
	}
	if b.other[r] == 0 {
		if b.other == nil {
			b.other = make(map[rune]uint8)
		}
		b.other[r] = b.grow()
	}
	return b.other[r]
}

func (b *bits) grow() uint8 {
	b.masks = append(b.masks, 0)
	return uint8(len(b.masks) - 1) // a chunk has no more than MaxChunk characters
}

func (b *bits) find(text string) int {
	var state uint64
	for i := 0; i < len(text); {
		var number uint8
		if c := text[i]; c < utf8.RuneSelf {
			number = b.ascii[c]
			i++
		} else {
			r, n := utf8.DecodeRuneInString(text[i:])
			if r != utf8.RuneError || n > 1 { // a byte that is no UTF-8 is no character of a pattern
				number = b.other[r]
			}
			i += n
		}
		state = (state<<1 | 1) & b.masks[number]
		if state&b.last != 0 {
			return i
		}
	}
	return -1
}
