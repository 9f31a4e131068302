package plain

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// maxRedrawn is how much of a line is held back because it may be drawn anew, in bytes.
	maxRedrawn = 64 << 10
	// maxControl bounds a control sequence, in bytes: the longest in use have an address.
	maxControl = 4 << 10
)

// Screen makes of what a program prints for a terminal the text that stays there: the last state
// of each line, without the sequences that move a cursor or colour a text. What is no whole sequence
// is text, so that nothing is hidden behind the beginning of one. Line ends are kept, CRLF too. Its zero value is ready.
type Screen struct {
	// Redraws counts how often a line was begun anew or taken back, Controls the sequences.
	Redraws, Controls int64

	line    []byte // the last one so far
	control []byte // the beginning of a sequence
	anew    bool   // a carriage return has come: text begins the line anew
	back    bool   // the last character went back
}

// Write takes the next bytes and gives what cannot change any more. That may be part of p.
func (s *Screen) Write(p []byte) []byte {
	if len(s.control) == 0 && !s.anew && !bytes.ContainsAny(p, "\r\b\x1b") {
		return s.plain(p)
	}
	var done []byte
	for len(p) > 0 {
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
			if len(s.line) > maxRedrawn {
				done, s.line = append(done, s.line...), s.line[:0]
			}
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
	s.back = false
	end := bytes.LastIndexByte(p, '\n') + 1
	done := p[:end]
	if end > 0 && len(s.line) > 0 {
		done = append(s.line, done...)
		s.line = nil
	}
	s.line = append(s.line, p[end:]...)
	if len(s.line) > maxRedrawn {
		done = append(slices.Clip(done), s.line...)
		s.line = nil
	}
	return done
}

// Rest is the last line, which has no end. Nothing may be written afterwards.
func (s *Screen) Rest() []byte {
	if len(s.control) > 0 {
		s.text(s.control)
	}
	if s.anew {
		s.line = append(s.line, '\r')
	}
	return s.line
}

// text adds to the line.
func (s *Screen) text(p []byte) {
	if s.anew {
		s.line, s.anew = s.line[:0], false
		s.Redraws++
	}
	s.back = false
	s.line = append(s.line, p...)
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
		s.line, s.anew, s.back = s.line[:0], false, false
	case '\r':
		if s.anew {
			s.Redraws++
		}
		s.anew = true
	case '\b':
		if !s.back {
			s.Redraws++
		}
		_, n := utf8.DecodeLastRune(s.line)
		s.line, s.back = s.line[:len(s.line)-n], true
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
			whole := s.control
			s.control = nil
			s.text(whole)
			return p[i:]
		case next == whole:
			s.end(c)
			return p[i+1:]
		}
		s.control = append(s.control, c)
	}
	return nil
}

// end leaves a whole sequence out. To erase a line is to draw it anew.
func (s *Screen) end(last byte) {
	s.Controls++
	erases := string(s.control[1:])
	if last == 'K' && (erases == "[2" || s.anew && (erases == "[" || erases == "[0")) {
		s.line, s.anew = s.line[:0], false
		s.Redraws++
	}
	s.control = s.control[:0]
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
		switch {
		case c >= 0x40 && c <= 0x7e:
			return whole
		case c >= 0x20 && c <= 0x3f:
			return inside
		}
		return broken
	case begun[1] <= 0x2f: // such as ESC ( B
		switch {
		case c >= 0x30 && c <= 0x7e:
			return whole
		case c >= 0x20 && c <= 0x2f:
			return inside
		}
		return broken
	case c == '\a' && begun[1] == ']', c == '\\' && begun[len(begun)-1] == '\x1b': // a string, such as a title
		return whole
	case c == '\n' || c == '\r' || begun[len(begun)-1] == '\x1b':
		return broken
	}
	return inside
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
