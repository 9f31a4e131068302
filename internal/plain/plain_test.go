package plain

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestCut(t *testing.T) {
	for _, tt := range []struct {
		in   string
		most int
		want string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc…"},
		{"aéb", 2, "a…"},
		{"aéb", 3, "aé…"},
		{"€", 1, "…"},
		{"a\x00\xffb", 9, "a␀\uFFFDb"},
		{"\xff\xff\xff", 2, "\uFFFD…"},
		{"\x80\x80\x80", 2, "…"},
	} {
		if got := Cut(tt.in, tt.most); got != tt.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", tt.in, tt.most, got, tt.want)
		}
	}
}

// FuzzShown: whatever comes, what is shown is UTF-8 without what could move a cursor, and
// a name can be read back.
func FuzzShown(f *testing.F) {
	for _, s := range []string{"a", "a\x00b", "\xff", "\u202egpj", "\x1b[31m", " x ", `"a"`, "é\u200b"} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, s string, most int) {
		most &= 0xff
		if c := Cut(s, most); !utf8.ValidString(c) || strings.Contains(c, "\x00") || len(s) <= most && strings.HasSuffix(c, "…") != strings.HasSuffix(s, "…") {
			t.Errorf("Cut(%q, %d) = %q", s, most, c)
		}
		if l := Line(s); !utf8.ValidString(l) || strings.ContainsFunc(l, unicode.IsControl) {
			t.Errorf("Line(%q) = %q", s, l)
		}
		if n := Name(s); strings.ContainsFunc(n, Unprintable) || !utf8.ValidString(n) {
			t.Errorf("Name(%q) = %q", s, n)
		}
	})
}

func TestFromRune(t *testing.T) {
	for in, want := range map[string]string{"": "", "a": "a", "é"[1:] + "a": "a", "世"[1:]: "", "\x80\x80é": "é", "\xffa": "\xffa"} {
		if got := FromRune(in); got != want {
			t.Errorf("FromRune(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestPartialRune(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want int
	}{
		{"", 0}, {"a", 0}, {"é", 0}, {"\xc3", 1}, {"a\xe2\x82", 2}, {"\xf0\x9f\x98", 3}, {"\xff", 0}, {"\x80\x80\x80\x80", 0}, {"€", 0},
	} {
		if got := PartialRune([]byte(tt.in)); got != tt.want {
			t.Errorf("PartialRune(%q) = %d, want %d", tt.in, got, tt.want)
		}
	}
}
