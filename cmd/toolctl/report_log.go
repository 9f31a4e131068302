package main

import (
	"fmt"
	"io"

	"github.com/toold/toold/internal/plain"
)

// boundedLog keeps the beginning and the end of what is written to it.
type boundedLog struct {
	head, tail []byte
	bytes      int64 // all that was written
}

// maxLogPart is how much of each end of a log is kept: the beginning says what was done,
// the end how it failed.
const maxLogPart = 8 << 20

// Write implements io.Writer. It does not fail.
func (l *boundedLog) Write(p []byte) (int, error) {
	n := len(p)
	l.bytes += int64(n)
	room := min(maxLogPart-len(l.head), n)
	l.head = append(l.head, p[:room]...)
	p = p[max(room, n-maxLogPart):]
	if len(l.tail)+len(p) > 2*maxLogPart { // moved once for each time that it is full
		l.tail = append(l.tail[:0], lastOf(l.tail)...)
	}
	l.tail = append(l.tail, p...)
	return n, nil
}

func lastOf(p []byte) []byte { return p[max(0, len(p)-maxLogPart):] }

// leftOut counts the bytes between the two ends.
func (l *boundedLog) leftOut() int64 {
	return l.bytes - int64(len(l.head)+len(lastOf(l.tail)))
}

// writeTo writes what is kept, and how much is not.
func (l *boundedLog) writeTo(w io.Writer) error {
	if _, err := w.Write(l.head); err != nil {
		return err
	}
	if n := l.leftOut(); n > 0 {
		if _, err := fmt.Fprintf(w, "\n[toolctl: %s left out]\n", plain.Count(n, "byte", "bytes")); err != nil {
			return err
		}
	}
	_, err := w.Write(lastOf(l.tail))
	return err
}
