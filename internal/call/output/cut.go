package output

import (
	"bytes"
	"unicode/utf8"

	"github.com/toold/toold/internal/plain"
)

// What a result shows of a long output: its beginning, its end, or half of each.
const (
	Head = "head"
	Tail = "tail"
	Both = "both"
)

// keptLine is how much of a line must have fit for the line to be cut instead
// of left out: a cut line is worse than none, but one giant line must not be
// dropped whole.
const keptLine = 2000

// headLen says how many bytes of b's beginning fit into the limits. more says
// that the output goes on after b.
func headLen(b []byte, maxLines, maxBytes int, more bool) int {
	n := min(len(b), maxBytes)
	if end, full := nthLineEnd(b[:n], maxLines); full {
		return end
	}
	if n == len(b) && !more {
		return n
	}
	if last := bytes.LastIndexByte(b[:n], '\n'); last >= 0 && n-(last+1) < keptLine {
		return last + 1
	}
	return plain.RuneStart(b, n)
}

// tailStart says where the part of b's end begins that fits into the limits.
func tailStart(b []byte, maxLines, maxBytes int) int {
	start := max(0, len(b)-maxBytes)
	if i, full := nthLineFromEnd(b[start:], maxLines); full {
		return start + i
	}
	if start == 0 || b[start-1] == '\n' {
		return start
	}
	if first := bytes.IndexByte(b[start:], '\n'); first >= 0 && first < keptLine && start+first+1 < len(b) {
		return start + first + 1
	}
	for i := 0; i < utf8.UTFMax && start < len(b) && !utf8.RuneStart(b[start]); i++ {
		start++
	}
	return start
}

// nthLineEnd finds the byte after the n-th line end of b; full says that there
// are that many.
func nthLineEnd(b []byte, n int) (end int, full bool) {
	for range n {
		i := bytes.IndexByte(b[end:], '\n')
		if i < 0 {
			return end, false
		}
		end += i + 1
	}
	return end, true
}

// nthLineFromEnd finds the start of the n-th last line of b.
func nthLineFromEnd(b []byte, n int) (start int, full bool) {
	end := len(b)
	if end > 0 && b[end-1] == '\n' {
		end--
	}
	for range n {
		i := bytes.LastIndexByte(b[:end], '\n')
		if i < 0 {
			return 0, false
		}
		start, end = i+1, i
	}
	return start, true
}

// Cut is an output that was made to fit, as UTF-8 without NUL. Head is all of it unless it
// is Truncated.
type Cut struct {
	Head, Tail string
	Truncated  bool
	Lines      int64  // left out
	Bytes      int64  // left out
	TotalLines int64  // of the whole
	NULs       int64  // NUL bytes of the whole
	Redraws    int64  // how often a line was drawn anew, of which the last state is shown
	Controls   int64  // control sequences that are not shown
	Stopped    string // why the file has not the whole; "" if it may have
}

// view is both ends of a text.
type view struct {
	head  []byte // the first bytes, up to MaxBytes
	tail  []byte // the last bytes, MaxBytes of them or more; not for Head
	total int64  // bytes of the whole
	last  byte   // of the whole
}

// lines is how many lines the text has, of which so many have an end.
func (v *view) lines(ends int64) int64 {
	if v.total > 0 && v.last != '\n' {
		return ends + 1
	}
	return ends
}

// take adds to the text.
func (v *view) take(p []byte, most *Limits) {
	if len(p) == 0 {
		return
	}
	v.total, v.last = v.total+int64(len(p)), p[len(p)-1]
	keep := most.MaxBytes
	if room := keep - len(v.head); room > 0 {
		v.head = append(v.head, p[:min(room, len(p))]...)
	}
	if most.Direction == Head {
		return
	}
	if len(p) >= keep {
		v.tail = append(v.tail[:0], p[len(p)-keep:]...)
		return
	}
	v.tail = append(v.tail, p...)
	if len(v.tail) > 2*keep {
		v.tail = append(v.tail[:0], v.tail[len(v.tail)-keep:]...)
	}
}

// shorten makes an output of so many lines fit. gap is how many bytes of it nobody has seen.
func shorten(v *view, gap, lines int64, most *Limits) Cut {
	head, tail, total := v.head, v.tail, v.total
	whole := int64(len(head)) == total && gap == 0
	if whole && total <= int64(most.MaxBytes) && lines <= int64(most.MaxLines) {
		return Cut{Head: plain.Text(string(head))}
	}
	if whole {
		tail = head
	}
	c := Cut{Truncated: true}
	var kept []byte
	if most.Direction != Tail {
		l, n := most.MaxLines, most.MaxBytes
		if most.Direction == Both {
			l, n = l/2, n/2
		}
		part := head[:headLen(head, l, n, true)]
		kept = append(kept, part...)
		c.Head = refit(part, n, true)
	}
	if most.Direction != Head {
		l, n := most.MaxLines, most.MaxBytes
		if most.Direction == Both {
			l, n = l-l/2, n-n/2
		}
		part := tail[tailStart(tail, l, n):]
		kept = append(kept, part...)
		c.Tail = refit(part, n, false)
	}
	c.Bytes = max(0, total-int64(len(kept)))
	c.Lines = max(0, lines-countLines(kept))
	return c
}

// refit makes b valid UTF-8 that still fits: what replaces a wrong byte is
// longer than the byte.
func refit(b []byte, maxBytes int, fromStart bool) string {
	s := plain.Text(string(b))
	if len(s) <= maxBytes {
		return s
	}
	if fromStart {
		return s[:plain.RuneStart(s, maxBytes)]
	}
	return plain.FromRune(s[len(s)-maxBytes:])
}

// countLines counts lines, the last of which need not have an end.
func countLines(b []byte) int64 {
	n := int64(bytes.Count(b, []byte{'\n'}))
	if len(b) > 0 && b[len(b)-1] != '\n' {
		n++
	}
	return n
}
