package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// screen is a writer that makes hostile bytes safe to show on a terminal. What
// comes out is valid UTF-8 without any control or format character but newline
// and tab; everything else is spelled out (`\x1b`, `\u202e`), so that nothing is
// hidden and nothing acts:
//
//   - a carriage return starts a new line, so that no text can be written over;
//   - well-formed colour sequences (SGR) are left out: they are harmless once
//     gone, and programs that colour regardless would otherwise be unreadable;
//   - every other escape sequence is spelled out, because the ones that set
//     titles, clipboards and key bindings are how a terminal is attacked;
//   - bidirectional controls, invisible and tag characters and bytes that are
//     not UTF-8 are spelled out.
//
// Sequences may be split over any number of writes; at most maxSGR bytes are
// kept between them. Flush must follow the last write.
type screen struct {
	w    io.Writer
	buf  []byte // the text of one Write, reused
	held []byte // the beginning of a sequence whose end has not come yet
	cr   bool   // a carriage return is waiting to see whether a newline follows
}

// maxSGR bounds a colour sequence, in bytes; a longer one is spelled out.
const maxSGR = 64

func newScreen(w io.Writer) *screen { return &screen{w: w} }

// Write implements io.Writer.
func (s *screen) Write(p []byte) (int, error) {
	in := p
	if len(s.held) > 0 {
		in = append(s.held, p...)
		s.held = nil
	}
	s.buf = s.buf[:0]
	rest := s.show(in, false)
	s.held = append([]byte(nil), rest...)
	if _, err := s.w.Write(s.buf); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes what was held back, spelled out.
func (s *screen) Flush() error {
	s.buf = s.buf[:0]
	s.show(s.held, true)
	s.held = nil
	if s.cr {
		s.buf = append(s.buf, '\n')
		s.cr = false
	}
	_, err := s.w.Write(s.buf)
	return err
}

// show appends the safe form of in to buf and returns the bytes at the end that
// cannot be judged yet; with last there are none.
func (s *screen) show(in []byte, last bool) []byte {
	for len(in) > 0 {
		if n := plainPrefix(in); n > 0 {
			s.endLine(in[0])
			s.buf = append(s.buf, in[:n]...)
			in = in[n:]
			continue
		}
		n := s.showOne(in, last)
		if n == 0 {
			return in
		}
		in = in[n:]
	}
	return nil
}

// showOne handles the first character of in, which is not plain, and returns
// how many bytes it took; 0 asks for more bytes.
func (s *screen) showOne(in []byte, last bool) int {
	switch {
	case in[0] == '\r':
		s.endLine(0)
		s.cr = true
		return 1
	case in[0] == 0x1b:
		n, more := sgrPrefix(in)
		if more && !last {
			return 0
		}
		if n > 0 {
			return n
		}
	case in[0] >= utf8.RuneSelf && !utf8.FullRune(in) && !last:
		return 0
	}
	r, n := utf8.DecodeRune(in)
	s.endLine(in[0])
	if r == utf8.RuneError && n == 1 {
		s.buf = fmt.Appendf(s.buf, `\x%02x`, in[0])
	} else {
		s.buf = appendVisible(s.buf, r)
	}
	return n
}

// endLine turns a waiting carriage return into a newline, unless the next byte
// is one.
func (s *screen) endLine(next byte) {
	if s.cr && next != '\n' {
		s.buf = append(s.buf, '\n')
	}
	s.cr = false
}

// plainPrefix counts the leading bytes that need no second look.
func plainPrefix(p []byte) int {
	for i, c := range p {
		if (c < 0x20 && c != '\n' && c != '\t') || c >= 0x7f {
			return i
		}
	}
	return len(p)
}

// sgrPrefix measures the colour sequence ESC [ parameters m at the start of p.
// more is true where p ends before the sequence is decided.
func sgrPrefix(p []byte) (n int, more bool) {
	for i := 1; i < len(p) && i < maxSGR; i++ {
		switch c := p[i]; {
		case i == 1 && c == '[':
		case i > 1 && c == 'm':
			return i + 1, false
		case i > 1 && (c >= '0' && c <= '9' || c == ';' || c == ':'):
		default:
			return 0, false
		}
	}
	return 0, len(p) < maxSGR
}

// acts reports whether r does something to a terminal, or hides: controls,
// bidirectional and other format characters, line separators, invisible
// selectors and fillers. Joiners stay, since scripts and emoji need them.
func acts(r rune) bool {
	switch {
	case r == 0x200c || r == 0x200d:
		return false
	case r == 0x115f || r == 0x1160 || r == 0x3164 || r == 0xffa0 || r == 0x034f:
		return true
	case r >= 0xe0000 && r <= 0xe0fff:
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// appendVisible appends r, spelled out where it acts.
func appendVisible(b []byte, r rune) []byte {
	switch {
	case !acts(r):
		return utf8.AppendRune(b, r)
	case r < 0x80:
		return fmt.Appendf(b, `\x%02x`, r)
	case r < 0x10000:
		return fmt.Appendf(b, `\u%04x`, r)
	}
	return fmt.Appendf(b, `\U%08x`, r)
}

// line makes s safe to show as a part of one line: as a screen does, and with
// newlines, tabs and carriage returns spelled out too.
func line(s string) string {
	if plainLine(s) {
		return s
	}
	b := make([]byte, 0, len(s)+16)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == utf8.RuneError && n == 1:
			b = fmt.Appendf(b, `\x%02x`, s[i])
		default:
			b = appendVisible(b, r)
		}
		i += n
	}
	return string(b)
}

// visibleParts makes s safe to show like line, but for what stands between its parts.
func visibleParts(s, between string) string {
	parts := strings.Split(s, between)
	for i, p := range parts {
		parts[i] = line(p)
	}
	return strings.Join(parts, between)
}

func plainLine(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// lines makes s safe to show as text of several lines.
func lines(s string) string {
	var b strings.Builder
	w := newScreen(&b)
	_, _ = io.WriteString(w, s) // a strings.Builder does not fail
	_ = w.Flush()
	return b.String()
}
