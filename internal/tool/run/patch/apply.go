package patch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/replace"
)

// maxWork bounds the comparisons of lines that one update may take; it is a few seconds.
const maxWork = 1 << 28

// errWork means that an update takes more than maxWork.
var errWork = errors.New("it takes too many comparisons: give the hunks more context, or make several patches of it")

// MismatchError means that a file has not what a hunk says of it.
type MismatchError struct {
	Hunk, Hunks int // which, from 1, of how many
	Line        int // of the patch, from 1; 0 = not known
	// Context is a line of "@@" that was not found, "" where it is the lines themselves.
	Context string
	// Before is the line of the file, from 1, at which the lines stand above the hunk
	// before this one; 0 = nowhere.
	Before int
	End    bool // they should be the last of the file
	// Places are two lines of the file, from 1, at which the lines stand alike, and
	// nothing decides between them; 0 = it is not that.
	Places [2]int
	// Nearest are the passages of the file that resemble them most.
	Nearest []replace.Passage
}

// Error implements error.
func (e *MismatchError) Error() string {
	at := ""
	if e.Hunks > 1 {
		at = fmt.Sprintf("hunk %d of %d", e.Hunk, e.Hunks)
	} else {
		at = "the hunk"
	}
	if e.Line > 1 {
		at += fmt.Sprintf(" (line %d of the patch)", e.Line)
	}
	switch {
	case e.Places[0] > 0:
		return fmt.Sprintf("%s: its lines stand at line %d and at line %d: give more lines around the change, or a line above it behind @@ that only one of them has", at, e.Places[0], e.Places[1])
	case e.Context != "":
		return fmt.Sprintf("%s: no line reads %s, as its @@ says", at, plain.Name(plain.Cut(e.Context, 200)))
	case e.Before > 0:
		return fmt.Sprintf("%s: its lines stand at line %d, above the hunk before it: write hunks in the order of the file", at, e.Before)
	case e.End:
		return fmt.Sprintf("%s: its lines are not the last of the file, as End of File says", at)
	}
	return at + ": its lines are not in the file"
}

// edit is what a hunk makes of rows [at, at+n) of a file.
type edit struct {
	at, n int
	rows  []row
	// byLetter: the old lines were found with their endings, so that those of the new
	// ones are meant.
	byLetter bool
}

// Updated is what an update has made of a text.
type Updated struct {
	Text []byte
	// Level is the loosest that was needed to find a hunk.
	Level Level
}

// Apply gives what the hunks of f make of a text. Line endings, a byte order mark and
// whether there is a last newline stay as they are; a unified diff that fits by the letter
// may change them. The errors are *MismatchError, the cause of ctx, and others that say
// what is wrong with the patch.
func (f *File) Apply(ctx context.Context, old []byte) (Updated, error) {
	a := &applier{ctx: ctx, file: f, rows: rowsOf(string(old)), work: maxWork}
	for i := range f.Hunks {
		if err := a.hunk(i); err != nil {
			return Updated{}, err
		}
	}
	if err := a.unique(); err != nil {
		return Updated{}, err
	}
	return Updated{a.result(string(old)), a.level}, nil
}

// applier is the state of one update.
type applier struct {
	ctx   context.Context
	file  *File
	rows  []row
	seen  [levels][]string // the rows as levels see them
	next  int              // the first row that a hunk may touch
	level Level
	work  int
	edits []edit
	found []placing
}

// placing is how a hunk was placed.
type placing struct {
	h      *Hunk
	old    []Line
	levels []Level // of its contexts
	level  Level
	// before is the row of its first context, or its place: the hunk before it ends there. from
	// is the first row that it could have, hint where it was looked for first.
	before, from, hint int
}

// hunk finds the place of hunk i and notes what becomes of it. Where its lines begin with the last
// line behind its "@@" and have no place below that, the line is named twice and meant once.
func (a *applier) hunk(i int) error {
	h, level := &a.file.Hunks[i], a.level
	err := a.place(i, h)
	old, last := oldLines(h.Lines), len(h.Contexts)-1
	if _, missing := err.(*MismatchError); !missing || last < 0 || len(old) == 0 || Trimmed.of(old[0].Text) != Trimmed.of(h.Contexts[last]) { //nolint:errorlint // place gives it as it is
		return err
	}
	once := *h
	once.Contexts, a.level = h.Contexts[:last], level
	if a.place(i, &once) == nil {
		return nil
	}
	return err
}

