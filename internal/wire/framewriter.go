package wire

import (
	"encoding/binary"
	"net"
	"sync"
	"time"
)

// Writer writes frames whole, one at a time, from any goroutine.
type Writer struct {
	c       net.Conn
	timeout time.Duration // of one write; 0 = none

	mu  sync.Mutex // held during a write; guards buf
	buf []byte     // begins with the frames that wait for the next write
	// waiting are the bytes of buf that wait, at most maxWaiting of them. due is
	// when they go without another frame; nil until it is needed.
	waiting int
	due     *time.Timer
}

// NewWriter writes to c. Each write may take the timeout; 0: any time.
func NewWriter(c net.Conn, timeout time.Duration) *Writer {
	return &Writer{c: c, timeout: timeout}
}

const (
	// waitTime is how long a frame may wait for another one.
	waitTime = 20 * time.Millisecond
	// maxWaiting is how many bytes of frames may wait.
	maxWaiting = 1 << 10
)

// Write sends one frame, and before it those that wait, with one system call: h,
// then the parts of the body.
func (f *Writer) Write(h Head, body ...[]byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, p := range body {
		n += len(p)
	}
	b := f.appendLocked(h, n)
	if n <= smallFrame {
		for _, p := range body {
			b = append(b, p...)
		}
		return f.sendLocked(b)
	}
	return f.sendLocked(b, body...)
}

// WriteLater has a frame go with the next one, or after waitTime: nobody waits for
// what it does, so it need not wake the other side by itself. failed is called where
// it could not be sent then.
func (f *Writer) WriteLater(failed func(error), h Head, body []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := append(f.appendLocked(h, len(body)), body...)
	if len(b) > maxWaiting {
		return f.sendLocked(b)
	}
	first := f.waiting == 0
	f.buf, f.waiting = b, len(b)
	switch {
	case !first:
	case f.due == nil:
		f.due = time.AfterFunc(waitTime, func() {
			if err := f.flush(); err != nil {
				failed(err)
			}
		})
	default:
		f.due.Reset(waitTime)
	}
	return nil
}

// flush sends the frames that wait.
func (f *Writer) flush() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting == 0 {
		return nil
	}
	return f.sendLocked(f.buf[:f.waiting])
}

// Stop drops the frames that wait: the connection is over.
func (f *Writer) Stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = 0
	if f.due != nil {
		f.due.Stop()
	}
}

// appendLocked appends the beginning of a frame with n bytes of body to those that
// wait.
func (f *Writer) appendLocked(h Head, n int) []byte {
	at := f.waiting
	b := append(f.buf[:at], 0, 0, 0, 0)
	b = appendHead(b, h)
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-lengthSize+n))
	return b
}

// sendLocked writes b, which becomes the buffer, and what belongs behind it.
func (f *Writer) sendLocked(b []byte, more ...[]byte) error {
	f.buf = b
	if f.waiting > 0 {
		f.waiting = 0
		f.due.Stop()
	}
	if f.timeout > 0 {
		if err := f.c.SetWriteDeadline(time.Now().Add(f.timeout)); err != nil {
			return err
		}
	}
	if len(more) == 0 {
		_, err := f.c.Write(b)
		return err
	}
	parts := make(net.Buffers, 0, 1+len(more))
	parts = append(append(parts, b), more...)
	_, err := parts.WriteTo(f.c)
	return err
}
