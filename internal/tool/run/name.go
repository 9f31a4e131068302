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
	end := behindRunes(line, maxRunes)
	return strings.ToValidUTF8(string(line[:end]), "\uFFFD"), end < len(line)
}

// behindRunes is how many bytes the first characters have, at most so many.
func behindRunes(line []byte, most int) (end int) {
	for runes := 0; end < len(line) && runes < most; runes++ {
		_, size := utf8.DecodeRune(line[end:])
		end += size
	}
	return end
}
