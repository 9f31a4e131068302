// Package plain makes hostile text short and visible, and suggests the name that a
// misspelt one may mean. The agent links it.
package plain

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text makes s a text that every model and client can take: what is not UTF-8 and
// the NUL character, which some of them refuse or drop, are replaced by signs for them.
func Text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\u2400")
}

// Count is a number with the word for what is counted.
func Count[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Enumerate is "a, b and c".
func Enumerate(all []string) string {
	last := len(all) - 1
	if last < 1 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:last], ", ") + " and " + all[last]
}

// EnumerateNames is Enumerate of names that are shown as Name has them.
func EnumerateNames(names []string) string {
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = Name(n)
	}
	return Enumerate(all)
}

// Cut is the Text of the beginning of s, at most that many bytes of it, with "…" where
// that is not all.
func Cut(s string, most int) string {
	if len(s) <= most {
		return Text(s)
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return Text(s[:most]) + "…"
}

// Line is s on one line: a control or format character, which could move a cursor or turn
// the direction of a text, is U+FFFD in it.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// Name is the name of a file as it is shown to people and to models: as it is, where
// nothing in it could be taken for something else, and as a Go string otherwise. A line
// break would make two names of one, a control sequence would act on a terminal, and a
// direction mark or a space of no width would make it look like another name. A quote at
// the start would look like such a string, and a space at an end is not seen. A Go string
// shows all of these and what is not UTF-8, and can be read back.
func Name(s string) string {
	if !utf8.ValidString(s) || strings.HasPrefix(s, `"`) || strings.Trim(s, " ") != s || strings.ContainsFunc(s, Unprintable) {
		return strconv.Quote(s)
	}
	return s
}

// Unquote is the name that Name or git shows so: of a quoted one what it stands for, and any other as it
// is.
func Unquote(shown string) string {
	if !strings.HasPrefix(shown, `"`) {
		return shown
	}
	name, err := strconv.Unquote(shown) // git's escapes are Go's too
	if err != nil {
		return shown
	}
	return name
}

// Unquoted are the names that some are shown for.
func Unquoted(shown []string) []string {
	var names []string
	for _, s := range shown {
		names = append(names, Unquote(s))
	}
	return names
}

// Unprintable reports whether r has no look of its own: it can be nothing but hidden in a
// name.
func Unprintable(r rune) bool { return !unicode.IsPrint(r) }

// Printable reports whether s is UTF-8 without control characters, as names that people
// choose have to be.
func Printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// RuneStart moves n back to where no UTF-8 sequence of b is split. Bytes that
// are not UTF-8 may be split anywhere.
func RuneStart[T ~string | ~[]byte](b T, n int) int {
	if n >= len(b) || utf8.RuneStart(b[n]) {
		return n
	}
	return n - PartialRune(b[:n])
}

// FromRune is b from the first byte that may begin a character.
func FromRune[T ~string | ~[]byte](b T) T {
	for len(b) > 0 && !utf8.RuneStart(b[0]) {
		b = b[1:]
	}
	return b
}

// PartialRune is the length of an unfinished UTF-8 sequence at the end of b.
func PartialRune[T ~string | ~[]byte](b T) int {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune([]byte(b[len(b)-i:])) {
				return i
			}
			return 0
		}
	}
	return 0
}

// Cause is the text of the innermost error: the system's own words, without a path of the
// host.
func Cause(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}
