package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// scripted is a connection that gives its bytes in pieces.
type scripted struct {
	net.Conn
	data []byte
	step int
}

func (s *scripted) Read(p []byte) (int, error) {
	if len(s.data) == 0 {
		return 0, io.EOF
	}
	n := min(len(p), len(s.data), s.step)
	copy(p, s.data[:n])
	s.data = s.data[n:]
	return n, nil
}

func (s *scripted) SetReadDeadline(time.Time) error { return nil }

func TestFrameReader(t *testing.T) {
	var stream []byte
	var want [][]byte
	for i, n := range []int{1, 10, smallFrame, smallFrame - 4, smallFrame + 1, 100_000, 5, MaxUp, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, MaxUp - 1, 300} {
		b := bytes.Repeat([]byte{byte(i)}, n)
		want = append(want, b)
		stream = binary.BigEndian.AppendUint32(stream, uint32(n))
		stream = append(stream, b...)
	}
	for _, step := range []int{1, 3, 1000, 4096, 1 << 20} {
		f := NewReader(&scripted{data: stream, step: step}, MaxUp)
		for i, w := range want {
			got, err := f.Next()
			if err != nil || !bytes.Equal(got, w) {
				t.Fatalf("step %d frame %d: %d bytes, want %d, %v", step, i, len(got), len(w), err)
			}
		}
		if _, err := f.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("end: %v", err)
		}
		if step == 1 && len(f.buf) > 2*MaxUp {
			t.Errorf("buffer of %d bytes", len(f.buf))
		}
	}
	f := NewReader(&scripted{data: stream[:7], step: 100}, MaxUp)
	_, _ = f.Next()
	if _, err := f.Next(); !errors.Is(err, ErrFrame) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut: %v", err)
	}
	// A large buffer is given back when only small frames come.
	var calm []byte
	calm = append(calm, Frame(Head{}, make([]byte, 50_000))...)
	for range 40 {
		calm = append(calm, Frame(Head{}, nil)...)
	}
	f = NewReader(&scripted{data: calm, step: 60_000}, MaxUp)
	for range 41 {
		if _, err := f.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.buf) != smallFrame {
		t.Errorf("buffer of %d bytes after a calm time", len(f.buf))
	}
}

func FuzzFrameReader(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 1}, 1)
	f.Add(Frame(Head{Kind: KindOutput, ID: 1}, []byte("hello")), 3)
	f.Add([]byte{255, 255, 255, 255}, 100)
	f.Fuzz(func(t *testing.T, data []byte, step int) {
		if step < 1 || step > 1<<20 {
			step = 1
		}
		r := NewReader(&scripted{data: data, step: step}, MaxUp)
		total := 0
		for {
			frame, err := r.Next()
			if err != nil {
				break
			}
			total += len(frame) + lengthSize
			if len(frame) == 0 || len(frame) > MaxUp || total > len(data) {
				t.Fatalf("frame of %d bytes, %d of %d in all", len(frame), total, len(data))
			}
		}
		if cap(r.buf) > lengthSize+MaxUp {
			t.Fatalf("buffer of %d bytes", cap(r.buf))
		}
	})
}
