package replace

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// A view is a text as a tolerant strategy sees it. It is made of pieces, each
// of which is copied, dropped, or replaced by one byte, so that an offset in the
// view can always be traced back. Offsets are found by walking the text again
// instead of being stored: a stored map would be larger than the text.
type view func(text []byte, piece func(from, to int, out int))

// What a piece becomes, if not a byte.
const (
	literal = -1
	gone    = -2
)

func (v view) of(text []byte) []byte {
	out := make([]byte, 0, len(text))
	v(text, func(from, to, as int) {
		switch as {
		case literal:
			out = append(out, text[from:to]...)
		case gone:
		default:
			out = append(out, byte(as))
		}
	})
	return out
}

// locate gives, for ascending offsets in the view, the offsets in text. Where
// text was dropped there, from[i] is before it and to[i] behind it.
func (v view) locate(text []byte, offsets []int) (from, to []int) {
	from, to = make([]int, len(offsets)), make([]int, len(offsets))
	i, j := 0, 0 // the first of from and of to that is not known yet
	for i < len(offsets) && offsets[i] == 0 {
		i++
	}
	at := 0 // length of the view so far
	v(text, func(a, b, as int) {
		size := 1
		switch as {
		case gone:
			return
		case literal:
			size = b - a
		}
		for ; j < len(offsets) && offsets[j] < at+size; j++ {
			to[j] = a + offsets[j] - at
		}
		for ; i < len(offsets) && offsets[i] <= at+size; i++ {
			from[i] = b - (at + size - offsets[i])
		}
		at += size
	})
	for ; j < len(offsets); j++ {
		to[j] = len(text)
	}
	return from, to
}

// blanksAsOne makes one space of each run of blanks within a line and drops
// blanks at line ends.
func blanksAsOne(text []byte, piece func(from, to, out int)) {
	for i := 0; i < len(text); {
		switch n := blanks(text[i:]); {
		case n == 0:
			end := i + 1
			for end < len(text) && blanks(text[end:]) == 0 {
				end++
			}
			piece(i, end, literal)
			i = end
		case i+n == len(text) || text[i+n] == '\n':
			piece(i, i+n, gone)
			i += n
		default:
			piece(i, i+n, ' ')
			i += n
		}
	}
}

// withoutTrailing drops blanks at line ends.
func withoutTrailing(text []byte, piece func(from, to, out int)) {
	eachLine(text, func(from, to, next int) {
		end := from + len(bytes.TrimRight(text[from:to], " \t"))
		cut(piece, from, end, literal)
		cut(piece, end, to, gone)
		cut(piece, to, next, literal)
	})
}

// withoutIndent drops blanks at both ends of lines.
func withoutIndent(text []byte, piece func(from, to, out int)) {
	eachLine(text, func(from, to, next int) {
		start := from + blanks(text[from:to])
		end := start + len(bytes.TrimRight(text[start:to], " \t"))
		cut(piece, from, start, gone)
		cut(piece, start, end, literal)
		cut(piece, end, to, gone)
		cut(piece, to, next, literal)
	})
}

// plainPunctuation makes ASCII of quotes, dashes and spaces.
func plainPunctuation(text []byte, piece func(from, to, out int)) {
	start := 0
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		if plain := Typed(r); plain != r {
			cut(piece, start, i, literal)
			piece(i, i+size, int(plain))
			start = i + size
		}
		i += size
	}
	cut(piece, start, len(text), literal)
}

// Typed is the ASCII character that people type for one of which typography has several:
// quotes, dashes, spaces. Other characters are themselves.
func Typed(r rune) rune {
	switch r {
	case '\u2018', '\u2019', '\u201a', '\u201b', '\u2032', '\u02bc', '\uff07':
		return '\''
	case '\u201c', '\u201d', '\u201e', '\u201f', '\u2033', '\u00ab', '\u00bb', '\uff02':
		return '"'
	case '\u2010', '\u2011', '\u2012', '\u2013', '\u2014', '\u2015', '\u2212', '\ufe58', '\ufe63', '\uff0d':
		return '-'
	case '\u00a0', '\u1680', '\u2000', '\u2001', '\u2002', '\u2003', '\u2004', '\u2005', '\u2006', '\u2007',
		'\u2008', '\u2009', '\u200a', '\u202f', '\u205f', '\u3000':
		return ' '
	}
	return r
}

