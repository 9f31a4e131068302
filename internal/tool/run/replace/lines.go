package replace

import (
	"bytes"
	"context"
	"strings"
)

// lineTrimmed finds old line by line, comparing lines without the white space
// around them. It is linear (Knuth, Morris, Pratt over whole lines): naive
// comparison of a long block with a text of equal lines would be quadratic.
func (f *finder) lineTrimmed() ([]place, error) {
	ids := make(map[string]int32, len(f.oldLines))
	pattern := make([]int32, len(f.oldLines))
	for i, line := range f.oldLines {
		key := strings.TrimSpace(line)
		id, ok := ids[key]
		if !ok {
			id = int32(len(ids))
			ids[key] = id
		}
		pattern[i] = id
	}
	fallback := failures(pattern)
	starts := make([]int, len(pattern)) // of the last lines, as a ring
	var places []place
	var err error
	matched, n := 0, 0
	eachLine(f.text, func(from, to, next int) {
		if err != nil {
			return
		}
		if n&0xffff == 0 && f.ctx.Err() != nil {
			err = context.Cause(f.ctx)
		}
		starts[n%len(starts)] = from
		n++
		id, known := ids[string(bytes.TrimSpace(f.text[from:to]))]
		if !known {
			matched = 0
			return
		}
		for matched > 0 && pattern[matched] != id {
			matched = fallback[matched-1]
		}
		if pattern[matched] == id {
			matched++
		}
		if matched == len(pattern) {
			places = append(places, f.linePlace(starts[n%len(starts)], to, next))
			matched = fallback[matched-1]
			if len(places) > MaxMatches {
				err = &TooManyError{}
			}
		}
	})
	return places, err
}

// failures is the table of Knuth, Morris and Pratt: how much of the pattern
// still matches after a mismatch.
func failures(pattern []int32) []int {
	table := make([]int, len(pattern))
	k := 0
	for i := 1; i < len(pattern); i++ {
		for k > 0 && pattern[k] != pattern[i] {
			k = table[k-1]
		}
		if pattern[k] == pattern[i] {
			k++
		}
		table[i] = k
	}
	return table
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

// index gives the lines of the text; nil for a text with too many.
func (f *finder) index() *lineIndex {
	if f.lines != nil {
		return f.lines
	}
	count := bytes.Count(f.text, []byte{'\n'}) + 1
	if count > maxIndexed || len(f.text) >= 1<<31-1 {
		return nil
	}
	x := &lineIndex{text: f.text, starts: make([]int32, 0, count+1)}
	eachLine(f.text, func(from, _, _ int) { x.starts = append(x.starts, int32(from)) })
	end := len(f.text)
	if end > 0 && f.text[end-1] != '\n' {
		end++ // as if it had a last line break
	}
	x.starts = append(x.starts, int32(end))
	f.lines = x
	return x
}

func (x *lineIndex) len() int { return len(x.starts) - 1 }

func (x *lineIndex) line(i int) []byte { return x.text[x.starts[i] : x.starts[i+1]-1] }

func (x *lineIndex) trimmed(i int) []byte { return bytes.TrimSpace(x.line(i)) }

// place is linePlace for the lines from first to last.
func (f *finder) place(first, last int) place {
	x := f.lines
	return f.linePlace(int(x.starts[first]), int(x.starts[last+1])-1, min(int(x.starts[last+1]), len(f.text)))
}
