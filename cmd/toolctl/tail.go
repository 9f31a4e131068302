package main

import (
	"bytes"
	"sync"
)

// tail keeps the last bytes that were written to it.
type tail struct {
	mu  sync.Mutex // guards buf
	buf []byte
}

const maxTail = 16 << 10

// Write never fails.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - maxTail; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

// String is what is kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.buf))
}
