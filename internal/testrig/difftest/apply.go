// Package difftest applies unified diffs in tests, so strictly that nothing in
// them can be false.
package difftest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"
)

// Apply applies a unified diff as strictly as one can: every line and every number
// of it must be true.
func Apply(old, diff string) (string, error) {
	head := strings.SplitAfterN(diff, "\n", 3)
	if len(head) < 3 || !strings.HasPrefix(head[0], "--- ") || !strings.HasPrefix(head[1], "+++ ") {
		return "", errors.New("no head")
	}
	if head[2] == "" {
		return old, nil // no hunks; the reader knows no such diff
	}
	files, _, err := gitdiff.Parse(strings.NewReader(diff))
	if err != nil {
		return "", err
	}
	if len(files) != 1 {
		return "", fmt.Errorf("it is of %d files", len(files))
	}
	// What was read is written again: the reader passes over what it does not know.
	var again, out strings.Builder
	grown := int64(0) // by how many lines the new text is ahead
	to := gitdiff.NewTextApplier(&out, strings.NewReader(old))
	for _, f := range files[0].TextFragments {
		if at := before(f.OldPosition, f.OldLines) + grown; before(f.NewPosition, f.NewLines) != at {
			return "", fmt.Errorf("%s: it is line %d of the new text", f.Header(), at+1)
		}
		if err := to.ApplyFragment(f); err != nil {
			return "", err
		}
		grown += f.LinesAdded - f.LinesDeleted
		again.WriteString(strings.ReplaceAll(f.Header(), ",1 ", " ") + "\n")
		for _, l := range f.Lines {
			again.WriteString(l.String())
			if l.NoEOL() {
				again.WriteString("\n\\ No newline at end of file\n")
			}
		}
	}
	if again.String() != strings.ReplaceAll(head[2], ",1 ", " ") {
		return "", fmt.Errorf("it is read as\n%s", &again)
	}
	if err := to.Close(); err != nil {
		return "", err
	}
	if lines(out.String()) != lines(old)+grown {
		return "", errors.New("a line that is not the last has no newline")
	}
	return out.String(), nil
}

func lines(text string) (n int64) {
	for range strings.Lines(text) {
		n++
	}
	return n
}

// before is how many lines are before a hunk: of none it names the one before.
func before(position, lines int64) int64 {
	if lines == 0 {
		return position
	}
	return position - 1
}
