package replace

import (
	"bytes"
	"strings"
)

// endings are the line endings of a text: strategies see it with \n only.
type endings struct {
	text  []byte // as it is
	plain []byte // with \n for every \r\n; the text itself when it has none
	crlf  bool
}

func endingsOf(text []byte) endings {
	e := endings{text: text, plain: text, crlf: bytes.Contains(text, []byte("\r\n"))}
	if e.crlf {
		e.plain = bytes.ReplaceAll(text, []byte("\r\n"), []byte{'\n'})
	}
	return e
}

// WithEnds gives a whole text that replaces old: with lines that end in CRLF, where all of old's do and
// the text says nothing of them.
func WithEnds(old, text []byte) []byte {
	n := bytes.Count(old, []byte{'\n'})
	if n == 0 || bytes.Count(old, []byte("\r\n")) != n || bytes.IndexByte(text, '\r') >= 0 {
		return text
	}
	return bytes.ReplaceAll(text, []byte{'\n'}, []byte("\r\n"))
}

// asPlainEndings is the view that makes endings.plain.
func asPlainEndings(text []byte, piece func(from, to, out int)) {
	start := 0
	for {
		i := bytes.Index(text[start:], []byte("\r\n"))
		if i < 0 {
			cut(piece, start, len(text), literal)
			return
		}
		cut(piece, start, start+i, literal)
		piece(start+i, start+i+1, gone)
		piece(start+i+1, start+i+2, literal)
		start += i + 2
	}
}

// restore turns places of the plain text into changes of the text. Each change
// leaves out what old and new have in common at both ends, so that in a text
// with both kinds of endings the lines that stay also keep theirs.
func (e endings) restore(places []place) []Match {
	matches := make([]Match, len(places))
	if !e.crlf {
		for i, p := range places {
			matches[i] = Match{Start: p.start, End: p.end, New: p.new}
		}
		return matches
	}
	starts := make([]int, len(places))
	offsets := make([]int, 0, 2*len(places))
	for i, p := range places {
		span, replacement := e.plain[p.start:p.end], []byte(p.new)
		head := commonPrefix(span, replacement)
		tail := commonSuffix(span[head:], replacement[head:])
		matches[i].New = string(replacement[head : len(replacement)-tail])
		starts[i] = p.start
		offsets = append(offsets, p.start+head, p.end-tail)
	}
	starts, _ = view(asPlainEndings).locate(e.text, starts)
	offsets, _ = view(asPlainEndings).locate(e.text, offsets)
	for i := range matches {
		m := &matches[i]
		m.Start, m.End = offsets[2*i], offsets[2*i+1]
		m.New = strings.ReplaceAll(m.New, "\n", e.at(starts[i]))
	}
	return matches
}

// at is the line ending for a replacement that begins at an offset of the text:
// the next one, or in the last line the one before.
func (e endings) at(offset int) string {
	i := bytes.IndexByte(e.text[offset:], '\n')
	if i >= 0 {
		i += offset
	} else {
		i = bytes.LastIndexByte(e.text, '\n')
	}
	if i > 0 && e.text[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}
