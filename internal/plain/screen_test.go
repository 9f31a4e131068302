package plain

import (
	"bytes"
	"strings"
	"testing"
)

// TestScreen: what a terminal would show in the end, and what only looks like a sequence.
func TestScreen(t *testing.T) {
	for _, tt := range []struct {
		name, in, want    string
		redraws, controls int64
	}{
		{"plain", "a\nb\n\nc", "a\nb\n\nc", 0, 0},
		{"CRLF", "a\r\nb\r\n", "a\r\nb\r\n", 0, 0},
		{"a carriage return at the end", "50%\r", "50%\r", 0, 0},
		{"progress", "get 1%\rget 50%\rget 100%\ndone\n", "get 100%\ndone\n", 2, 0},
		{"progress that begins with it", "\r1%\r2%\n", "2%\n", 2, 0},
		{"shorter at last", "downloading\rdone\n", "doneloading\n", 1, 0},
		{"drawn over in part", "abc\rX\n", "Xbc\n", 1, 0},
		{"drawn over in part, with CRLF", "abc\rX\r\n", "Xbc\r\n", 1, 0},
		{"drawn over with blanks", "downloading\rdone       \n", "done       \n", 1, 0},
		{"characters of several bytes", "äöü\rx→\na→c\b\bé\n", "x→ü\naéc\n", 2, 0},
		{"in colours", "\x1b[32mget\x1b[0m 1%\r\x1b[32mget\x1b[0m 50%\rG\n", "Get 50%\n", 2, 4},
		{"back and shorter", "100%\b\b\b\bok\n", "ok0%\n", 1, 0},
		{"to a column", "⠋ busy\x1b[1G⠙ busy\x1b[3Gdone\x1b[99G!\x1b[1G\x1b[0Kx\n", "x\n", 4, 5},
		{"to the left", "99%\x1b[3D100%\x1b[Dx\x1b[99Dy\n", "y00x\n", 0, 3},
		{"half a character", "ab\r\xc3\rx\xa9\n", "x\xa9b\n", 2, 0},
		{"several before the end", "a\rb\r\r\n", "b\r\n", 2, 0},
		{"colours", "\x1b[31mred\x1b[0m \x1b[1;38;5;9mbold\x1b[m\n", "red bold\n", 0, 4},
		{"erased", "busy\r\x1b[Kdone\nx\x1b[2Ky\nbusy\r\x1b[K\n", "done\ny\n\n", 3, 3},
		{"erased behind the cursor", "ab\x1b[Kc\n", "abc\n", 0, 1},
		{"a title and an address", "\x1b]0;t\a\x1b]8;;http://x\x1b\\x\x1b]8;;\x1b\\\n", "x\n", 0, 3},
		{"character sets", "\x1b(B\x1b[mx\x1b7\x1b=\n", "x\n", 0, 4},
		{"a spinner", "x |\b/\b-\b \bdone\n", "x done\n", 4, 0},
		{"overstruck", "N\bNA\bAé\bé\n", "NAé\n", 3, 0},
		{"back over the beginning", "\b\b\bx\n", "x\n", 1, 0},
		{"back and no text", "100%\b\b\b\b\n", "100%\n", 1, 0},
		{"back and erased", "100%\b\b\b\b\x1b[K\n", "\n", 1, 1},
		{"back at the beginning of a line", "kept\r\b\b\b\n", "kept\r\n", 1, 0},
		{"a sequence without an end, behind a carriage return", "abc\r\x1b[", "abc\r\x1b[", 0, 0},
		{"no sequence", "\x1b\n\x1b[31\nb\x1b", "\x1b\n\x1b[31\nb\x1b", 0, 0},
		{"a title without an end", "\x1b]0;rm -rf\nok\n", "\x1b]0;rm -rf\nok\n", 0, 0},
		{"a sequence in one", "\x1b[3\x1b[31mx\n", "\x1b[3x\n", 0, 1},
		{"8 bits", "\x9b31mx\xff\n", "\x9b31mx\xff\n", 0, 0},
		{"a very long title", "\x1b]" + strings.Repeat("x", 2*maxControl) + "\a\n", "\x1b]" + strings.Repeat("x", 2*maxControl) + "\a\n", 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for step := 1; step <= len(tt.in); step++ {
				var s Screen
				if got := drawn(&s, []byte(tt.in), step); got != tt.want || s.Redraws != tt.redraws || s.Controls != tt.controls {
					t.Fatalf("in steps of %d: %.80q, %d redraws, %d controls; want %.80q, %d, %d", step, got, s.Redraws, s.Controls, tt.want, tt.redraws, tt.controls)
				}
			}
		})
	}
}

func drawn(s *Screen, in []byte, step int) string {
	var b strings.Builder
	for len(in) > 0 {
		n := min(step, len(in))
		b.Write(s.Write(bytes.Clone(in[:n])))
		in = in[n:]
	}
	b.Write(s.Rest())
	return b.String()
}

// TestScreenHolds: what is held back of an output does not depend on its length, and none of it is lost.
func TestScreenHolds(t *testing.T) {
	for _, chunk := range []string{"x", "x\r", "x\b", "xy\b", "x\x1b[m", "\x1b]x", "\x1b", "\x1b[", " \x1b", "\x1b("} {
		var s Screen
		n := 0
		for range 64 {
			n += len(s.Write([]byte(strings.Repeat(chunk, 8<<10))))
		}
		if held := cap(s.line) + cap(s.control); held > 4*maxRedrawn {
			t.Errorf("%q: %d bytes are held", chunk, held)
		}
		if n += len(s.Rest()); chunk == "x" && n != 64*8<<10 || chunk[0] != 'x' && n != len(chunk)*64*8<<10 {
			t.Errorf("%q: %d bytes came out", chunk, n)
		}
	}
}

// FuzzScreen: the pieces in which a text comes make no difference, lines stay as many as there were, and
// a text without control characters stays as it is.
func FuzzScreen(f *testing.F) {
	for _, s := range []string{"a\rb\n", "\x1b[31mx\x1b[0m", "\x1b]0;t\a", "x\b\by", "a\r\n\r\n", "\x1bPq\x1b\\"} {
		f.Add([]byte(s), uint8(1))
	}
	f.Fuzz(func(t *testing.T, in []byte, step uint8) {
		var one, many Screen
		whole, parts := drawn(&one, in, len(in)+1), drawn(&many, in, int(step)+1)
		if whole != parts || one.Redraws != many.Redraws || one.Controls != many.Controls {
			t.Fatalf("%q: at once %q, in parts of %d %q", in, whole, step+1, parts)
		}
		if n := strings.Count(whole, "\n"); n != bytes.Count(in, []byte{'\n'}) {
			t.Fatalf("%q has other lines: %q", in, whole)
		}
		if one.Redraws+one.Controls == 0 && whole != string(in) {
			t.Fatalf("%q became %q, and nothing was counted", in, whole)
		}
	})
}

// A line that is too long to be held keeps its states apart.
func TestScreenOfLongLine(t *testing.T) {
	long := strings.Repeat("x", maxRedrawn+1)
	for _, step := range []int{1, 1000, 1 << 20} {
		var twice Screen
		if got := drawn(&twice, []byte(long+long+"\r\x1b[Kab\rX\n"), step); got != long+long+"\rXb\n" {
			t.Errorf("in steps of %d, twice as long: …%q", step, got[len(got)-20:])
		}
		var s Screen
		if got := drawn(&s, []byte(long+"\rdone\rend\nnext\rlast\n"), step); got != long+"\rende\nlast\n" {
			t.Errorf("in steps of %d: …%q", step, got[len(got)-20:])
		}
	}
}