// place is hunk for h, which hunk i is meant to be.
func (a *applier) place(i int, h *Hunk) error {
	fail := func(e MismatchError) error {
		e.Hunk, e.Hunks, e.Line = i+1, len(a.file.Hunks), h.Line
		return &e
	}
	from, p := a.next, placing{}
	for i, c := range h.Contexts {
		at, level, err := a.find([]Line{{Text: c}}, from, from, false)
		if err != nil {
			return err
		}
		if at < 0 {
			return fail(MismatchError{Context: c, Nearest: a.nearest([]Line{{Text: c}})})
		}
		if i == 0 {
			p.before = at
		}
		p.levels = append(p.levels, level)
		from, a.level = at+1, max(a.level, level)
	}
	old := oldLines(h.Lines)
	if len(old) == 0 {
		at := a.insertion(h, from)
		p.h, p.from, p.hint = h, from, at
		a.note(p, at)
		return nil
	}
	hint := from
	if h.At > 0 {
		hint = max(h.At-1, from)
	}
	at, level, err := a.find(old, from, hint, h.End)
	if err == nil && at < 0 && len(old) > 1 && old[len(old)-1].Op == Context && old[len(old)-1].Text == "" {
		// A blank line before the next mark was not meant to be there.
		trimmed := *h
		trimmed.Lines = withoutLast(h.Lines)
		if at, level, err = a.find(oldLines(trimmed.Lines), from, hint, h.End); at >= 0 {
			h, old = &trimmed, oldLines(trimmed.Lines)
		}
	}
	if err != nil {
		return err
	}
	if at < 0 {
		before, _, err := a.find(old, 0, 0, h.End)
		if err != nil {
			return err
		}
		return fail(MismatchError{Before: before + 1, End: h.End, Nearest: a.nearest(old)})
	}
	p.h, p.old, p.level, p.from, p.hint = h, old, level, from, hint
	a.note(p, at)
	return nil
}

// unique sees that the hunks, which were placed from the top on, have the same places when they
// are placed from the bottom on, at the same levels: then there are no others. Text behind "@@",
// the end of the file and the numbers of lines decide as they do from the top.
func (a *applier) unique() error {
	limit := len(a.rows)
	var places [2]int
	where := -1
	for i := len(a.found) - 1; i >= 0; i-- {
		at, before, err := a.last(&a.found[i], a.edits[i].at, limit)
		if err != nil {
			return err
		}
		if first := a.edits[i].at; at != first {
			where, places = i, [2]int{first + 1, at + 1}
		}
		limit = before
	}
	if where < 0 {
		return nil
	}
	return &MismatchError{Hunk: where + 1, Hunks: len(a.file.Hunks), Line: a.file.Hunks[where].Line, Places: places}
}

// last gives the last place of a hunk that ends at row limit or above, and the row at which the
// hunk before it has to end. first is its place from the top, which is above that too.
func (a *applier) last(p *placing, first, limit int) (at, before int, err error) {
	end, contexts := limit-len(p.old), p.h.Contexts
	switch {
	case p.h.End, len(p.old) == 0 && len(contexts) == 0, len(p.old) == 0 && p.h.At >= 0:
		at = first
	case p.h.At > 0:
		at, err = a.near(p.old, p.level, p.from, end, p.hint, true)
	case len(p.old) == 0:
		at = end
	default:
		at, err = a.near(p.old, p.level, p.from, end, end, true)
	}
	if err != nil || len(contexts) == 0 {
		return at, at, err
	}
	if p.h.End || p.h.At >= 0 {
		return at, p.before, nil
	}
	// The last first context that has all others, and the lines, below it.
	before = at
	for i, c := range slices.Backward(contexts) {
		if before, err = a.near([]Line{{Text: c}}, p.levels[i], 0, before-1, before-1, true); err != nil {
			return at, before, err
		}
	}
	from := before + 1
	for i, c := range contexts[1:] {
		if at, err = a.near([]Line{{Text: c}}, p.levels[i+1], from, len(a.rows)-1, from, false); err != nil {
			return at, before, err
		}
		from = at + 1
	}
	if len(p.old) == 0 {
		return from, before, nil
	}
	at, err = a.near(p.old, p.level, from, end, from, false)
	return at, before, err
}

