// Package textdiff writes unified diffs of texts whose differences are known,
// in bounded time and space: only the surroundings of the changes are compared,
// and a diff that is too long is cut and says so.
package textdiff

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// Change says that Old[OldStart:OldEnd] became New[NewStart:NewEnd]. Between
// changes both texts are the same.
type Change struct{ OldStart, OldEnd, NewStart, NewEnd int }

// Stat counts lines.
type Stat struct{ Added, Removed int }

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
	d := &differ{old: old, new: new, limit: limit}
	if len(changes) == 0 {
		return "", Stat{}
	}
	fmt.Fprintf(&d.out, "--- %s\n+++ %s\n", name, name)
	for len(changes) > 0 {
		w, n := d.region(changes)
		d.window(w)
		changes = changes[n:]
	}
	if d.cut {
		fmt.Fprintf(&d.out, "… diff cut here: in all %d lines added, %d removed\n", d.stat.Added, d.stat.Removed)
	}
	return strings.ToValidUTF8(d.out.String(), "\uFFFD"), d.stat
}

type differ struct {
	old, new []byte
	limit    int
	out      strings.Builder
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
	if d.cut {
		d.stat.Removed += lines(removed)
		d.stat.Added += lines(added)
		return
	}
	before := w.OldStart - d.backward(w.OldStart, context)
	after := d.forward(w.OldEnd, context) - w.OldEnd
	d.oldLine += bytes.Count(d.old[d.oldAt:w.OldStart-before], []byte{'\n'})
	d.oldAt = w.OldStart - before
	old, new := d.old[d.oldAt:w.OldEnd+after], d.new[w.NewStart-before:w.NewEnd+after]
	if len(old)+len(new) <= maxCompared && lines(old)+lines(new) <= maxLines {
		// Only the region itself is compared: among equal lines a change must not
		// move away from it, into lines that are shown around it.
		edits := udiff.Lines(string(removed), string(added))
		for i := range edits {
			edits[i].Start += before
			edits[i].End += before
		}
		u, err := udiff.ToUnifiedDiff("", "", string(old), edits, context)
		if err == nil {
			for _, h := range u.Hunks {
				d.hunk(h)
			}
			return
		}
	}
	d.wholeHunk(old, new, before, after)
}

// wholeHunk writes a window without comparing its sides, which begin with the
// same before bytes and end with the same after bytes. Lines are counted and
// never listed: a list takes many times the room of short lines.
func (d *differ) wholeHunk(old, new []byte, before, after int) {
	removed, added := lines(old[before:len(old)-after]), lines(new[before:len(new)-after])
	around := lines(old[:before]) + lines(old[len(old)-after:])
	d.head(d.oldLine+1, removed, added, around)
	for _, part := range []struct {
		kind udiff.OpKind
		text []byte
	}{
		{udiff.Equal, old[:before]},
		{udiff.Delete, old[before : len(old)-after]},
		{udiff.Insert, new[before : len(new)-after]},
		{udiff.Equal, old[len(old)-after:]},
	} {
		for line := range bytes.Lines(part.text) {
			// Of a line that is too long no more is needed than to see that.
			line = line[:min(len(line), d.limit)]
			if d.line(udiff.Line{Kind: part.kind, Content: string(line)}); d.cut {
				return
			}
		}
	}
}

func (d *differ) hunk(h *udiff.Hunk) {
	var removed, added, around int
	for _, l := range h.Lines {
		switch l.Kind {
		case udiff.Delete:
			removed++
		case udiff.Insert:
			added++
		default:
			around++
		}
	}
	// Not by ToLine, which is wrong behind a hunk of more than one edit.
	d.head(d.oldLine+h.FromLine, removed, added, around)
	for _, l := range h.Lines {
		if d.cut {
			return
		}
		d.line(l)
	}
}

// head counts a hunk and writes its first line.
func (d *differ) head(first, removed, added, around int) {
	if !d.cut {
		fmt.Fprintf(&d.out, "@@ -%s +%s @@\n", span(first, around+removed), span(first+d.stat.Added-d.stat.Removed, around+added))
	}
	d.stat.Removed += removed
	d.stat.Added += added
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

func (d *differ) line(l udiff.Line) {
	left := d.limit - d.out.Len()
	if len(l.Content)+2 > left {
		if left > 200 {
			d.out.WriteString(mark(l.Kind) + l.Content[:left-100] + "\n")
		}
		d.cut = true
		return
	}
	d.out.WriteString(mark(l.Kind))
	d.out.WriteString(l.Content)
	if !strings.HasSuffix(l.Content, "\n") {
		d.out.WriteString("\n\\ No newline at end of file\n")
	}
}

func mark(k udiff.OpKind) string {
	switch k {
	case udiff.Delete:
		return "-"
	case udiff.Insert:
		return "+"
	default:
		return " "
	}
}

func lines(text []byte) int {
	n := bytes.Count(text, []byte{'\n'})
	if len(text) > 0 && text[len(text)-1] != '\n' {
		n++
	}
	return n
}
