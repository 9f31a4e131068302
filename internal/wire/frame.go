package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	lengthSize = 4
	smallFrame = 4 << 10
	// FrameTime is how long the rest of a frame may take once it has begun, and
	// how long a peer may let a frame to it lie.
	FrameTime = 10 * time.Second
)

// ErrFrame: the peer's framing cannot be followed any more.
var ErrFrame = errors.New("malformed frame")

// Reader reads frames of at most max bytes from a connection. It holds a
// small buffer while the connection is quiet, so that thousands of idle
// connections cost little, and a large one while there is much to read.
type Reader struct {
	c    net.Conn
	max  int
	buf  []byte
	r, w int // buf[r:w] has been read and not yet taken
	// calm counts small frames since the last large one.
	calm int
	late bool // a read deadline is set
}

// large holds buffers of the largest frame from an agent.
var large = sync.Pool{New: func() any { b := make([]byte, lengthSize+MaxUp); return &b }}

// NewReader reads frames of at most maximum bytes from c.
func NewReader(c net.Conn, maximum int) *Reader {
	return &Reader{c: c, max: maximum, buf: make([]byte, smallFrame)}
}

// Follow goes on with what comes after the last frame: from c, in frames of at most maximum
// bytes.
func (f *Reader) Follow(c net.Conn, maximum int) { f.c, f.max = c, maximum }

// Next gives the next frame without its length. It is good until the next call.
// An error other than one that wraps ErrFrame is the connection's; io.EOF is a
// clean end.
func (f *Reader) Next() ([]byte, error) {
	if err := f.fill(lengthSize); err != nil {
		return nil, err
	}
	n := uint64(binary.BigEndian.Uint32(f.buf[f.r:]))
	if n == 0 || n > uint64(f.max) {
		return nil, fmt.Errorf("%w: length %d, allowed are 1 to %d", ErrFrame, n, f.max)
	}
	total := lengthSize + int(n)
	f.resize(total)
	if err := f.fill(total); err != nil {
		return nil, err
	}
	if f.late {
		f.late = false
		if err := f.c.SetReadDeadline(time.Time{}); err != nil {
			return nil, err
		}
	}
	frame := f.buf[f.r+lengthSize : f.r+total]
	f.r += total
	return frame, nil
}

// fill reads until n bytes are there. Waiting for the first byte of a frame has
// no bound; once there is one, the rest must follow within FrameTime.
func (f *Reader) fill(n int) error {
	if f.r == f.w {
		f.r, f.w = 0, 0
	}
	if f.r+n > len(f.buf) {
		f.w = copy(f.buf, f.buf[f.r:f.w])
		f.r = 0
	}
	for f.w-f.r < n {
		if f.w > f.r && !f.late {
			f.late = true
			if err := f.c.SetReadDeadline(time.Now().Add(FrameTime)); err != nil {
				return err
			}
		}
		m, err := f.c.Read(f.buf[f.w:])
		f.w += m
		if err != nil && f.w-f.r < n {
			if f.w > f.r {
				return fmt.Errorf("%w: ended after %d bytes: %w", ErrFrame, f.w-f.r, noEOF(err))
			}
			return err
		}
	}
	return nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// resize takes a larger buffer when a frame of total bytes needs it, and gives
// it back after a number of small frames.
func (f *Reader) resize(total int) {
	switch {
	case total > len(f.buf):
		f.swap(f.bufferFor(total))
		f.calm = 0
	case total > smallFrame:
		f.calm = 0
	case len(f.buf) > smallFrame:
		f.calm++
		if f.calm > 16 && f.w-f.r <= smallFrame {
			f.swap(make([]byte, smallFrame))
		}
	}
}

func (f *Reader) bufferFor(total int) []byte {
	if total <= lengthSize+MaxUp {
		return *large.Get().(*[]byte)
	}
	return make([]byte, total)
}

func (f *Reader) swap(b []byte) {
	n := copy(b, f.buf[f.r:f.w])
	f.Release()
	f.buf, f.r, f.w = b, 0, n
}

// More reports whether something has been read that Next has not given yet.
func (f *Reader) More() bool { return f.r < f.w }

// Release gives the buffer back; the reader must not be used afterwards.
func (f *Reader) Release() {
	if len(f.buf) == lengthSize+MaxUp {
		b := f.buf
		large.Put(&b)
	}
	f.buf = nil
}

// Frame is one whole frame.
func Frame(h Head, body []byte) []byte {
	b := appendHead(make([]byte, lengthSize, lengthSize+32+len(body)), h)
	binary.BigEndian.PutUint32(b, uint32(len(b)-lengthSize+len(body)))
	return append(b, body...)
}
