package plain

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// maxRedrawn is how much of a line is held back because it may be drawn anew, in bytes.
	maxRedrawn = 8 << 10
	// maxControl bounds a control sequence, in bytes: the longest in use have an address.
	maxControl = 4 << 10
)

// Screen makes of what a program prints for a terminal the text that stays there: the last state
// of each line, without the sequences that move a cursor or colour a text. A text that is drawn over
// a longer one leaves the rest of it, as a terminal does, where each character has one place. What is
// no whole sequence is text, so that nothing is hidden behind the beginning of one. Line ends are kept,
// CRLF too. Its zero value is ready.
type Screen struct {
	// Redraws counts how often a line was begun anew or taken back, Controls the sequences.
	Redraws, Controls int64

	line    []byte // the last one so far
	at      int    // the cursor in it: text is drawn over what stands there
	from    int    // where in it the line begins for a carriage return
	lent    []byte // what the last Write gave, where that was line: the next line's buffer but one
	control []byte // the beginning of a sequence
	given   bool   // what the line began with was given out, since it was too long to hold
	anew    bool   // a carriage return has come: text begins the line anew
	back    bool   // the cursor went back, and no text has come since
}

// Write takes the next bytes and gives what cannot change any more, until the next Write. That may be part of p.
func (s *Screen) Write(p []byte) []byte {
	// Three looks for one byte are ten times as fast as one for any of three.
	has := func(c byte) bool { return bytes.IndexByte(p, c) >= 0 }
	if len(s.control) == 0 && !s.anew && !s.back && s.at == len(s.line) && !has('\x1b') && !has('\r') && !has('\b') {
		done := s.plain(p)
		s.at = len(s.line)
		return done
	}
	var done []byte
	for len(p) > 0 {
		if len(s.line) > maxRedrawn && (s.anew || s.at == len(s.line)) {
			done, s.line, s.at, s.from, s.given = append(done, s.line...), s.line[:0], 0, 0, true
		}
		if len(s.control) > 0 {
			p = s.sequence(p)
			continue
		}
		n := bytes.IndexAny(p, "\n\r\b\x1b")
		if n < 0 {
			n = len(p)
		}
		if n > 0 {
			s.text(p[:n])
			p = p[n:]
			continue
		}
		done = s.act(p[0], done)
		p = p[1:]
	}
	return done
}

// plain is Write of a text in which nothing is drawn anew.
func (s *Screen) plain(p []byte) []byte {
	end := 0
	if bytes.IndexByte(p, '\n') >= 0 { // the last one is looked for a byte at a time
		end = bytes.LastIndexByte(p, '\n') + 1
	}
	done := p[:end]
	if end > 0 {
		s.given, s.from = false, 0
		if len(s.line) > 0 {
			done = s.lend(append(s.line, done...))
		}
	}
	s.line = append(s.line, p[end:]...)
	if len(s.line) > maxRedrawn {
		s.given, s.from = true, 0
		if len(done) == 0 {
			return s.lend(s.line)
		}
		done = append(slices.Clip(done), s.line...)
		s.line = s.line[:0]
	}
	return done
}

// lend gives the line out, and begins another in the buffer of the one that was lent before.
func (s *Screen) lend(line []byte) []byte {
	s.line, s.lent = s.lent[:0], line
	return line
}

// Rest is the last line, which has no end. Nothing may be written afterwards.
func (s *Screen) Rest() []byte {
	if s.anew {
		s.line = append(s.line, '\r')
	}
	return append(s.line, s.control...)
}

// All is what a whole text leaves on an empty screen.
func (s *Screen) All(p []byte) []byte { return append(slices.Clip(s.Write(p)), s.Rest()...) }

// text draws over the line, where the cursor is.
func (s *Screen) text(p []byte) {
	if s.anew {
		s.begin()
	}
	end, over := s.at, 0
	for ; over < len(p) && end < len(s.line); over++ {
		if utf8.RuneStart(p[over]) { // the parts of a character may come apart
			end = s.next(end)
		}
	}
	s.line = slices.Replace(s.line, s.at, end, p...)
	s.at, s.back = s.at+len(p), false
}

// next is where in the line the character behind the one at i begins.
func (s *Screen) next(i int) int {
	for i++; i < len(s.line) && !utf8.RuneStart(s.line[i]); i++ {
	}
	return min(i, len(s.line))
}

