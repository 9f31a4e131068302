package replace

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toold/toold/internal/plain"
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
	return fmt.Sprintf("the old text was found at %s, beginning in lines %s", plain.Count(e.Count, "place", "places"), lineList(e.Lines, e.Count))
}

// OccurrenceError means that the place that was asked for is none of those found.
type OccurrenceError struct {
	Occurrence, Line int // as asked for; one of them is 0
	Count            int
	Lines            []int // of the first places
}

// Error implements error.
func (e *OccurrenceError) Error() string {
	lines := lineList(e.Lines, e.Count)
	switch {
	case e.Line > 0:
		return fmt.Sprintf("two places are equally near to line %d; they begin in lines %s", e.Line, lines)
	case e.Count == 1:
		return fmt.Sprintf("occurrence %d was asked for, and there is one, in line %s", e.Occurrence, lines)
	}
	return fmt.Sprintf("occurrence %d was asked for, and there are %d, beginning in lines %s", e.Occurrence, e.Count, lines)
}

// CountError means that there are not as many places as are to be replaced.
type CountError struct {
	Expected, Count int
	Lines           []int // of the first places
}

// Error implements error.
func (e *CountError) Error() string {
	expected := plain.Count(e.Expected, "place was", "places were")
	if e.Count == 1 {
		return fmt.Sprintf("%s expected, and the old text was found at one, in line %s", expected, lineList(e.Lines, e.Count))
	}
	return fmt.Sprintf("%s expected, and the old text was found at %d, beginning in lines %s", expected, e.Count, lineList(e.Lines, e.Count))
}

// SpanError means that a strategy found a place that is so much larger than the
// old text that it is probably not what was meant. It says how much.
type SpanError struct{ msg string }

// Error implements error.
func (e *SpanError) Error() string { return e.msg }

// NoChangeError means that the place that was found reads like the new text
// already.
type NoChangeError struct {
	Lines []int
}

// Error implements error.
func (e *NoChangeError) Error() string {
	return fmt.Sprintf("the text at line %s already reads like the new text", lineList(e.Lines, len(e.Lines)))
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
	had, has, what := len(f.oldLines), bytes.Count(bytes.TrimSuffix(span, []byte{'\n'}), []byte{'\n'})+1, "lines"
	if has < max(had+3, 2*had) {
		lines := has
		had, has, what = utf8.RuneCountInString(f.old), utf8.RuneCount(span), "characters"
		if lines == 1 || has <= max(had+500, 4*had) {
			return nil
		}
	}
	line := bytes.Count(f.text[:p.start], []byte{'\n'}) + 1
	return &SpanError{fmt.Sprintf("what was found at line %d has %d %s, the old text only %d", line, has, what, had)}
}
