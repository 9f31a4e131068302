package policy

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of a pattern, so that no rules file can make judging slow.
const (
	maxPattern = 4096 // bytes
	maxStars   = 32
	maxChunk   = 64 // characters between two * when a ? is among them
)

// checkPattern refuses what compile would have to be slow for.
func checkPattern(p string) error {
	switch {
	case p == "":
		return errors.New(`a pattern is empty: write "*" for everything`)
	case len(p) > maxPattern:
		return fmt.Errorf("a pattern has %d bytes; at most %d", len(p), maxPattern)
	case !utf8.ValidString(p) || strings.ContainsRune(p, 0):
		return errors.New("a pattern is text in UTF-8 without NUL bytes")
	}
	if n := strings.Count(p, "*"); n > maxStars {
		return fmt.Errorf("a pattern has %d times *; at most %d", n, maxStars)
	}
	for part := range strings.SplitSeq(p, "*") {
		if strings.Contains(part, "?") && utf8.RuneCountInString(part) > maxChunk {
			return fmt.Errorf("a pattern has more than %d characters with a ? among them and no * between", maxChunk)
		}
	}
	return nil
}

// pattern is one pattern of a rule: it matches what one of its globs does.
type pattern []glob

// compilePattern gives a pattern its meaning for texts: a trailing " *" makes
// the arguments optional, "**/" at the start also stands for nothing, and "~/"
// may be written out.
func compilePattern(p string) pattern { return compileGlobs(spellings(p)) }

// compilePathPattern is compilePattern for paths, which never begin with "~/"
// because they are resolved: a directory of that name must not be taken for the
// home directory.
func compilePathPattern(p string) pattern { return compileGlobs(endings(expandHome(p))) }

func compileGlobs(globs []string) pattern {
	out := make(pattern, len(globs))
	for i, g := range globs {
		out[i] = compileGlob(g)
	}
	return out
}

// spellings are the globs that a pattern for texts stands for.
func spellings(p string) []string {
	all := endings(p)
	if e := expandHome(p); e != p {
		all = append(all, endings(e)...)
	}
	return all
}

// endings adds to p its forms without the parts that are optional.
func endings(p string) []string {
	all := []string{p}
	if short, ok := strings.CutSuffix(p, " *"); ok {
		all = append(all, short)
	}
	if top, ok := strings.CutPrefix(p, "**/"); ok {
		all = append(all, top)
		if short, ok := strings.CutSuffix(top, " *"); ok {
			all = append(all, short)
		}
	}
	return all
}

func expandHome(p string) string {
	for _, prefix := range []string{"~/", "$HOME/"} {
		if rest, ok := strings.CutPrefix(p, prefix); ok {
			return Home + "/" + rest
		}
	}
	return p
}

func (p pattern) match(text string) bool {
	for i := range p {
		if p[i].match(text) {
			return true
		}
	}
	return false
}

// glob is a compiled wildcard: * is any run of characters, ? is one, everything
// else is itself. It is matched in time linear in the text, whatever both are:
// the parts between stars are looked for one after the other, each at the first
// place where it stands, and none is ever looked for again.
type glob struct {
	star           bool // there is one; otherwise prefix is all
	prefix, suffix chunk
	middle         []finder
}

func compileGlob(p string) glob {
	parts := strings.Split(p, "*")
	last := len(parts) - 1
	g := glob{star: last > 0, prefix: newChunk(parts[0])}
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

func (g *glob) match(text string) bool {
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
	if f.any && utf8.RuneCountInString(s) <= maxChunk {
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
	return uint8(len(b.masks) - 1) // a chunk has no more than maxChunk characters
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
