package replace

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// shownLines bounds how many line numbers an error or a Found carries.
const shownLines = 20

// NotFoundError means that no strategy found anything.
type NotFoundError struct {
	// Nearest are the passages that resemble the old text most, the best first.
	Nearest []Passage
	// Skipped names strategies that were given up, and why.
	Skipped []string
}

// Error implements error.
func (e *NotFoundError) Error() string { return "the old text was not found" }

// AmbiguousError means that the deciding strategy found several places.
type AmbiguousError struct {
	Strategy Strategy
	Count    int
	Lines    []int // of the first places
}

// Error implements error.
func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("the old text was found at %d places, beginning in lines %s", e.Count, lineList(e.Lines, e.Count))
}

// SpanError means that a strategy found a place that is so much larger than the
// old text that it is probably not what was meant.
type SpanError struct {
	Line               int
	OldLines, Lines    int
	OldLength, Length  int // characters
	tooManyLinesNotLen bool
}

// Error implements error.
func (e *SpanError) Error() string {
	if e.tooManyLinesNotLen {
		return fmt.Sprintf("what was found at line %d has %d lines, the old text only %d", e.Line, e.Lines, e.OldLines)
	}
	return fmt.Sprintf("what was found at line %d has %d characters, the old text only %d", e.Line, e.Length, e.OldLength)
}

// NoChangeError means that the place that was found reads like the new text
// already.
type NoChangeError struct {
	Lines []int
}

// Error implements error.
func (e *NoChangeError) Error() string {
	return fmt.Sprintf("the text at line %s already reads like the new text", lineList(e.Lines, len(e.Lines)))
}

// TooMuchError means that the places need replacement texts of their own which
// are too large in all.
type TooMuchError struct{}

// Error implements error.
func (e *TooMuchError) Error() string {
	return fmt.Sprintf("the replacement texts are more than %d MiB in all", maxNew>>20)
}

// TooManyError means that there are more than MaxMatches places.
type TooManyError struct{}

// Error implements error.
func (e *TooManyError) Error() string {
	return fmt.Sprintf("the old text occurs more than %d times", MaxMatches)
}

func lineList(lines []int, count int) string {
	var b strings.Builder
	for i, n := range lines {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(n))
	}
	if count > len(lines) {
		fmt.Fprintf(&b, " … (%d more)", count-len(lines))
	}
	return b.String()
}

// linesOf gives the lines in which the first places begin.
func (f *finder) linesOf(places []place) []int {
	places = places[:min(len(places), shownLines)]
	lines := make([]int, len(places))
	line, at := 1, 0
	for i, p := range places {
		line += bytes.Count(f.text[at:p.start], []byte{'\n'})
		at = p.start
		lines[i] = line
	}
	return lines
}

// checkSpan refuses a place that is out of proportion to what was asked for.
func (f *finder) checkSpan(p place) error {
	span := f.text[p.start:p.end]
	e := &SpanError{
		OldLines: len(f.oldLines), Lines: bytes.Count(bytes.TrimSuffix(span, []byte{'\n'}), []byte{'\n'}) + 1,
		OldLength: len([]rune(f.old)), Length: bytes.Count(span, nil) - 1,
	}
	e.tooManyLinesNotLen = e.Lines >= max(e.OldLines+3, 2*e.OldLines)
	tooLong := e.Lines > 1 && e.Length > max(e.OldLength+500, 4*e.OldLength)
	if !e.tooManyLinesNotLen && !tooLong {
		return nil
	}
	e.Line = bytes.Count(f.text[:p.start], []byte{'\n'}) + 1
	return e
}
