package search

import (
	"bytes"
	"errors"
	"io"
)

const (
	// windowBytes is how much of a file is looked at at a time.
	windowBytes = 64 << 10
	// maxLine is the longest line that is searched.
	maxLine = 12 << 20
	// largeWindow is from where on a window's memory is asked for.
	largeWindow = 1 << 20
	// windowMemory is what is asked for then: the window, and the one that it is
	// copied from as it grows.
	windowMemory = 20 << 20
)

// errLongLine ends the search of a file.
var errLongLine = errors.New("a line is too long")

// window is the part of a file that is looked at. It ends with a whole line,
// except at the end of the file.
type window struct {
	from decoder
	// quit: a NUL byte ends the file; else it is taken for a line break.
	quit bool
	// grow asks for the memory of a large window.
	grow func() error

	buf   []byte
	start int // what is before it is done with
	lines int // end of the last whole line
	end   int
	// binary: a NUL byte was read.
	binary bool
}

func (w *window) reset(from io.Reader, quit bool, grow func() error) {
	w.from.reset(from)
	w.quit, w.grow = quit, grow
	w.start, w.lines, w.end, w.binary = 0, 0, 0, false
	if len(w.buf) != windowBytes {
		w.buf = make([]byte, windowBytes)
	}
}

// text is what can be looked at.
func (w *window) text() []byte { return w.buf[w.start:w.lines] }

// done gives up the first n bytes of text.
func (w *window) done(n int) { w.start += n }

// fill reads until there is another line; false means that there is nothing left
// to look at.
func (w *window) fill() (bool, error) {
	if w.quit && w.binary {
		return w.start < w.lines, nil
	}
	copy(w.buf, w.buf[w.start:w.end])
	w.end -= w.start
	w.start, w.lines = 0, w.end
	for {
		if err := w.room(); err != nil {
			return false, err
		}
		n, err := w.from.read(w.buf[w.end:])
		if errors.Is(err, io.EOF) {
			w.lines = w.end
			return w.end > 0, nil
		}
		if err != nil {
			return false, err
		}
		fresh := w.buf[w.end : w.end+n]
		w.end += n
		if nul := bytes.IndexByte(fresh, 0); nul >= 0 {
			w.binary = true
			if w.quit {
				w.end -= len(fresh) - nul
				w.lines = w.end
				return w.end > 0, nil
			}
			replaceNUL(fresh[nul:])
		}
		if i := bytes.LastIndexByte(fresh, '\n'); i >= 0 {
			w.lines = w.end - len(fresh) + i + 1
			return true, nil
		}
	}
}

// replaceNUL makes line breaks of NUL bytes.
func replaceNUL(b []byte) {
	for {
		i := bytes.IndexByte(b, 0)
		if i < 0 {
			return
		}
		b[i] = '\n'
		b = b[i+1:]
	}
}

// room sees that there is room to read into.
func (w *window) room() error {
	if w.end < len(w.buf) {
		return nil
	}
	size := 3 * len(w.buf)
	if size > largeWindow {
		if len(w.buf) <= largeWindow {
			if err := w.grow(); err != nil {
				return err
			}
		}
		size = min(size, maxLine)
	}
	if size <= len(w.buf) {
		return errLongLine
	}
	buf := make([]byte, size)
	copy(buf, w.buf)
	w.buf = buf
	return nil
}
