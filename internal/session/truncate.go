package session

import (
	"bytes"
	"unicode/utf8"

	"github.com/toold/toold/internal/plain"
)

// Directions in which a long output is cut.
const (
	directionHead = "head"
	directionTail = "tail"
	directionBoth = "both"
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
	return runeStart(b, n)
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

// runeStart moves n back to where no UTF-8 sequence of b is split. Bytes that
// are not UTF-8 may be split anywhere.
func runeStart(b []byte, n int) int {
	if n >= len(b) {
		return n
	}
	for i := n; i > n-utf8.UTFMax && i > 0; i-- {
		if utf8.RuneStart(b[i]) {
			if i < n && !utf8.FullRune(b[i:n]) {
				return i
			}
			return n
		}
	}
	return n
}

// partialRune is the length of an unfinished UTF-8 sequence at the end of b.
func partialRune(b []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-i:]) {
				return i
			}
			return 0
		}
	}
	return 0
}

// cut is an output that was made to fit.
type cut struct {
	head, tail string
	truncated  bool
	lines      int64 // left out
	bytes      int64 // left out
}

// shorten makes an output fit. head is its first bytes, tail its last; whole
// says that head is all of it, and total and lines are its size.
func shorten(head, tail []byte, whole bool, total, lines int64, direction string, maxLines, maxBytes int) cut {
	if whole && total <= int64(maxBytes) && lines <= int64(maxLines) {
		return cut{head: plain.Text(string(head))}
	}
	if whole {
		tail = head
	}
	c := cut{truncated: true}
	var kept []byte
	if direction != directionTail {
		l, n := maxLines, maxBytes
		if direction == directionBoth {
			l, n = l/2, n/2
		}
		part := head[:headLen(head, l, n, true)]
		kept = append(kept, part...)
		c.head = refit(part, n, true)
	}
	if direction != directionHead {
		l, n := maxLines, maxBytes
		if direction == directionBoth {
			l, n = l-l/2, n-n/2
		}
		part := tail[tailStart(tail, l, n):]
		kept = append(kept, part...)
		c.tail = refit(part, n, false)
	}
	c.bytes = max(0, total-int64(len(kept)))
	c.lines = max(0, lines-countLines(kept))
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
		return s[:runeStart([]byte(s), maxBytes)]
	}
	start := len(s) - maxBytes
	for start < len(s) && !utf8.RuneStart(s[start]) {
		start++
	}
	return s[start:]
}

// countLines counts lines, the last of which need not have an end.
func countLines(b []byte) int64 {
	n := int64(bytes.Count(b, []byte{'\n'}))
	if len(b) > 0 && b[len(b)-1] != '\n' {
		n++
	}
	return n
}
