package output

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func numbered(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "%d\n", i)
	}
	return b.String()
}

func TestShorten(t *testing.T) {
	giant := strings.Repeat("é", 4000) // 8,000 bytes without a line end
	tests := []struct {
		name, in, direction string
		lines, bytes        int
		head, tail          string
		leftLines           int64
	}{
		{"fits", "a\nb\n", Head, 2, 4, "a\nb\n", "", 0},
		{"fits without a last end", "a\nb", Both, 2, 3, "a\nb", "", 0},
		{"empty", "", Both, 2, 4, "", "", 0},
		{"head by lines", numbered(0, 10), Head, 3, 100, "0\n1\n2\n", "", 7},
		{"tail by lines", numbered(0, 10), Tail, 3, 100, "", "7\n8\n9\n", 7},
		{"both by lines", numbered(0, 10), Both, 4, 100, "0\n1\n", "8\n9\n", 6},
		{"odd number of lines", numbered(0, 10), Both, 3, 100, "0\n", "8\n9\n", 7},
		{"head by bytes keeps whole lines", numbered(0, 10), Head, 100, 5, "0\n1\n", "", 8},
		{"tail by bytes keeps whole lines", numbered(0, 10), Tail, 100, 5, "", "8\n9\n", 8},
		{"one giant line is cut", giant, Head, 10, 7001, giant[:7000], "", 0},
		{"one giant line is cut at its end", giant, Tail, 10, 7001, "", giant[1000:], 0},
		{"a giant line after a short one", "a\n" + giant, Head, 10, 7001, "a\n" + giant[:6998], "", 0},
		{"wrong bytes", "a\xff\xfe\n", Head, 10, 100, "a\uFFFD\n", "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := []byte(tt.in)
			c := shorten(&view{head: in, total: int64(len(in))}, 0, countLines(in), &Limits{Direction: tt.direction, MaxLines: tt.lines, MaxBytes: tt.bytes})
			if c.Head != tt.head || c.Tail != tt.tail {
				t.Errorf("got head %.40q (%d bytes), tail %.40q (%d)\nwant %.40q (%d), %.40q (%d)", c.Head, len(c.Head), c.Tail, len(c.Tail), tt.head, len(tt.head), tt.tail, len(tt.tail))
			}
			if c.Lines != tt.leftLines {
				t.Errorf("left out %d lines, want %d", c.Lines, tt.leftLines)
			}
		})
	}
}

// FuzzShorten checks what holds for every output: what is shown is UTF-8 and
// fits, and nothing is shown twice or made up.
func FuzzShorten(f *testing.F) {
	f.Add([]byte("a\nb\nc\n"), uint8(2), uint8(3), uint8(0))
	f.Add([]byte("\xff\xffabc\n\xe2\x82"), uint8(1), uint8(4), uint8(1))
	f.Add([]byte(strings.Repeat("€", 50)), uint8(9), uint8(20), uint8(2))
	f.Add([]byte("a\x00b\x00\n\x00\x00"), uint8(2), uint8(1), uint8(2))
	f.Fuzz(func(t *testing.T, in []byte, lines, size, dir uint8) {
		maxLines, maxBytes := int(lines)+2, int(size)+8
		direction := []string{Head, Tail, Both}[dir%3]
		c := shorten(&view{head: in, total: int64(len(in))}, 0, countLines(in), &Limits{Direction: direction, MaxLines: maxLines, MaxBytes: maxBytes})
		if shown := c.Head + c.Tail; !utf8.ValidString(shown) || strings.Contains(shown, "\x00") {
			t.Fatalf("not UTF-8, or NUL: %q %q", c.Head, c.Tail)
		}
		if !c.Truncated {
			if c.Tail != "" || c.Head != strings.ReplaceAll(strings.ToValidUTF8(string(in), "\uFFFD"), "\x00", "␀") {
				t.Fatalf("nothing is cut, but %q became %q %q", in, c.Head, c.Tail)
			}
			return
		}
		if n := len(c.Head) + len(c.Tail); n > maxBytes {
			t.Fatalf("%d bytes are shown, %d may be", n, maxBytes)
		}
		if n := countLines([]byte(c.Head)) + countLines([]byte(c.Tail)); n > int64(maxLines) {
			t.Fatalf("%d lines are shown, %d may be", n, maxLines)
		}
		if c.Bytes < 0 || c.Lines < 0 {
			t.Fatalf("left out %d bytes, %d lines", c.Bytes, c.Lines)
		}
		if utf8.Valid(in) && !bytes.Contains(in, []byte{0}) && (!bytes.HasPrefix(in, []byte(c.Head)) || !bytes.HasSuffix(in, []byte(c.Tail))) {
			t.Fatalf("%q was shown as %q … %q", in, c.Head, c.Tail)
		}
		if len(in) > 0 && c.Head == "" && c.Tail == "" && len(bytes.TrimRight(in, "\n")) > 0 && maxBytes >= 8 {
			t.Fatalf("nothing of %q is shown", in)
		}
	})
}
