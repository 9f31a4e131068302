package replace

import (
	"bytes"
	"context"
	"strings"
)

// lineTrimmed finds old line by line, comparing lines without the white space
// around them: in the text of such lines it stands between two line breaks.
func (f *finder) lineTrimmed() ([]place, error) {
	x, err := f.index()
	if err != nil {
		return nil, err
	}
	seen := append(make([]byte, 0, len(f.text)+2), '\n')
	for i := range x.len() {
		seen = append(append(seen, x.trimmed(i)...), '\n')
	}
	old := []byte{'\n'}
	for _, line := range f.oldLines {
		old = append(append(old, strings.TrimSpace(line)...), '\n')
	}
	var places []place
	for at, first := 0, 0; ; at++ {
		i := bytes.Index(seen[at:], old)
		if i < 0 {
			return places, nil
		}
		if err := f.oneMore(len(places)); err != nil {
			return nil, err
		}
		first += bytes.Count(seen[at:at+i], []byte{'\n'})
		places = append(places, f.place(first, first+len(f.oldLines)-1))
		first++ // with the line break that at goes past
		at += i
	}
}

// oneMore refuses a place more than MaxMatches, where so many were found, and goes on
// looking only as long as the call does.
func (f *finder) oneMore(found int) error {
	if found == MaxMatches {
		return ErrTooMany
	}
	if found&0xfff == 0 && f.ctx.Err() != nil {
		return context.Cause(f.ctx)
	}
	return nil
}

// linePlace is a place of whole lines: to is where the content of the last one
// ends, next where the line after it begins. Where old ended with a line break,
// so does the place; where the text then ends without one, the replacement ends
// without one too.
func (f *finder) linePlace(start, to, next int) place {
	replacement := f.own(func() string { return reindent(f.new, f.oldLines, textLines(f.text[start:to]), false) })
	if !f.newline {
		return place{start: start, end: to, new: replacement}
	}
	if next == to {
		replacement = strings.TrimSuffix(replacement, "\n")
	}
	return place{start: start, end: next, new: replacement}
}

// lineIndex is where the lines of a text begin, for strategies that look at
// lines in any order.
type lineIndex struct {
	text   []byte
	starts []int32 // and one more: where a line after the last would begin
}

// maxIndexed bounds the lines of a text that is indexed, and with it the memory
// for that: 8 MiB, and twice as much for a list of lines.
const maxIndexed = 2 << 20

// index gives the lines of the text; errLines for a text with too many.
func (f *finder) index() (*lineIndex, error) {
	if f.lines != nil {
		return f.lines, nil
	}
	count := bytes.Count(f.text, []byte{'\n'}) + 1
	if count > maxIndexed || len(f.text) >= 1<<31-1 {
		return nil, errLines
	}
	x := &lineIndex{text: f.text, starts: make([]int32, 0, count+1)}
	eachLine(f.text, func(from, _, _ int) { x.starts = append(x.starts, int32(from)) })
	end := len(f.text)
	if end > 0 && f.text[end-1] != '\n' {
		end++ // as if it had a last line break
	}
	x.starts = append(x.starts, int32(end))
	f.lines = x
	return x, nil
}

func (x *lineIndex) len() int { return len(x.starts) - 1 }

func (x *lineIndex) line(i int) []byte { return x.text[x.starts[i] : x.starts[i+1]-1] }

func (x *lineIndex) trimmed(i int) []byte { return bytes.TrimSpace(x.line(i)) }

// place is linePlace for the lines from first to last.
func (f *finder) place(first, last int) place {
	x := f.lines
	return f.linePlace(int(x.starts[first]), int(x.starts[last+1])-1, min(int(x.starts[last+1]), len(f.text)))
}
