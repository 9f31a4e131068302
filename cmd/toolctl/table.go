package main

import (
	"io"
	"slices"
	"strings"
)

// table is aligned text. On a terminal it fits into the width of that; elsewhere
// nothing is cut. The first column, which names what a row is about, is never cut, and
// neither are short fields: a table that has no room for them shows each row as a
// paragraph of names and values.
type table struct {
	rows    [][]cell
	color   bool
	headers int // how many rows are headers: 1 or 0
	wide    int // columns of the terminal, 0 for any number

	names []string // of the columns; nil keeps each row on one line
	ids   []int    // columns of ids, which may be cut to what tells them apart
	ends  []int    // columns whose end says more than their beginning, such as paths
	wraps bool     // the last column is broken into lines and not cut

	empty string            // is said where a table has no rows: what there is none of, and what to do
	none  func(text string) // says it beside the table; nil says it in its place
}

// cell is one field. Its text is safe to show; color is the number of an SGR
// foreground colour, 0 for none.
type cell struct {
	text  string
	color int
}

// newTable begins a table. empty is what a person reads where it has no rows; a pipe gets
// that on standard error, so that programs count no line that is no row.
func (a *app) newTable(empty string, headers ...string) *table {
	t := a.pairs()
	t.names, t.empty, t.wraps = headers, empty, false
	if !a.outTTY {
		t.none = func(text string) { a.say("%s", text) }
	}
	if !a.noHeaders {
		t.headers = 1
		t.row(headers...)
	}
	return t
}

// pairs is a table of names and values, without headers.
func (a *app) pairs() *table { return &table{color: a.color(), wide: a.width(), wraps: true} }

// width is how many columns standard output has, 0 for any number.
func (a *app) width() int { return a.columnsIf(a.outTTY) }

// errWidth is how many columns standard error has, likewise.
func (a *app) errWidth() int { return a.columnsIf(a.errTTY) }

func (a *app) columnsIf(tty bool) int {
	if !tty || a.columns == nil {
		return 0
	}
	return a.columns()
}

// color reports whether standard output may have colours.
func (a *app) color() bool { return colors(a.outTTY, a.getenv) }

// row adds a line; its texts may be hostile.
func (t *table) row(texts ...string) {
	cells := make([]cell, len(texts))
	for i, s := range texts {
		cells[i].text = line(s)
	}
	t.rows = append(t.rows, cells)
}

// add gives the last row one more field; its text may be hostile.
func (t *table) add(text string) {
	last := len(t.rows) - 1
	t.rows[last] = append(t.rows[last], cell{text: line(text)})
}

// column adds one more column, before there are rows.
func (t *table) column(header string) {
	t.names = append(slices.Clone(t.names), header)
	if t.headers > 0 {
		t.add(header)
	}
}

// paint colours a field of the last row.
func (t *table) paint(column, color int) { t.rows[len(t.rows)-1][column].color = color }

// write prints all rows; the last column is not padded.
func (t *table) write(w io.Writer) {
	if t.empty != "" && len(t.rows) == t.headers {
		if t.none == nil {
			_, _ = io.WriteString(w, fold(t.empty, t.wide, "  ")+"\n")
			return
		}
		t.none(t.empty)
	}
	widths, fits := t.fit()
	if !fits && t.names != nil {
		t.paragraphs().write(w)
		return
	}
	var b strings.Builder
	for n, row := range t.rows {
		before := 0
		for i, c := range row {
			text := t.shown(n < t.headers, i, c.text, widths[i])
			if i == len(row)-1 {
				t.writeLast(&b, c, text, before, widths[i])
				break
			}
			b.WriteString(painted(text, c.color, t.color))
			b.WriteString(strings.Repeat(" ", widths[i]-width(text)+gap))
			before += widths[i] + gap
		}
		b.WriteByte('\n')
	}
	_, _ = io.WriteString(w, b.String())
}

// gap is what stands between two columns.
const gap = 2

// shown is the text of a field in so many columns.
func (t *table) shown(header bool, column int, text string, wide int) string {
	switch {
	case text == "":
		return "-"
	case t.wraps && column == len(t.rows[0])-1 || width(text) <= wide:
		return text
	case !header && slices.Contains(t.ends, column):
		return "…" + tail(text, wide-1)
	}
	return clipped(text, wide)
}

