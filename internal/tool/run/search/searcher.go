package search

import (
	"bytes"
	"context"
	"errors"

	"github.com/toold/toold/internal/tool/run/root"
)

// Mode says how much is wanted of a file.
type Mode int

// The modes.
const (
	Lines Mode = iota // the lines that match
	First             // whether any does
	Count             // how many there are
)

// Sink takes the lines that were found. False says that no more are wanted.
type Sink func(number int, text []byte, match bool) bool

// Spec is what to do with each file.
type Spec struct {
	Mode Mode
	// Context is how many lines around each match the sink gets.
	Context int
	// Named: the file was asked for by name. A binary one is then searched, but
	// no line of it is shown; any other is left at the first NUL byte.
	Named bool
	// MaxSpan is the largest file that is searched across lines, in bytes. It is
	// held in memory.
	MaxSpan int64
}

// Found is what became of one file.
type Found struct {
	Matches int // lines, or matches where they may span lines
	// Binary: the file is binary and not all of its matches were shown.
	Binary bool
	// Cut: a line is too long, or the file to be searched across lines; what is
	// behind was not searched.
	Cut bool
}

// Searcher searches one file at a time.
type Searcher struct {
	query *Query
	spec  Spec
	root  *root.Root
	// scratch has the memory of the states of a dfa.
	scratch *root.Scratch

	dfa    *dfa
	pike   *pike
	finder finder
	window window
	sink   Sink
	ctx    context.Context // of the present file

	// The present file: text is what is looked at, pos what is done of it.
	text    []byte
	pos     int
	visited int // end of the last line that the sink got
	counted int // how much of text is in number
	number  int // line breaks before text[counted]
	after   int // lines that the sink is still to get behind the last match
	found   Found
	binary  bool
}

// NewSearcher makes a Searcher, which must be closed. r gives the memory for large
// files and large patterns.
func NewSearcher(q *Query, spec Spec, r *root.Root) *Searcher {
	s := &Searcher{query: q, spec: spec, root: r, scratch: r.NewScratch()}
	if q.spans {
		s.pike = newPike(q.prog)
	} else {
		s.dfa = newDFA(q.prog, s.scratch)
	}
	return s
}

// Close gives back the memory that s holds. No file may be searched afterwards.
func (s *Searcher) Close() {
	s.dfa, s.pike = nil, nil
	s.scratch.Release()
}

