// Package replace finds the passage of a text that a quote from memory means,
// and says what the text becomes. It is pure: no files, no clock, no state.
//
// Find tries strategies from exact to tolerant. The first that finds anything
// decides, and more than one place is refused unless all are asked for: a
// tolerant strategy never competes with a stricter one.
package replace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
)

// Strategy is a way of finding; it is named in results.
type Strategy string

// The strategies, in the order in which they are tried.
const (
	// Exact: the same bytes.
	Exact Strategy = "exact"
	// LineTrimmed: the same lines but for white space around them.
	LineTrimmed Strategy = "line_trimmed"
	// BlockAnchor: a block of at least three lines whose first and last line
	// are the same and whose middle is similar.
	BlockAnchor Strategy = "block_anchor"
	// WhitespaceNormalized: every run of blanks counts as one.
	WhitespaceNormalized Strategy = "whitespace_normalized"
	// IndentationFlexible: indentation does not count; unlike with LineTrimmed
	// the first line may begin and the last may end within a line of the text.
	IndentationFlexible Strategy = "indentation_flexible"
	// EscapeNormalized: \n, \t, \" and the like count as what they stand for.
	EscapeNormalized Strategy = "escape_normalized"
	// TrimmedBoundary: white space at both ends does not count.
	TrimmedBoundary Strategy = "trimmed_boundary"
	// ContextAware: a block of the same size with the same first and last line
	// and at least half of the lines between them.
	ContextAware Strategy = "context_aware"
	// Unicode: typographic quotes, dashes and spaces count as plain ones.
	Unicode Strategy = "unicode"
	// TrailingSpace: blanks at line ends do not count (strict matching only,
	// where it stands for the strategies that also forgive them).
	TrailingSpace Strategy = "trailing_space"
	// Similar: the one block of that many lines with similar text (lenient
	// matching only).
	Similar Strategy = "similar"
)

// Matching says which strategies are tried.
type Matching string

// The matchings.
const (
	Strict  Matching = "strict"
	Default Matching = "default"
	Lenient Matching = "lenient"
)

// Strategies lists what m tries, in order.
func (m Matching) Strategies() ([]Strategy, error) {
	usual := []Strategy{
		Exact, LineTrimmed, BlockAnchor, WhitespaceNormalized, IndentationFlexible,
		EscapeNormalized, TrimmedBoundary, ContextAware, Unicode,
	}
	switch m {
	case Strict:
		return []Strategy{Exact, TrailingSpace, Unicode}, nil
	case Default, "":
		return usual, nil
	case Lenient:
		return append(usual, Similar), nil
	}
	return nil, fmt.Errorf("matching %q is not one of strict, default, lenient", m)
}

// Query is what to replace by what.
type Query struct {
	Old, New string
	// All replaces every place that the deciding strategy finds.
	All bool
	// Occurrence chooses one of the places that the deciding strategy finds, counted from
	// 1 as AmbiguousError lists them. Line chooses the one nearest to that line, from 1.
	// 0 is neither; both want All to be false.
	Occurrence, Line int
	// Expected is how many places are to be replaced; 0 where any number will do.
	Expected   int
	Strategies []Strategy
}

// Match is one change: text[Start:End] becomes New.
type Match struct {
	Start, End int
	New        string
}

// Found is the answer: which strategy decided, and the changes in order, none
// overlapping another.
type Found struct {
	Strategy Strategy
	Matches  []Match
	// Lines are the first lines of the places, from 1, for the first few of them.
	Lines []int
}

// MaxMatches bounds the places that one query replaces.
const MaxMatches = 1 << 18

// maxNew bounds the replacement texts of one query where each place has its own.
const maxNew = 32 << 20

// Size is the length of the text after the changes.
func (f *Found) Size(text []byte) int {
	n := len(text)
	for _, m := range f.Matches {
		n += len(m.New) - (m.End - m.Start)
	}
	return n
}

// Apply gives the text with the changes made.
func (f *Found) Apply(text []byte) []byte {
	out := make([]byte, 0, f.Size(text))
	done := 0
	for _, m := range f.Matches {
		out = append(out, text[done:m.Start]...)
		out = append(out, m.New...)
		done = m.End
	}
	return append(out, text[done:]...)
}

// finder is the state of one query against one text with plain line endings.
type finder struct {
	ctx      context.Context
	text     []byte
	old, new string
	oldLines []string // without a last empty one
	newline  bool     // old ends with a line break
	all      bool
	occurs   int // Query.Occurrence
	near     int // Query.Line
	expected int // Query.Expected
	work     int // steps that may still be spent on similarity
	made     int // bytes of replacement texts that places have for their own
	lines    *lineIndex
	skipped  []string // what was not tried, and why
}

// place is where a strategy found old, and what to put there. Its first line is
// counted only when it is needed.
type place struct {
	start, end int
	new        string
}

// maxWork bounds the comparisons of one query, in characters compared with each
// other; it is about two seconds of work.
const maxWork = 1 << 30

var (
	// errWork and errLines end a strategy, which is skipped then.
	errWork  = errors.New("it would take too long")
	errLines = errors.New("the file has too many lines")
	// ErrSameText means that old and new are equal.
	ErrSameText = errors.New("old and new text are the same")
	// ErrEmpty means that there is no text to look for.
	ErrEmpty = errors.New("the old text is empty")
	// ErrTooMany means that there are more than MaxMatches places.
	ErrTooMany = fmt.Errorf("the old text occurs more than %d times", MaxMatches)
	// ErrTooMuch means that the places need replacement texts of their own which are too
	// large in all.
	ErrTooMuch = fmt.Errorf("the replacement texts are more than %d MiB in all", maxNew>>20)
)

