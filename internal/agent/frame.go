package agent

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
	// frameTime is how long the rest of a frame may take once it has begun, and
	// how long a peer may let a frame to it lie.
	frameTime = 10 * time.Second
)

// errFrame: the peer's framing cannot be followed any more.
var errFrame = errors.New("malformed frame")

// frameReader reads frames of at most max bytes from a connection. It holds a
// small buffer while the connection is quiet, so that thousands of idle
// connections cost little, and a large one while there is much to read.
type frameReader struct {
	c    net.Conn
	max  int
	buf  []byte
	r, w int // buf[r:w] has been read and not yet taken
	// calm counts small frames since the last large one.
	calm int
	late bool // a read deadline is set
}

// large holds buffers of the largest frame from an agent.
var large = sync.Pool{New: func() any { b := make([]byte, lengthSize+maxUp); return &b }}

func newFrameReader(c net.Conn, maximum int) *frameReader {
	return &frameReader{c: c, max: maximum, buf: make([]byte, smallFrame)}
}

// next gives the next frame without its length. It is good until the next call.
// An error other than one that wraps errFrame is the connection's; io.EOF is a
// clean end.
func (f *frameReader) next() ([]byte, error) {
	if err := f.fill(lengthSize); err != nil {
		return nil, err
	}
	n := uint64(binary.BigEndian.Uint32(f.buf[f.r:]))
	if n == 0 || n > uint64(f.max) {
		return nil, fmt.Errorf("%w: length %d, allowed are 1 to %d", errFrame, n, f.max)
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
// no bound; once there is one, the rest must follow within frameTime.
func (f *frameReader) fill(n int) error {
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
			if err := f.c.SetReadDeadline(time.Now().Add(frameTime)); err != nil {
				return err
			}
		}
		m, err := f.c.Read(f.buf[f.w:])
		f.w += m
		if err != nil && f.w-f.r < n {
			if f.w > f.r {
				return fmt.Errorf("%w: ended after %d bytes: %w", errFrame, f.w-f.r, noEOF(err))
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
func (f *frameReader) resize(total int) {
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

func (f *frameReader) bufferFor(total int) []byte {
	if total <= lengthSize+maxUp {
		return *large.Get().(*[]byte)
	}
	return make([]byte, total)
}

func (f *frameReader) swap(b []byte) {
	n := copy(b, f.buf[f.r:f.w])
	f.release()
	f.buf, f.r, f.w = b, 0, n
}

// more reports whether something has been read that next has not given yet.
func (f *frameReader) more() bool { return f.r < f.w }

// release gives the buffer back; the reader must not be used afterwards.
func (f *frameReader) release() {
	if len(f.buf) == lengthSize+maxUp {
		b := f.buf
		large.Put(&b)
	}
	f.buf = nil
}

// frameBytes is one whole frame.
func frameBytes(h head, body []byte) []byte {
	b := appendHead(make([]byte, lengthSize, lengthSize+32+len(body)), h)
	binary.BigEndian.PutUint32(b, uint32(len(b)-lengthSize+len(body)))
	return append(b, body...)
}