func cut(piece func(from, to, out int), from, to, out int) {
	if to > from {
		piece(from, to, out)
	}
}

// blanks is the number of spaces and tabs that text begins with.
func blanks(text []byte) int {
	n := 0
	for n < len(text) && (text[n] == ' ' || text[n] == '\t') {
		n++
	}
	return n
}

// eachLine calls visit with where each line begins, where its content ends, and
// where the next line begins.
func eachLine(text []byte, visit func(from, to, next int)) {
	for from := 0; from < len(text); {
		i := bytes.IndexByte(text[from:], '\n')
		if i < 0 {
			visit(from, len(text), len(text))
			return
		}
		visit(from, from+i, from+i+1)
		from += i + 1
	}
}

// inView finds old in a view of the text. What old and new have in common at
// both ends, as the view sees it, stays as the text has it.
func (f *finder) inView(v view, reindents bool) ([]place, error) {
	seen, old := v.of(f.text), v.of([]byte(f.old))
	if len(bytes.TrimSpace(old)) == 0 {
		return nil, nil
	}
	offsets, err := f.occurrences(seen, old)
	if err != nil || len(offsets) == 0 {
		return nil, err
	}
	starts, behind := v.locate(f.text, offsets)
	var places []place
	for i := 0; i < len(offsets); i += 2 {
		start, end := starts[i], starts[i+1]
		if at := offsets[i+1]; (at == len(seen) || seen[at] == '\n') && seen[at-1] != '\n' {
			end = behind[i+1] // with what was dropped at the line's end
		}
		if !f.fits(seen, offsets[i], offsets[i+1]) {
			continue
		}
		places = append(places, f.viewPlace(v, start, end, reindents))
	}
	return places, nil
}

// occurrences gives start and end of each place of old in seen, one after the
// other.
func (f *finder) occurrences(seen, old []byte) ([]int, error) {
	var offsets []int
	for at := 0; ; {
		i := bytes.Index(seen[at:], old)
		if i < 0 {
			return offsets, nil
		}
		if err := f.oneMore(len(offsets) / 2); err != nil {
			return nil, err
		}
		at += i
		offsets = append(offsets, at, at+len(old))
		at += len(old) // the ends must ascend with the starts
	}
}

// fits refuses a place within a line where old says that a line begins or ends
// there: blanks that the view drops are only dropped there.
func (f *finder) fits(seen []byte, start, end int) bool {
	if f.old[0] == ' ' || f.old[0] == '\t' {
		if start > 0 && seen[start-1] != '\n' && seen[start] != ' ' {
			return false
		}
	}
	if last := f.old[len(f.old)-1]; last == ' ' || last == '\t' {
		return end == len(seen) || seen[end] == '\n' || seen[end-1] == ' ' || seen[end-1] == '\t'
	}
	return true
}

// viewPlace makes the place at text[start:end], keeping what new leaves as it is.
func (f *finder) viewPlace(v view, start, end int, reindents bool) place {
	span := f.text[start:end]
	replacement := f.new
	if reindents {
		replacement = f.reindented(start, end)
	}
	p := place{start: start, end: end, new: replacement}
	was, will := v.of(span), v.of([]byte(replacement))
	if bytes.Equal(was, will) {
		return p // only what the view does not see changes
	}
	head := commonPrefix(was, will)
	tail := commonSuffix(was[head:], will[head:])
	oldCut, _ := v.locate(span, []int{head, len(was) - tail})
	newCut, _ := v.locate([]byte(replacement), []int{head, len(will) - tail})
	if head > 0 {
		p.start = start + oldCut[0]
	} else {
		newCut[0] = 0
	}
	if tail > 0 {
		p.end = start + oldCut[1]
	} else {
		newCut[1] = len(replacement)
	}
	p.new = replacement[newCut[0]:newCut[1]]
	return p
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func commonSuffix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[len(a)-1-i] != b[len(b)-1-i] {
			return i
		}
	}
	return n
}

// reindented is new with the indentation of the place text[start:end].
func (f *finder) reindented(start, end int) string {
	within := start > 0 && f.text[start-1] != '\n'
	return f.own(func() string { return reindent(f.new, f.oldLines, textLines(f.text[start:end]), within) })
}

func textLines(span []byte) []string {
	return strings.Split(strings.TrimSuffix(string(span), "\n"), "\n")
}