// Find looks for q.Old in text. Line endings of the query do not matter: the
// replacement takes those of the place where it lands, and no other byte of
// text changes. The errors are ErrSameText, ErrEmpty, *NotFoundError,
// *AmbiguousError, *OccurrenceError, *CountError, *SpanError, *NoChangeError, ErrTooMany, ErrTooMuch, and
// the cause of ctx when it ends.
func Find(ctx context.Context, text []byte, q Query) (*Found, error) {
	ends := endingsOf(text)
	f := &finder{
		ctx: ctx, text: ends.plain, all: q.All, occurs: q.Occurrence, near: q.Line, expected: q.Expected, work: maxWork,
		old: strings.ReplaceAll(q.Old, "\r\n", "\n"), new: strings.ReplaceAll(q.New, "\r\n", "\n"),
	}
	switch f.old {
	case "":
		return nil, ErrEmpty
	case f.new:
		return nil, ErrSameText
	}
	f.oldLines = strings.Split(f.old, "\n")
	if n := len(f.oldLines); n > 1 && f.oldLines[n-1] == "" {
		f.oldLines, f.newline = f.oldLines[:n-1], true
	}
	for _, s := range q.Strategies {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		f.made = 0
		places, err := f.try(s)
		if f.made > maxNew {
			return nil, ErrTooMuch
		}
		if errors.Is(err, errWork) || errors.Is(err, errLines) {
			f.skipped = append(f.skipped, fmt.Sprintf("%s (%v)", s, err))
			continue
		}
		if err != nil {
			return nil, err
		}
		if len(places) == 0 {
			continue
		}
		return f.decide(s, places, ends)
	}
	return nil, f.notFound()
}

// own gives the replacement text that make makes for one place. Once they are
// too much in all, none is made any more; Find fails then.
func (f *finder) own(make func() string) string {
	if f.made > maxNew {
		return ""
	}
	replacement := make()
	f.made += len(replacement)
	return replacement
}

// try runs one strategy. Blank text is only ever found exactly: without its
// white space nothing is left of it.
func (f *finder) try(s Strategy) ([]place, error) {
	if s != Exact && strings.TrimSpace(f.old) == "" {
		return nil, nil
	}
	switch s {
	case Exact:
		return f.exact(f.old, f.new)
	case LineTrimmed:
		return f.lineTrimmed()
	case BlockAnchor:
		return f.blockAnchor()
	case WhitespaceNormalized:
		return f.inView(blanksAsOne, true)
	case IndentationFlexible:
		return f.inView(withoutIndent, true)
	case EscapeNormalized:
		return f.escaped()
	case TrimmedBoundary:
		return f.trimmedBoundary()
	case ContextAware:
		return f.contextAware()
	case Unicode:
		return f.inView(plainPunctuation, false)
	case TrailingSpace:
		return f.inView(withoutTrailing, false)
	case Similar:
		return f.similar()
	}
	return nil, fmt.Errorf("unknown strategy %q", s)
}

// decide checks what the deciding strategy found and turns it into changes.
func (f *finder) decide(s Strategy, places []place, ends endings) (*Found, error) {
	if !f.all {
		one, err := f.choose(s, places)
		if err != nil {
			return nil, err
		}
		places = []place{one}
	}
	places = withoutOverlaps(places)
	if f.expected > 0 && len(places) != f.expected {
		return nil, &CountError{Expected: f.expected, Count: len(places), Lines: f.linesOf(places)}
	}
	for _, p := range places {
		if err := f.checkSpan(p); err != nil {
			return nil, err
		}
	}
	found := &Found{Strategy: s, Lines: f.linesOf(places)}
	same := true
	for _, p := range places {
		same = same && string(f.text[p.start:p.end]) == p.new
	}
	if same {
		return nil, &NoChangeError{Lines: found.Lines}
	}
	found.Matches = ends.restore(places)
	return found, nil
}

// exact finds old byte by byte. Where only one place may be replaced, places
// that overlap count as several.
func (f *finder) exact(old, replacement string) ([]place, error) {
	step := 1
	if f.all {
		step = len(old)
	}
	var places []place
	pattern := []byte(old)
	for at := 0; ; {
		i := bytes.Index(f.text[at:], pattern)
		if i < 0 {
			return places, nil
		}
		if err := f.oneMore(len(places)); err != nil {
			return nil, err
		}
		at += i
		places = append(places, place{start: at, end: at + len(old), new: replacement})
		at += step
	}
}

// trimmedBoundary looks for old without the white space around it; what was
// taken off old is taken off new where it has the same.
func (f *finder) trimmedBoundary() ([]place, error) {
	core := strings.TrimSpace(f.old)
	if core == f.old {
		return nil, nil
	}
	lead := f.old[:strings.Index(f.old, core)]
	tail := f.old[len(lead)+len(core):]
	replacement := strings.TrimSuffix(strings.TrimPrefix(f.new, lead), tail)
	return f.exact(core, replacement)
}

// withoutOverlaps keeps the first of places that share text.
func withoutOverlaps(places []place) []place {
	kept := places[:0]
	end := 0
	for _, p := range places {
		if len(kept) == 0 || p.start >= end {
			kept = append(kept, p)
			end = p.end
		}
	}
	return kept
}
