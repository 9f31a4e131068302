// Package difftest applies unified diffs in tests, so strictly that nothing in
// them can be false.
package difftest

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var hunkHead = regexp.MustCompile(`^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@$`)

// Apply applies a unified diff as strictly as one can: every line and every number
// of it must be true.
func Apply(old, diff string) (string, error) {
	text := strings.SplitAfter(old, "\n") // the last one has no newline and may be empty
	var out []string
	at := 0 // lines of text that are done
	lines := strings.SplitAfter(diff, "\n")
	if lines[len(lines)-1] != "" {
		return "", errors.New("the diff ends without a newline")
	}
	lines = lines[:len(lines)-1]
	if len(lines) < 2 || !strings.HasPrefix(lines[0], "--- ") || !strings.HasPrefix(lines[1], "+++ ") {
		return "", errors.New("no head")
	}
	lines = lines[2:]
	for len(lines) > 0 {
		m := hunkHead.FindStringSubmatch(strings.TrimSuffix(lines[0], "\n"))
		if m == nil {
			return "", fmt.Errorf("%q is no head of a hunk", lines[0])
		}
		lines = lines[1:]
		from, removed := span(m[1], m[2])
		to, added := span(m[3], m[4])
		if from < at {
			return "", fmt.Errorf("hunk at line %d of the old text; %d are done", from+1, at)
		}
		if from > len(text) {
			return "", fmt.Errorf("hunk at line %d; the old text has %d", from+1, len(text))
		}
		out = append(out, text[at:from]...)
		at = from
		if to != len(out) {
			return "", fmt.Errorf("hunk says line %d of the new text; it is %d", to+1, len(out)+1)
		}
		changes := false
		for removed > 0 || added > 0 {
			if len(lines) == 0 {
				return "", fmt.Errorf("hunk ends %d and %d lines early", removed, added)
			}
			kind, line := lines[0][0], lines[0][1:]
			lines = lines[1:]
			if len(lines) > 0 && lines[0] == "\\ No newline at end of file\n" {
				line = strings.TrimSuffix(line, "\n")
				lines = lines[1:]
			}
			if kind == ' ' || kind == '-' {
				if at == len(text) || text[at] != line {
					return "", fmt.Errorf("line %d of the old text is not %q", at+1, line)
				}
				at++
				removed--
			}
			if kind == ' ' || kind == '+' {
				out = append(out, line)
				added--
			}
			changes = changes || kind != ' '
		}
		if removed < 0 || added < 0 || !changes {
			return "", errors.New("hunk with false numbers or without a change")
		}
	}
	for i, line := range out {
		if !strings.HasSuffix(line, "\n") && (i < len(out)-1 || at < len(text) && strings.Join(text[at:], "") != "") {
			return "", fmt.Errorf("line %d of the new text has no newline and is not the last", i+1)
		}
	}
	return strings.Join(append(out, text[at:]...), ""), nil
}

// span reads a range of a hunk's head as the number of lines before it and in it.
func span(first, n string) (before, count int) {
	before, _ = strconv.Atoi(first)
	if n == "" {
		return before - 1, 1
	}
	if count, _ = strconv.Atoi(n); count > 0 {
		before--
	}
	return before, count
}