// begin goes to where the line begins. What was given out of it stays, and a carriage return parts it
// from what comes.
func (s *Screen) begin() {
	if s.given && s.from == 0 {
		s.line = append(s.line, '\r')
		s.from = len(s.line)
	}
	s.at, s.anew = s.from, false
	s.Redraws++
}

// left moves the cursor by a character.
func (s *Screen) left() {
	for s.at > s.from {
		if s.at--; utf8.RuneStart(s.line[s.at]) {
			return
		}
	}
}

// act does what one control character says.
func (s *Screen) act(c byte, done []byte) []byte {
	switch c {
	case '\n':
		done = append(done, s.line...)
		if s.anew {
			done = append(done, '\r')
		}
		done = append(done, '\n')
		s.line, s.at, s.from, s.given, s.anew, s.back = s.line[:0], 0, 0, false, false, false
	case '\r':
		if s.anew {
			s.Redraws++
		}
		s.anew, s.back = true, false
	case '\b':
		if !s.back {
			s.Redraws++
		}
		if s.back = true; !s.anew {
			s.left()
		}
	default:
		s.control = append(s.control, c)
	}
	return done
}

// sequence takes the next bytes of a control sequence, and gives those behind it.
func (s *Screen) sequence(p []byte) []byte {
	for i, c := range p {
		switch next := after(s.control, c); {
		case next == broken || len(s.control) >= maxControl:
			s.text(s.control)
			s.control = s.control[:0]
			return p[i:]
		case next == whole:
			s.end(c)
			return p[i+1:]
		}
		s.control = append(s.control, c)
	}
	return nil
}

// end leaves a whole sequence out. It may erase the line, or what stands behind the cursor, or move that
// within the line.
func (s *Screen) end(last byte) {
	s.Controls++
	if given, is := bytes.CutPrefix(s.control, []byte("\x1b[")); is {
		s.moved(last, string(given))
	}
	s.control = s.control[:0]
}

// moved does what a sequence with these parameters says.
func (s *Screen) moved(last byte, given string) {
	switch n, _ := strconv.Atoi(cmp.Or(given, "0")); {
	case last == 'K' && (given == "2" || s.anew && n == 0):
		s.begin()
		s.line = s.line[:s.at]
	case last == 'K' && n == 0:
		s.line = s.line[:s.at]
	case last == 'G': // to a column
		s.begin()
		for ; n > 1 && s.at < len(s.line); n-- {
			s.at = s.next(s.at)
		}
	case last == 'D' && !s.anew: // to the left
		for n = max(n, 1); n > 0 && s.at > s.from; n-- {
			s.left()
		}
	}
}

// What a byte is for a sequence.
const (
	inside = iota
	whole
	broken
)

// after says what c is behind the beginning of a sequence, by ECMA-48.
func after(begun []byte, c byte) int {
	switch {
	case len(begun) == 1 && c >= 0x20 && c <= 0x7e:
		if c <= 0x2f || bytes.IndexByte([]byte("[]PX^_"), c) >= 0 {
			return inside
		}
		return whole // such as ESC 7
	case len(begun) == 1:
		return broken
	case begun[1] == '[': // CSI: parameters, then a letter
		return ending(c, 0x40)
	case begun[1] <= 0x2f: // such as ESC ( B
		return ending(c, 0x30)
	case c == '\a' && begun[1] == ']', c == '\\' && begun[len(begun)-1] == '\x1b': // a string, such as a title
		return whole
	case c == '\n' || c == '\r' || begun[len(begun)-1] == '\x1b':
		return broken
	}
	return inside
}

// ending says what c is for a sequence that a byte from first on ends.
func ending(c, first byte) int {
	switch {
	case c < 0x20 || c > 0x7e:
		return broken
	case c < first:
		return inside
	}
	return whole
}

// NotShown says what a Screen left out; "" where that is nothing.
func NotShown(redraws, controls int64) string {
	var left []string
	if redraws > 0 {
		left = append(left, Count(redraws, "redraw of a line", "redraws of lines"))
	}
	if controls > 0 {
		left = append(left, Count(controls, "control sequence", "control sequences"))
	}
	return strings.Join(left, " and ")
}
