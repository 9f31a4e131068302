package tomltext

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	Source  string // the file, the environment variable or the flag that said it
	Line    int    // in the file; 0 for the others, and for what no line stands for
	Message string // what is wrong, which key, and what to write instead
}

// String is "config.toml:12: message".
func (p Problem) String() string {
	switch {
	case p.Source == "":
		return p.Message
	case p.Line == 0:
		return p.Source + ": " + p.Message
	}
	return fmt.Sprintf("%s:%d: %s", p.Source, p.Line, p.Message)
}

// Error is all problems of one text, in the order of its lines.
type Error struct{ Problems []Problem }

// Error lists the problems, one a line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Problems gives the list behind err, or nil when err is something else (a file
// that cannot be read).
func Problems(err error) []Problem {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Problems
	}
	return nil
}

// Join sorts problems and makes an *Error of them; nil when there are none.
func Join(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return &Error{Problems: Sort(problems)}
}

// Sort puts problems into the order of their lines, each only once.
func Sort(problems []Problem) []Problem {
	slices.SortFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(problems)
}
