package search

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// decoder reads a file as UTF-8: a byte order mark is left out, and what has one
// of UTF-16 is converted. All other bytes come as they are. Portions are those
// that ripgrep reads, because what it does with a binary file depends on them:
// the first is what was looked at to find a mark.
type decoder struct {
	from   io.Reader
	began  bool
	head   []byte // read and not given yet
	order  binary.ByteOrder
	chunk  []byte // of UTF-16, as read
	odd    []byte // the beginning of a character whose rest was not read
	wide   []byte // converted and not given yet
	endErr error
}

// wideChunk is how much of a file in UTF-16 is read at a time.
const wideChunk = 8 << 10

func (d *decoder) reset(from io.Reader) {
	*d = decoder{from: from, chunk: d.chunk, wide: d.wide[:0]}
}

// read gives some bytes, fewer than p has room for only at the end of a portion.
func (d *decoder) read(p []byte) (int, error) {
	if !d.began {
		d.began = true
		if err := d.begin(); err != nil {
			return 0, err
		}
	}
	if len(d.head) > 0 {
		n := copy(p, d.head)
		d.head = d.head[n:]
		return n, nil
	}
	if d.order == nil {
		return readFull(d.from, p)
	}
	for len(d.wide) == 0 {
		if d.endErr != nil {
			return 0, d.endErr
		}
		d.convert()
	}
	n := copy(p, d.wide)
	d.wide = d.wide[n:]
	return n, nil
}

// begin looks at the first three bytes.
func (d *decoder) begin() error {
	head := make([]byte, 3)
	n, err := readFull(d.from, head)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	head = head[:n]
	switch {
	case bytes.HasPrefix(head, []byte{0xEF, 0xBB, 0xBF}):
	case bytes.HasPrefix(head, []byte{0xFF, 0xFE}):
		d.order, d.odd = binary.LittleEndian, head[2:]
	case bytes.HasPrefix(head, []byte{0xFE, 0xFF}):
		d.order, d.odd = binary.BigEndian, head[2:]
	default:
		d.head = head
	}
	return nil
}

// convert reads a chunk of UTF-16.
func (d *decoder) convert() {
	if d.chunk == nil {
		d.chunk = make([]byte, wideChunk)
	}
	n, err := readFull(d.from, d.chunk)
	if err != nil {
		d.endErr = err
	}
	data := append(d.odd, d.chunk[:n]...)
	d.wide = d.wide[:0]
	for len(data) >= 2 {
		r := rune(d.order.Uint16(data))
		size := 2
		if utf16.IsSurrogate(r) {
			if len(data) < 4 && r < 0xDC00 && d.endErr == nil {
				break
			}
			low := rune(0)
			if len(data) >= 4 {
				low = rune(d.order.Uint16(data[2:]))
			}
			if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
				size = 4
			}
		}
		d.wide = utf8.AppendRune(d.wide, r)
		data = data[size:]
	}
	if d.endErr != nil && len(data) > 0 {
		d.wide = utf8.AppendRune(d.wide, utf8.RuneError)
		data = nil
	}
	d.odd = bytes.Clone(data)
}

// readFull reads until p is full, as one read of a regular file does. Its error
// is io.EOF only when nothing was read.
func readFull(from io.Reader, p []byte) (int, error) {
	n := 0
	for n < len(p) {
		k, err := from.Read(p[n:])
		n += k
		if errors.Is(err, io.EOF) && n > 0 {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func eofIsNil(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
