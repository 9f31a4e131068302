package run

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// How much of a long line is shown, and where around the match.
const (
	leadRunes = 500 // characters before a match that is not near the beginning
	// farBytes before a match are more characters than a line shows, and leadBytes are
	// at least leadRunes.
	farBytes  = 4 * grepLineRunes
	leadBytes = 4*leadRunes + 48
	// lineKeep holds what is shown of a line, with what comes before.
	lineKeep = farBytes + 4*grepLineRunes + 256
)

// droppedBefore is how many bytes of a line need not be kept to show the match that
// begins at column, which counts bytes from 1; 0 = unknown.
func droppedBefore(column int) int {
	if column-1 <= farBytes {
		return 0
	}
	return column - 1 - leadBytes
}

// shownLine is a line as answers of grep show it: at most grepLineRunes characters,
// with the match among them. dropped bytes of the line come before line.
func shownLine(line []byte, dropped, column int) string {
	line = bytes.TrimSuffix(line[:min(len(line), lineKeep)], []byte{'\r'})
	at := min(max(column-1-dropped, 0), len(line))
	start := 0
	if utf8.RuneCount(line) > grepLineRunes && utf8.RuneCount(line[:at]) > grepLineRunes-leadRunes || dropped > 0 {
		start = at
		for range leadRunes {
			_, n := utf8.DecodeLastRune(line[:start])
			start -= n
		}
	}
	text, cut := cutLine(line[start:], grepLineRunes)
	switch {
	case start > 0 || dropped > 0:
		return fmt.Sprintf("… %s … (line cut; the match is at column %d)", text, column)
	case cut:
		return text + " … (line cut)"
	}
	return text
}
