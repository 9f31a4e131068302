package run

import (
	"strings"
	"unicode/utf8"
)

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