// withoutLast is lines without the last that is blank context, and none after it.
func withoutLast(lines []Line) []Line {
	last := len(lines) - 1
	for last >= 0 && lines[last].Op == Insert {
		last--
	}
	return append(append([]Line(nil), lines[:last]...), lines[last+1:]...)
}

func oldLines(lines []Line) []Line {
	var old []Line
	for _, l := range lines {
		if l.Op != Insert {
			old = append(old, l)
		}
	}
	return old
}

// insertion is where a hunk goes that has nothing but new lines: below its context, where
// a unified diff says, else at the end.
func (a *applier) insertion(h *Hunk, from int) int {
	switch {
	case h.End:
	case h.At >= 0:
		return min(max(h.At, from), len(a.rows))
	case len(h.Contexts) > 0:
		return from
	}
	return len(a.rows)
}

// find looks for lines at or below row from, the nearest to hint first; -1 = nowhere. With
// end they must be the last.
func (a *applier) find(lines []Line, from, hint int, end bool) (at int, _ Level, err error) {
	last := len(a.rows) - len(lines)
	if end {
		from, hint = max(from, last), last
	}
	for level := range levels {
		if at, err = a.near(lines, level, from, last, hint, false); at >= 0 || err != nil {
			return at, level, err
		}
	}
	return -1, Exact, nil
}

// near looks for lines from row from to row last at a level, the nearest to hint first; -1 =
// nowhere. Of two that are as near it takes the upper one, or with lower the other.
func (a *applier) near(lines []Line, level Level, from, last, hint int, lower bool) (int, error) {
	hint = min(max(hint, from), max(last, from))
	want := make([]string, len(lines))
	for i, l := range lines {
		want[i] = level.of(l.Text)
	}
	have := a.as(level)
	for away := 0; hint-away >= from || hint+away <= last; away++ {
		if a.work -= 2; a.work < 0 {
			return -1, errWork
		}
		if away&0xfff == 0 && a.ctx.Err() != nil {
			return -1, context.Cause(a.ctx)
		}
		places := [2]int{hint - away, hint + away}
		if lower {
			places[0], places[1] = places[1], places[0]
		}
		for _, at := range places {
			if at >= from && at <= last && a.stands(have, want, at) {
				return at, nil
			}
		}
	}
	return -1, nil
}

func (a *applier) stands(have, want []string, at int) bool {
	for i, w := range want {
		if a.work--; have[at+i] != w {
			return false
		}
	}
	return true
}

// as is the file as a level sees it.
func (a *applier) as(l Level) []string {
	if a.seen[l] == nil {
		a.seen[l] = make([]string, len(a.rows))
		for i, r := range a.rows {
			a.seen[l][i] = l.of(r.text)
		}
	}
	return a.seen[l]
}

// note keeps what a hunk makes of the rows at a place. Context stays as the file has it.
func (a *applier) note(p placing, at int) {
	h, n, level := p.h, len(p.old), p.level
	a.found = append(a.found, p)
	e := edit{at: at, n: n, byLetter: level == Exact && (n > 0 || h.At >= 0)}
	i := at
	for _, l := range h.Lines {
		if l.Op == Insert {
			e.rows = append(e.rows, row{text: l.Text, eol: l.EOL, open: true})
			continue
		}
		e.byLetter = e.byLetter && a.rows[i].eol == l.EOL
		if l.Op == Context {
			e.rows = append(e.rows, a.rows[i])
		}
		i++
	}
	for i := range e.rows {
		e.rows[i].open = e.rows[i].open && !e.byLetter
	}
	a.edits = append(a.edits, e)
	a.next, a.level = at+n, max(a.level, level)
}

// nearest are passages that resemble lines.
func (a *applier) nearest(lines []Line) []replace.Passage {
	var text, want strings.Builder
	for _, r := range a.rows {
		text.WriteString(r.text + "\n")
	}
	for _, l := range lines {
		want.WriteString(l.Text + "\n")
	}
	// Without a strategy nothing is found, and what is near is told.
	_, err := replace.Find(a.ctx, []byte(text.String()), replace.Query{Old: want.String(), New: want.String() + "\n"})
	missing, ok := errors.AsType[*replace.NotFoundError](err)
	if !ok {
		return nil
	}
	return missing.Nearest
}
