package run

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// displayName is a file name or path as results show it: as it is where it is
// plain text, else quoted with escapes. A name can hold line breaks, terminal
// controls and bytes that are no text at all, and must not be able to look like
// another line of the answer. A name that begins with a quote is quoted too, so
// that the two forms cannot be confused, and one with a space at an end, which would
// stand at another depth of a tree.
func displayName(name string) string {
	if !utf8.ValidString(name) || strings.HasPrefix(name, `"`) || strings.Trim(name, " ") != name || strings.ContainsFunc(name, unprintable) {
		return strconv.Quote(name)
	}
	return name
}

// unprintable are control characters, and those that are invisible or change how
// the text around them is shown.
func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// cutLine is one line of a file as results show it: valid UTF-8, without its
// line ending, at most maxRunes characters; cut reports whether there was more.
func cutLine(line []byte, maxRunes int) (shown string, cut bool) {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	end, runes := 0, 0
	for end < len(line) && runes < maxRunes {
		_, size := utf8.DecodeRune(line[end:])
		end += size
		runes++
	}
	return strings.ToValidUTF8(string(line[:end]), "\uFFFD"), end < len(line)
}
