package session

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
		{"fits", "a\nb\n", directionHead, 2, 4, "a\nb\n", "", 0},
		{"fits without a last end", "a\nb", directionBoth, 2, 3, "a\nb", "", 0},
		{"empty", "", directionBoth, 2, 4, "", "", 0},
		{"head by lines", numbered(0, 10), directionHead, 3, 100, "0\n1\n2\n", "", 7},
		{"tail by lines", numbered(0, 10), directionTail, 3, 100, "", "7\n8\n9\n", 7},
		{"both by lines", numbered(0, 10), directionBoth, 4, 100, "0\n1\n", "8\n9\n", 6},
		{"odd number of lines", numbered(0, 10), directionBoth, 3, 100, "0\n", "8\n9\n", 7},
		{"head by bytes keeps whole lines", numbered(0, 10), directionHead, 100, 5, "0\n1\n", "", 8},
		{"tail by bytes keeps whole lines", numbered(0, 10), directionTail, 100, 5, "", "8\n9\n", 8},
		{"one giant line is cut", giant, directionHead, 10, 7001, giant[:7000], "", 0},
		{"one giant line is cut at its end", giant, directionTail, 10, 7001, "", giant[1000:], 0},
		{"a giant line after a short one", "a\n" + giant, directionHead, 10, 7001, "a\n" + giant[:6998], "", 0},
		{"wrong bytes", "a\xff\xfe\n", directionHead, 10, 100, "a\uFFFD\n", "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := []byte(tt.in)
			c := shorten(in, nil, true, int64(len(in)), countLines(in), tt.direction, tt.lines, tt.bytes)
			if c.head != tt.head || c.tail != tt.tail {
				t.Errorf("got head %.40q (%d bytes), tail %.40q (%d)\nwant %.40q (%d), %.40q (%d)", c.head, len(c.head), c.tail, len(c.tail), tt.head, len(tt.head), tt.tail, len(tt.tail))
			}
			if c.lines != tt.leftLines {
				t.Errorf("left out %d lines, want %d", c.lines, tt.leftLines)
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
		direction := []string{directionHead, directionTail, directionBoth}[dir%3]
		c := shorten(in, nil, true, int64(len(in)), countLines(in), direction, maxLines, maxBytes)
		if shown := c.head + c.tail; !utf8.ValidString(shown) || strings.Contains(shown, "\x00") {
			t.Fatalf("not UTF-8, or NUL: %q %q", c.head, c.tail)
		}
		if !c.truncated {
			if c.tail != "" || c.head != strings.ReplaceAll(strings.ToValidUTF8(string(in), "\uFFFD"), "\x00", "␀") {
				t.Fatalf("nothing is cut, but %q became %q %q", in, c.head, c.tail)
			}
			return
		}
		if n := len(c.head) + len(c.tail); n > maxBytes {
			t.Fatalf("%d bytes are shown, %d may be", n, maxBytes)
		}
		if n := countLines([]byte(c.head)) + countLines([]byte(c.tail)); n > int64(maxLines) {
			t.Fatalf("%d lines are shown, %d may be", n, maxLines)
		}
		if c.bytes < 0 || c.lines < 0 {
			t.Fatalf("left out %d bytes, %d lines", c.bytes, c.lines)
		}
		if utf8.Valid(in) && !bytes.Contains(in, []byte{0}) && (!bytes.HasPrefix(in, []byte(c.head)) || !bytes.HasSuffix(in, []byte(c.tail))) {
			t.Fatalf("%q was shown as %q … %q", in, c.head, c.tail)
		}
		if len(in) > 0 && c.head == "" && c.tail == "" && len(bytes.TrimRight(in, "\n")) > 0 && maxBytes >= 8 {
			t.Fatalf("nothing of %q is shown", in)
		}
	})
}

func TestPartialRune(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want int
	}{
		{"", 0}, {"a", 0}, {"é", 0}, {"\xc3", 1}, {"a\xe2\x82", 2}, {"\xf0\x9f\x98", 3}, {"\xff", 0}, {"\x80\x80\x80\x80", 0}, {"€", 0},
	} {
		if got := partialRune([]byte(tt.in)); got != tt.want {
			t.Errorf("partialRune(%q) = %d, want %d", tt.in, got, tt.want)
		}
	}
}