// File searches f. The error is that of reading it, or of ctx; what was found
// until then counts.
func (s *Searcher) File(ctx context.Context, f *root.File, sink Sink) (Found, error) {
	s.ctx, s.sink = ctx, sink
	s.text, s.pos, s.visited, s.counted, s.number, s.after = nil, 0, 0, 0, 0, 0
	s.found, s.binary = Found{}, false
	var held *root.Reservation
	defer func() {
		if held != nil {
			s.window.buf = nil
			held.Release()
		}
	}()
	var err error
	if s.query.spans {
		err = s.whole(f, &held)
	} else {
		s.window.reset(f, !s.spec.Named, func() error {
			var err error
			held, err = s.root.Reserve(ctx, windowMemory)
			return err
		})
		err = s.byLine()
	}
	if errors.Is(err, errLongLine) || root.CodeOf(err) == root.TooLarge {
		s.found.Cut, err = true, nil
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	s.finish()
	return s.found, err
}

// finish says what is to be said of a binary file.
func (s *Searcher) finish() {
	if !s.binary || s.found.Matches == 0 {
		return
	}
	switch {
	case s.spec.Mode == Lines:
		s.found.Binary = true
	case !s.spec.Named:
		// What counts of a file that was left in the middle would mislead.
		s.found.Matches = 0
	}
}

// byLine searches a file window by window.
func (s *Searcher) byLine() error {
	for {
		before := len(s.text)
		consumed := s.roll()
		s.window.done(consumed)
		more, err := s.window.fill()
		if err != nil {
			return err
		}
		s.binary = s.window.binary
		if !more || s.binary && s.window.quit || s.ctx.Err() != nil {
			return nil
		}
		s.text = s.window.text()
		if consumed == 0 && len(s.text) == before {
			return nil // all that is left are lines around the last match
		}
		if !s.scan() {
			return nil
		}
	}
}

// roll gives up what is done of the window but what context may still need, and
// tells how much that is.
func (s *Searcher) roll() int {
	consumed := len(s.text)
	if s.spec.Context > 0 {
		consumed = max(s.preceding(0, len(s.text), s.spec.Context), s.visited)
	}
	s.count(consumed)
	s.counted, s.visited = 0, 0
	s.pos = len(s.text) - consumed
	return consumed
}

// preceding is where the last n+1 lines before end begin, or from.
func (s *Searcher) preceding(from, end, n int) int {
	at := end
	if at > from && s.text[at-1] == '\n' {
		at--
	}
	for {
		i := bytes.LastIndexByte(s.text[from:at], '\n')
		switch {
		case i < 0:
			return from
		case n == 0:
			return from + i + 1
		case i == 0:
			return from
		}
		n--
		at = from + i
	}
}

// count brings number up to date with what is before to.
func (s *Searcher) count(to int) {
	s.number += bytes.Count(s.text[s.counted:to], []byte{'\n'})
	s.counted = to
}

// scan looks through the window; false means that the file is done.
func (s *Searcher) scan() bool {
	if s.query.need != nil {
		s.finder.reset(s.query.need, s.text)
	}
	for s.pos < len(s.text) {
		start, end, ok := s.nextLine()
		if !ok {
			break
		}
		if !s.around(start) {
			return false
		}
		s.pos = end
		if !s.matched(start, end) {
			return false
		}
	}
	s.pos = len(s.text)
	return s.afterContext(len(s.text))
}

// nextLine is the next line with a match.
func (s *Searcher) nextLine() (start, end int, ok bool) {
	for at := s.pos; at < len(s.text); at = end {
		start = at
		if s.query.need != nil {
			hit := s.finder.find(at)
			if hit < 0 {
				return 0, 0, false
			}
			start = at + bytes.LastIndexByte(s.text[at:hit], '\n') + 1
			at = hit
		}
		end = s.lineEnd(at)
		if s.query.plain || s.dfa.match(s.ctx, s.query.line(s.text[start:end])) {
			return start, end, true
		}
		if s.ctx.Err() != nil {
			return 0, 0, false
		}
	}
	return 0, 0, false
}

// lineEnd is behind the line break that ends the line at.
func (s *Searcher) lineEnd(at int) int {
	if i := bytes.IndexByte(s.text[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(s.text)
}

// line is the text of a line, without what ends it.
func (q *Query) line(line []byte) []byte {
	text := bytes.TrimSuffix(line, []byte{'\n'})
	if !q.crlf {
		return text
	}
	if len(text) < len(line) {
		text = bytes.TrimSuffix(text, []byte{'\r'})
	}
	return bytes.TrimSuffix(text, []byte{'\r'}) // $ takes one too
}

// Column is where the first match in a line begins, in bytes from 1; 0 = unknown. It
// takes more time than to find the line.
func (s *Searcher) Column(line []byte) int {
	if s.pike == nil {
		if !s.scratch.Take(int64(len(s.query.prog.Inst)) * instBytes) {
			return 0
		}
		s.pike = newPike(s.query.prog)
	}
	start, _, ok := s.pike.find(s.ctx, s.query.line(line), 0)
	if !ok {
		return 0
	}
	return start + 1
}

// around gives the sink the lines between the last match and the one at start.
func (s *Searcher) around(start int) bool {
	if !s.afterContext(start) {
		return false
	}
	if s.spec.Context == 0 || s.visited >= start {
		return true
	}
	for at := s.preceding(s.visited, start, s.spec.Context-1); at < start; {
		end := s.lineEnd(at)
		if !s.give(at, end, false) {
			return false
		}
		at = end
	}
	return true
}

// afterContext gives the sink the lines behind the last match, up to one.
func (s *Searcher) afterContext(upto int) bool {
	for s.after > 0 && s.visited < upto {
		if !s.give(s.visited, s.lineEnd(s.visited), false) {
			return false
		}
		s.after--
	}
	return true
}

// give gives the sink one line.
func (s *Searcher) give(start, end int, match bool) bool {
	s.visited = end
	if s.spec.Mode != Lines {
		return true
	}
	if s.query.spans && s.isBinary(start, end) {
		return false
	}
	if !match && s.binary && s.spec.Named {
		return false // nothing of a binary file is shown, and no more looked for
	}
	s.count(start)
	return s.sink(s.number+1, bytes.TrimSuffix(s.text[start:end], []byte{'\n'}), match)
}

// matched takes a match, of one line or more; false means that the file is done.
func (s *Searcher) matched(start, end int) bool {
	s.found.Matches++
	s.after = s.spec.Context
	switch {
	case s.spec.Mode == First:
		return false
	case s.spec.Mode == Lines && s.binary && s.spec.Named:
		return false
	}
	for at := start; at < end; {
		next := min(s.lineEnd(at), end)
		if !s.give(at, next, true) {
			return false
		}
		at = next
	}
	return true
}
