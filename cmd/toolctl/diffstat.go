package main

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/toold/toold/client"
)

// statWidth is how wide a diffstat is where no terminal says it.
const statWidth = 80

// binaryKind is git's word for files without lines.
const binaryKind = "Bin"

// statRow is one path of a diffstat.
type statRow struct {
	name           string // safe to show
	added, removed int
	kind, note     string // in place of the counts, such as "Bin" and "0 -> 12 bytes"
	short          string // the note where there is little room
}

// statRows leaves out directories of which paths below tell as much.
func statRows(changes []client.Change) []statRow {
	above := make(map[string]bool)
	for i := range changes {
		for dir := rawPath(&changes[i]); dir != "."; {
			dir = path.Dir(dir)
			above[dir] = true
		}
	}
	var rows []statRow
	for i := range changes {
		c := &changes[i]
		directory := cmp.Or(c.Kind, c.OldKind) == "dir"
		if directory && c.Status != client.ChangeModified && above[rawPath(c)] {
			continue
		}
		rows = append(rows, statRowOf(c))
	}
	return rows
}

func rawPath(c *client.Change) string {
	if len(c.Bytes) > 0 {
		return string(c.Bytes)
	}
	return c.Path
}

func statRowOf(c *client.Change) statRow {
	row := statRow{name: changeName(c), added: c.Added, removed: c.Removed}
	switch {
	case c.Stale:
		row.kind, row.note = "stale", "the source has changed here too since the session began"
	case c.Unreadable != "":
		row.kind, row.note = "???", "not compared: "+line(c.Unreadable)
	case c.Kind == "other":
		row.kind, row.note = "new", "no file, directory or link: it cannot be applied"
	case c.Status == client.ChangeType:
		row.kind, row.note = line(c.Kind), "it was: "+line(c.OldKind)
	case cmp.Or(c.Kind, c.OldKind) == "dir":
		row.kind, row.note = "dir", line(string(c.Status))
	case c.Binary:
		row.kind = binaryKind
		if c.OldSize+c.Size > 0 {
			row.note = fmt.Sprintf("%d -> %d bytes", c.OldSize, c.Size)
			row.short = bytesShort(c.OldSize) + " -> " + bytesShort(c.Size)
		}
	}
	return row
}

// diffstat is `git diff --stat` of rows, in so many columns.
type diffstat struct {
	rows      []statRow
	wide      int
	color     bool
	most      int // lines that change in one path
	name, num int // columns of the names and of the counts
	graph     int // columns of the graph
}

// writeStat writes rows and the sum, which is of all changes.
func writeStat(w io.Writer, list *client.Changes, wide int, color bool) {
	s := diffstat{rows: statRows(list.Items), wide: wide, color: color}
	s.fit()
	for _, row := range s.rows {
		s.writeRow(w, row)
	}
	fmt.Fprintln(w, statSum(len(s.rows), list))
}

// statSum is the last line.
func statSum(shown int, list *client.Changes) string {
	files := shown
	if list.Next != "" {
		files = list.Files
	}
	text := " " + plural(files, "file") + " changed"
	if list.Added > 0 || list.Removed == 0 {
		text += ", " + plural(list.Added, "insertion") + "(+)"
	}
	if list.Removed > 0 || list.Added == 0 {
		text += ", " + plural(list.Removed, "deletion") + "(-)"
	}
	return text
}

// fit gives each part its columns, as git does: the graph at least three eighths, the
// names what is left.
func (s *diffstat) fit() {
	names, notes := 0, 0
	for _, row := range s.rows {
		names = max(names, width(row.name))
		if row.kind != "" {
			notes = max(notes, width(row.kind+" "+row.note), len("Bin 0 -> 0 bytes"))
			s.num = max(s.num, width(row.kind))
			continue
		}
		s.most = max(s.most, row.added+row.removed)
	}
	s.num = max(s.num, len(fmt.Sprint(s.most)))
	wide := max(s.wide, 16+6+s.num)
	s.name, s.graph = names, s.most
	if s.most+4 <= notes {
		s.graph = notes - 4
	}
	if s.name+s.num+6+s.graph <= wide {
		return
	}
	s.graph = min(s.graph, max(wide*3/8-s.num-6, 6))
	if rest := wide - s.num - 6 - s.graph; s.name > rest {
		s.name = rest
	} else {
		s.graph = wide - s.num - 6 - s.name
	}
}

func (s *diffstat) writeRow(w io.Writer, row statRow) {
	prefix, name, room := "", row.name, s.name
	if width(name) > room {
		prefix, room = "...", max(room-3, 0)
		name = tail(name, room)
		if at := strings.IndexByte(name, '/'); at >= 0 {
			name = name[at:]
		}
	}
	fmt.Fprintf(w, " %s%s%s | ", prefix, name, strings.Repeat(" ", max(room-width(name), 0)))
	if row.kind != "" {
		switch rest := max(s.wide-s.name-s.num-5, 1); {
		case width(row.note) <= rest:
		case row.kind != binaryKind:
			row.note = clipped(row.note, rest)
		case s.wide >= helpWidth: // git's own is wider than that
			row.note = clipped(row.short, rest)
		}
		old, rest, sizes := strings.Cut(row.note, " -> ")
		if size, unit, _ := strings.Cut(rest, " "); sizes && row.kind == binaryKind {
			row.note = painted(old, colorRed, s.color) + " -> " + painted(size, colorGreen, s.color) + " " + unit
		}
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%*s %s", s.num, row.kind, row.note), " "))
		return
	}
	fmt.Fprintf(w, "%*d", s.num, row.added+row.removed)
	if row.added+row.removed > 0 {
		plus, minus := s.scaled(row.added, row.removed)
		fmt.Fprintf(w, " %s%s", painted(strings.Repeat("+", plus), colorGreen, s.color && plus > 0), painted(strings.Repeat("-", minus), colorRed, s.color && minus > 0))
	}
	fmt.Fprintln(w)
}

// scaled is how many marks stand for so many lines. What is not 0 has one at least.
func (s *diffstat) scaled(added, removed int) (plus, minus int) {
	if s.graph > s.most {
		return added, removed
	}
	scale := func(n int) int {
		if n == 0 {
			return 0
		}
		return 1 + n*(s.graph-1)/s.most
	}
	all := scale(added + removed)
	if all < 2 && added > 0 && removed > 0 {
		all = 2
	}
	if added < removed {
		plus = scale(added)
		return plus, all - plus
	}
	minus = scale(removed)
	return all - minus, minus
}
