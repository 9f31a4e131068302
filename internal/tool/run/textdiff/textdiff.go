// Package textdiff writes unified diffs of texts whose differences are known,
// in bounded time and space: only the surroundings of the changes are compared,
// and a diff that is too long is cut and says so.
package textdiff

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/toold/toold/internal/plain"
)

// Change says that Old[OldStart:OldEnd] became New[NewStart:NewEnd]. Between
// changes both texts are the same.
type Change struct{ OldStart, OldEnd, NewStart, NewEnd int }

// Stat counts lines.
type Stat struct{ Added, Removed int }

// String is "2 lines added, 1 removed".
func (s Stat) String() string {
	return fmt.Sprintf("%s added, %d removed", plain.Count(s.Added, "line", "lines"), s.Removed)
}

const (
	context = 3
	// maxCompared is the size, in bytes of both sides, up to which a changed
	// region is compared line by line; a larger one is shown as removed and
	// added whole.
	maxCompared = 256 << 10
	maxLines    = 4000
)

// Between finds the one region in which two texts differ.
func Between(old, new []byte) []Change {
	head, n := 0, min(len(old), len(new))
	for head < n && old[head] == new[head] {
		head++
	}
	tail := 0
	for tail < n-head && old[len(old)-1-tail] == new[len(new)-1-tail] {
		tail++
	}
	if head == len(old) && head == len(new) {
		return nil
	}
	return []Change{{head, len(old) - tail, head, len(new) - tail}}
}

// Unified is the diff of two texts under one name, at most about limit bytes. It
// is valid UTF-8 whatever the texts are.
func Unified(name string, old, new []byte, changes []Change, limit int) (string, Stat) {
	if len(changes) == 0 {
		return "", Stat{}
	}
	d := &differ{old: old, new: new}
	fmt.Fprintf(&d.out, "--- %s\n+++ %s\n", name, name)
	d.limit = max(limit, d.out.Len())
	for len(changes) > 0 {
		w, n := d.region(changes)
		d.window(w)
		changes = changes[n:]
	}
	if d.cut {
		fmt.Fprintf(&d.out, "… diff cut here: in all %s\n", d.stat)
	}
	return strings.ToValidUTF8(d.out.String(), "\uFFFD"), d.stat
}

type differ struct {
	old, new []byte
	limit    int
	out      bytes.Buffer
	stat     Stat // of the hunks so far: by it the new text's lines are behind the old one's
	cut      bool
	oldAt    int // offset up to which lines have been counted
	oldLine  int // lines before it
}

// region is the first change, widened to whole lines of both texts, with the n-1
// that follow it in its last line or within the lines that are shown around it. What
// lies between changes is the same in both texts, so a line that begins or ends there
// does so in both.
func (d *differ) region(changes []Change) (w Change, n int) {
	w = changes[0]
	back := w.OldStart - (bytes.LastIndexByte(d.old[:w.OldStart], '\n') + 1)
	w.OldStart -= back
	w.NewStart -= back
	for n = 1; ; n++ {
		next := len(d.old)
		if n < len(changes) {
			next = changes[n].OldStart
		}
		same := d.old[w.OldEnd:next]
		whole := atLineStart(d.old, w.OldEnd) && atLineStart(d.new, w.NewEnd)
		if !whole {
			ahead := len(same)
			if i := bytes.IndexByte(same, '\n'); i >= 0 {
				ahead, whole = i+1, true
			}
			w.OldEnd += ahead
			w.NewEnd += ahead
			same = same[ahead:]
		}
		if n == len(changes) || whole && bytes.Count(same, []byte{'\n'}) > 2*context {
			return w, n
		}
		w.OldEnd, w.NewEnd = changes[n].OldEnd, changes[n].NewEnd
	}
}

func atLineStart(text []byte, offset int) bool {
	return offset == 0 || text[offset-1] == '\n'
}

// forward is the offset n lines behind offset in the old text.
func (d *differ) forward(offset, n int) int {
	for ; n > 0; n-- {
		i := bytes.IndexByte(d.old[offset:], '\n')
		if i < 0 {
			return len(d.old)
		}
		offset += i + 1
	}
	return offset
}

// backward is the offset n lines before offset in the old text.
func (d *differ) backward(offset, n int) int {
	for ; n > 0 && offset > 0; n-- {
		offset = bytes.LastIndexByte(d.old[:offset-1], '\n') + 1
	}
	return offset
}

// window writes the hunks of one region of whole lines.
func (d *differ) window(w Change) {
	removed, added := d.old[w.OldStart:w.OldEnd], d.new[w.NewStart:w.NewEnd]
	stat := Stat{lines(added), lines(removed)}
	if !d.cut {
		from, to := d.backward(w.OldStart, context), d.forward(w.OldEnd, context)
		d.oldLine += bytes.Count(d.old[d.oldAt:from], []byte{'\n'})
		d.oldAt = from
		stat = d.hunks(d.old[from:w.OldStart], removed, added, d.old[w.OldEnd:to], stat)
	}
	d.stat.Removed += stat.Removed
	d.stat.Added += stat.Added
	if d.out.Len() > d.limit && !d.cut {
		d.out.Truncate(d.limit)
		d.out.WriteByte('\n')
		d.cut = true
	}
}

// hunks writes what became of removed between lines that stay, and counts it. all is how
// many lines both sides have, which are only listed where they are few: a list takes many
// times the room of short lines.
func (d *differ) hunks(before, removed, added, after []byte, all Stat) Stat {
	behind := d.oldLine + d.stat.Added - d.stat.Removed
	size := len(removed) + len(added) + 2*(len(before)+len(after))
	if size <= maxCompared && all.Added+all.Removed <= maxLines {
		// Only the region itself is compared: among equal lines a change must not
		// move away from it, into lines that are shown around it.
		diffs, n := compare(splitLines(removed), splitLines(added)), lines(before)
		for i := range diffs {
			v := &diffs[i]
			v.Start, v.End, v.ReplStart, v.ReplEnd = v.Start+n, v.End+n, v.ReplStart+n, v.ReplEnd+n
		}
		writeHunks(&d.out, splitLines(slices.Concat(before, removed, after)), splitLines(slices.Concat(before, added, after)), diffs, d.oldLine, behind)
		return count(diffs)
	}
	around := lines(before) + lines(after)
	writeHead(&d.out, d.oldLine+1, around+all.Removed, behind+1, around+all.Added)
	d.writeText(' ', before)
	d.writeText('-', removed)
	d.writeText('+', added)
	d.writeText(' ', after)
	return all
}

// writeText is writeLine for all lines of a text, as far as there is room for them. Of a
// line that is too long no more is needed than to see that.
func (d *differ) writeText(mark byte, text []byte) {
	for line := range bytes.Lines(text) {
		if d.out.Len() > d.limit {
			return
		}
		writeLine(&d.out, mark, string(line[:min(len(line), d.limit)]))
	}
}

// span is a range of a hunk's head: one of no lines names the line before it.
func span(first, n int) string {
	switch n {
	case 0:
		return fmt.Sprintf("%d,0", first-1)
	case 1:
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d,%d", first, n)
}

func lines(text []byte) int {
	n := bytes.Count(text, []byte{'\n'})
	if len(text) > 0 && text[len(text)-1] != '\n' {
		n++
	}
	return n
}
