package search

import (
	"bytes"

	"github.com/toold/toold/internal/tool/run/root"
)

// whole searches a file that is held in memory, for matches that may span lines.
func (s *Searcher) whole(f *root.File, held **root.Reservation) error {
	size := f.Info().Size
	if size > s.spec.MaxSpan {
		return &root.Error{Code: root.TooLarge, Msg: "too large to be searched across lines"}
	}
	var err error
	if *held, err = s.root.Reserve(s.ctx, 3*size+windowBytes); err != nil {
		return err
	}
	if s.text, err = s.readWhole(f, size); err != nil {
		return err
	}
	if s.isBinary(0, min(len(s.text), windowBytes)) {
		return nil
	}
	if need := s.query.need; need != nil {
		if s.finder.reset(need, s.text); s.finder.find(0) < 0 {
			return nil
		}
	}
	if s.matches() {
		s.afterContext(len(s.text))
	}
	return nil
}

// readWhole reads a file, decoded; in UTF-8 it can be half as long again.
func (s *Searcher) readWhole(f *root.File, size int64) ([]byte, error) {
	var d decoder
	d.reset(f)
	data := make([]byte, 0, size+512)
	for {
		if len(data) == cap(data) {
			if int64(len(data)) > size+size/2+4096 {
				return nil, &root.Error{Code: root.TooLarge, Msg: "it has grown"}
			}
			data = append(data, 0)[:len(data)]
		}
		n, err := d.read(data[len(data):min(cap(data), len(data)+windowBytes)])
		data = data[:len(data)+n]
		if err != nil && n == 0 {
			return data, eofIsNil(err)
		}
		if s.ctx.Err() != nil {
			return nil, nil
		}
	}
}

// isBinary looks for a NUL byte in a part of the text; true means that the file
// is left there.
func (s *Searcher) isBinary(from, to int) bool {
	if !s.binary {
		s.binary = bytes.IndexByte(s.text[from:to], 0) >= 0
	}
	return s.binary && !s.spec.Named
}

// matches finds the matches, and takes those together whose lines touch. It
// reports whether lines behind the last one are still wanted.
func (s *Searcher) matches() bool {
	first, last := -1, -1 // the lines of the matches that are not given yet
	n := 0                // matches among them
	lastEnd := -1         // of the match before
	// Without NUL bytes what follows the first match cannot undo it.
	clean := bytes.IndexByte(s.text, 0) < 0
	for s.pos < len(s.text) {
		start, end, ok := s.pike.find(s.ctx, s.text, s.pos)
		if !ok {
			break
		}
		if s.pos = end; start == end {
			s.pos++
		}
		// An empty match right behind another is not counted, nor one at the end.
		counts := 1
		if start == end && end == lastEnd || start == len(s.text) {
			counts = 0
		}
		lastEnd = end
		if first >= 0 && start < last && end <= last {
			n += counts
			continue
		}
		lineStart, lineEnd := s.linesOf(start, end)
		if first >= 0 && lineStart <= last {
			last = max(last, lineEnd)
			n += counts
			continue
		}
		if first >= 0 && !s.giveMatch(first, last, n) {
			return false
		}
		if lineStart == lineEnd {
			// Behind the last line break nothing can be shown, but ripgrep shows
			// what is around it.
			return s.around(lineStart)
		}
		first, last, n = lineStart, lineEnd, counts
		if s.spec.Mode == First && clean {
			break
		}
	}
	return first < 0 || s.giveMatch(first, last, n)
}

// linesOf are the whole lines that a match is in.
func (s *Searcher) linesOf(start, end int) (int, int) {
	lineStart := bytes.LastIndexByte(s.text[:start], '\n') + 1
	if end > lineStart && s.text[end-1] == '\n' {
		return lineStart, end
	}
	return lineStart, s.lineEnd(end)
}

// giveMatch takes n matches on the lines from start to end.
func (s *Searcher) giveMatch(start, end, n int) bool {
	if s.ctx.Err() != nil {
		return false
	}
	if !s.around(start) || s.isBinary(start, end) {
		return false
	}
	s.found.Matches += n - 1
	return s.matched(start, end)
}
