package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

var screenCases = []struct{ name, in, want string }{
	{"plain", "hello\tworld\n", "hello\tworld\n"},
	{"utf-8", "naïve 日本 👩‍👩‍👧\n", "naïve 日本 👩‍👩‍👧\n"},
	{"crlf", "a\r\nb\r\n", "a\nb\n"},
	{"overwrite", "rm -rf /\rls      \n", "rm -rf /\nls      \n"},
	{"carriage returns in a row", "a\r\r\nb", "a\n\nb"},
	{"colour", "\x1b[1;31mred\x1b[0m", "red"},
	{"true colour", "\x1b[38;2;1;2;3mx\x1b[38:5:1my", "xy"},
	{"cursor", "\x1b[2J\x1b[H", `\x1b[2J\x1b[H`},
	{"title", "\x1b]0;pwned\x07", `\x1b]0;pwned\x07`},
	{"clipboard", "\x1b]52;c;AAAA\x1b\\", `\x1b]52;c;AAAA\x1b\`},
	{"private SGR", "\x1b[>4;1m", `\x1b[>4;1m`},
	{"bare escape", "\x1b", `\x1b`},
	{"unfinished colour", "\x1b[31", `\x1b[31`},
	{"colour in an escape", "\x1b\x1b[m[31m", `\x1b[31m`},
	{"endless colour", "\x1b[" + strings.Repeat("1;", 40) + "m", `\x1b[` + strings.Repeat("1;", 40) + "m"},
	{"C1 as UTF-8", "\u009b31m", `\u009b31m`},
	{"C1 as a byte", "\x9b31m", `\x9b31m`},
	{"NUL, BEL, BS, DEL", "\x00\x07\x08\x7f", `\x00\x07\x08\x7f`},
	{"invalid UTF-8", "a\xff\xc3(\xe2\x82", `a\xff\xc3(\xe2\x82`},
	{"surrogate", "\xed\xa0\x80", `\xed\xa0\x80`},
	{"replacement character itself", "\ufffd", "\ufffd"},
	{"bidi", "a\u202eb\u2066c\u200fd\u061ce", `a\u202eb\u2066c\u200fd\u061ce`},
	{"separators", "a\u2028b\u2029", `a\u2028b\u2029`},
	{"invisible", "\ufeffa\u200bb\u2060c\u00add", `\ufeffa\u200bb\u2060c\u00add`},
	{"tags", "x\U000e0041\U000e0100", `x\U000e0041\U000e0100`},
	{"multibyte cut by a colour", "\xc3\x1b[m\xa9", `\xc3\xa9`},
}

func TestScreen(t *testing.T) {
	for _, c := range screenCases {
		if got := lines(c.in); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// Wherever the stream is cut into writes, the same text comes out.
func TestScreenSplit(t *testing.T) {
	for _, c := range screenCases {
		for cut := range len(c.in) {
			var b bytes.Buffer
			s := newScreen(&b)
			write(t, s, c.in[:cut], c.in[cut:])
			if b.String() != c.want {
				t.Errorf("%s cut at %d: got %q, want %q", c.name, cut, b.String(), c.want)
			}
		}
	}
}

func TestLine(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain", "plain"},
		{"a\nb\tc\rd", `a\nb\tc\rd`},
		{"\x1b[31m", `\x1b[31m`},
		{"\xff\u202e", `\xff\u202e`},
		{"größe", "größe"},
	} {
		if got := line(c.in); got != c.want {
			t.Errorf("line(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func FuzzScreen(f *testing.F) {
	for _, c := range screenCases {
		f.Add([]byte(c.in), 1)
	}
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		var b bytes.Buffer
		s := newScreen(&b)
		cut = max(0, min(cut, len(in)))
		write(t, s, string(in[:cut]), string(in[cut:]))
		checkSafe(t, b.Bytes(), "\n\t")
		if whole := lines(string(in)); whole != b.String() {
			t.Fatalf("cut at %d: %q, whole: %q", cut, b.String(), whole)
		}
		checkSafe(t, []byte(line(string(in))), "")
	})
}

func write(t *testing.T, s *screen, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if n, err := s.Write([]byte(p)); n != len(p) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", p, n, err)
		}
		if len(s.held) > maxSGR {
			t.Fatalf("holds %d bytes", len(s.held))
		}
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
}

// checkSafe fails where b has a character that a terminal would act on.
func checkSafe(t *testing.T, b []byte, allowed string) {
	t.Helper()
	if !utf8.Valid(b) {
		t.Fatalf("not UTF-8: %q", b)
	}
	for _, r := range string(b) {
		if acts(r) && !strings.ContainsRune(allowed, r) || r == 0x1b || r >= 0x80 && r < 0xa0 {
			t.Fatalf("%U in %q", r, b)
		}
	}
}

func BenchmarkScreen(b *testing.B) {
	text := []byte(strings.Repeat("ok  \tgithub.com/toold/toold/client\t0.012s — café\n", 1000))
	s := newScreen(new(bytes.Buffer))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		s.w.(*bytes.Buffer).Reset()
		_, _ = s.Write(text)
	}
}
