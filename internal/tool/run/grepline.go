package run

import (
	"bytes"
	"fmt"
	"strings"
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

// markMatches has ripgrep mark where matches begin and end, in bold, where they may go across
// lines: it gives all lines of such matches the column of the first one. It resets the
// style around each field too.
var markMatches = []string{
	"--color=ansi", "--colors=path:none", "--colors=line:none", "--colors=column:none", "--colors=match:none", "--colors=match:style:bold",
}

const (
	styleReset = "\x1b[0m"
	matchBegin = styleReset + "\x1b[1m"
)

// marks reports whether ripgrep marks matches, and with that styles each field.
func (g *grepSearch) marks() bool { return g.in.Multiline && g.in.OutputMode == grepContent }

// styled is a field as ripgrep writes it.
func (g *grepSearch) styled(field string) string {
	if g.marks() {
		return styleReset + field + styleReset
	}
	return field
}

// unstyled is a field without what styled puts around it.
func (g *grepSearch) unstyled(field string) string {
	if g.marks() {
		return strings.TrimSuffix(strings.TrimPrefix(field, styleReset), styleReset)
	}
	return field
}

// unmarked is a line without marks, and the column of the first part of it that matches;
// 0 where none is marked. A text that has such marks of its own has them taken away, or is
// shown in another part.
func unmarked(line []byte) (text []byte, column int) {
	before, rest, found := bytes.Cut(line, []byte(matchBegin))
	if !found {
		return line, 0
	}
	column = len(before) + 1
	text = before
	for found {
		var match []byte
		match, rest, _ = bytes.Cut(rest, []byte(styleReset))
		text = append(text, match...)
		before, rest, found = bytes.Cut(rest, []byte(matchBegin))
		text = append(text, before...)
	}
	return text, column
}
