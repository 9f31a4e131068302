package treetar

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Writer writes an archive.
type Writer struct {
	out     *bounded
	tar     *tar.Writer
	most    int64
	entries int
	buf     []byte
}

// bounded lets at most left bytes through.
type bounded struct {
	w    *bufio.Writer
	left int64
}

// gather is how much is gathered before it is written.
const gather = 64 << 10

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		return 0, ErrTooLarge
	}
	b.left -= int64(len(p))
	return b.w.Write(p)
}

// NewWriter writes an archive of at most most bytes to w.
func NewWriter(w io.Writer, most int64) *Writer {
	out := &bounded{w: bufio.NewWriterSize(w, gather), left: most}
	return &Writer{out: out, tar: tar.NewWriter(out), most: most, buf: make([]byte, gather)}
}

// Add writes an entry, with e.Size bytes of content where it is a file. A file that is
// shorter than that now, or cannot be read to its end, is filled up with zeros, and then
// short is true. Other and HardLink cannot be written. Its error is ErrTooLarge or that of
// writing.
func (w *Writer) Add(e *Entry, content io.Reader) (short bool, err error) {
	if w.entries++; w.entries > MaxEntries {
		return false, fmt.Errorf("%w: the tree has more than %d entries", ErrTooLarge, MaxEntries)
	}
	h := &tar.Header{Name: e.Name, Mode: int64(e.Mode.Perm()), ModTime: e.Time}
	switch e.Kind {
	case File:
		h.Typeflag, h.Size = tar.TypeReg, e.Size
	case Dir:
		h.Typeflag, h.Name = tar.TypeDir, strings.TrimSuffix(e.Name, "/")+"/"
	case Link:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Target
	default:
		return false, fmt.Errorf("cannot pack %q: kind %d", e.Name, e.Kind)
	}
	if e.Kind == File && e.Size > w.out.left {
		return false, w.failed(ErrTooLarge)
	}
	if err := w.tar.WriteHeader(h); err != nil {
		return false, w.failed(err)
	}
	if e.Kind != File {
		return false, nil
	}
	return w.content(e.Size, content)
}

// content writes size bytes.
func (w *Writer) content(size int64, from io.Reader) (short bool, err error) {
	for size > 0 {
		buf := w.buf[:min(size, int64(len(w.buf)))]
		n := len(buf)
		if short {
			clear(buf)
		} else {
			n, err = from.Read(buf)
			short = err != nil && int64(n) < size
		}
		if _, err := w.tar.Write(buf[:n]); err != nil {
			return false, w.failed(err)
		}
		size -= int64(n)
	}
	return short, nil
}

// Close writes the end of the archive. Without it a reader finds the archive cut.
func (w *Writer) Close() error {
	if err := w.tar.Close(); err != nil {
		return w.failed(err)
	}
	return w.out.w.Flush()
}

func (w *Writer) failed(err error) error {
	if errors.Is(err, ErrTooLarge) {
		return fmt.Errorf("%w: the archive would have more than %d bytes", ErrTooLarge, w.most)
	}
	return err
}