// writeLast writes the last field of a row, on several lines where it wraps.
func (t *table) writeLast(b *strings.Builder, c cell, text string, before, wide int) {
	for t.wraps && width(text) > wide {
		n := max(fitting(text, wide), 1) // two columns have room for any character
		if space := strings.LastIndexByte(text[:n], ' '); space > 0 {
			n = space + 1
		}
		b.WriteString(painted(strings.TrimRight(text[:n], " "), c.color, t.color))
		b.WriteString("\n" + strings.Repeat(" ", before))
		text = text[n:]
	}
	b.WriteString(painted(text, c.color, t.color))
}

// paragraphs is the table with a line for each field, and an empty one between two rows.
func (t *table) paragraphs() *table {
	p := &table{color: t.color, wide: t.wide, wraps: true}
	for n, row := range t.rows[t.headers:] {
		if n > 0 {
			p.rows = append(p.rows, nil)
		}
		for i, c := range row {
			p.rows = append(p.rows, []cell{{text: t.names[i]}, c})
		}
	}
	return p
}

// Columns are made narrower down to these, so that words and figures stay whole.
const (
	narrowest     = 12
	narrowestWrap = 24
)

// fit gives each column its width: ids are cut to what tells them apart, then the widest
// columns give way. It reports whether all fit so into the terminal; if not, the widths
// are what is left to do in lines.
func (t *table) fit() (widths []int, fits bool) {
	widths = t.widths()
	if t.wide == 0 || total(widths) <= t.wide {
		return widths, true
	}
	for _, i := range t.ids {
		t.shorten(i)
	}
	widths = t.widths()
	least := make([]int, len(widths))
	for i := range least {
		least[i] = min(widths[i], narrowest)
		if t.wraps && i == len(widths)-1 {
			least[i] = min(widths[i], narrowestWrap)
		}
		if i == 0 || slices.Contains(t.ids, i) {
			least[i] = widths[i]
		}
	}
	if narrow(widths, least, t.wide) {
		return widths, true
	}
	for i := range least {
		if i > 0 && !slices.Contains(t.ids, i) {
			least[i] = 0
		}
	}
	if !narrow(widths, least, t.wide) {
		narrow(widths, make([]int, len(widths)), t.wide)
	}
	return widths, false
}

// narrow takes from the widest column that is above its least width, as often as needed,
// and reports whether that was enough. No column gets narrower than a wide character.
func narrow(widths, least []int, wide int) bool {
	for total(widths) > wide {
		widest := -1
		for i, w := range widths {
			if w > max(least[i], 2) && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return false
		}
		widths[widest]--
	}
	return true
}

func total(widths []int) int {
	n := gap * (len(widths) - 1)
	for _, w := range widths {
		n += w
	}
	return n
}

// shorten cuts the ids of a column.
func (t *table) shorten(column int) {
	var ids []string
	for _, row := range t.rows[t.headers:] {
		ids = append(ids, row[column].text)
	}
	for i, short := range shortIDs(ids) {
		t.rows[t.headers+i][column].text = short
	}
}

// flow is aligned text whose lines are written as they come: a field is as wide as the widest so far of its column. None
// is cut; a terminal has lines folded.
type flow struct {
	wide   int   // as that of a table
	widths []int // of the columns, from the first line on
}

func newFlow(a *app, least ...int) *flow { return &flow{wide: a.width(), widths: least} }

// write prints a line: fields, which are aligned, and what comes behind them. Their texts may be hostile.
func (f *flow) write(w io.Writer, fields []string, behind ...string) {
	parts := make([]string, 0, len(fields)+len(behind))
	for i, text := range fields {
		text = line(text)
		f.widths[i] = max(f.widths[i], width(text))
		parts = append(parts, text+strings.Repeat(" ", f.widths[i]-width(text)))
	}
	for _, b := range behind {
		parts = append(parts, line(b))
	}
	f.say(w, strings.Join(parts, strings.Repeat(" ", gap)))
}

// say prints a line of words alone, which are safe to show.
func (f *flow) say(w io.Writer, text string) {
	_, _ = io.WriteString(w, fold(text, f.wide, "    ")+"\n")
}

// widths are those of the widest fields.
func (t *table) widths() []int {
	var widths []int
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 1)
			}
			widths[i] = max(widths[i], width(c.text))
		}
	}
	return widths
}
