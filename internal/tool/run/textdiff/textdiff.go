// Package textdiff writes unified diffs of texts of which it is known where they
// differ, in bounded time and space: only the surroundings of the changes are
// compared, and what would be too long is cut and says so.
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
		w := d.wholeLines(changes[0])
		n := 1
		for n < len(changes) {
			next := d.wholeLines(changes[n])
			if next.OldStart > d.forward(w.OldEnd, 2*context) {
				break
			}
			w.OldEnd, w.NewEnd = max(w.OldEnd, next.OldEnd), max(w.NewEnd, next.NewEnd)
			n++
		}
		d.window(w)
		changes = changes[n:]
	}
	if d.cut {
		fmt.Fprintf(&d.out, "… diff cut here: in all %d lines added, %d removed\n", d.stat.Added, d.stat.Removed)
	}
	return strings.ToValidUTF8(d.out.String(), "\uFFFD"), d.stat
}

type differ struct {
	old, new         []byte
	limit            int
	out              strings.Builder
	stat             Stat
	cut              bool
	oldAt, newAt     int // offsets up to which lines have been counted
	oldLine, newLine int // lines before those
}

// wholeLines widens a change to whole lines on both sides. What lies outside a
// change is the same in both texts, so both sides are widened alike.
func (d *differ) wholeLines(c Change) Change {
	back := c.OldStart - (bytes.LastIndexByte(d.old[:c.OldStart], '\n') + 1)
	c.OldStart -= back
	c.NewStart -= back
	if atLineStart(d.old, c.OldEnd) && atLineStart(d.new, c.NewEnd) {
		return c
	}
	ahead := len(d.old) - c.OldEnd
	if i := bytes.IndexByte(d.old[c.OldEnd:], '\n'); i >= 0 {
		ahead = i + 1
	}
	c.OldEnd += ahead
	c.NewEnd += ahead
	return c
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
	d.newLine += bytes.Count(d.new[d.newAt:w.NewStart-before], []byte{'\n'})
	d.oldAt, d.newAt = w.OldStart-before, w.NewStart-before
	old, new := d.old[d.oldAt:w.OldEnd+after], d.new[d.newAt:w.NewEnd+after]
	if len(old)+len(new) <= maxCompared && lines(old)+lines(new) <= maxLines {
		u, err := udiff.ToUnifiedDiff("", "", string(old), udiff.Lines(string(old), string(new)), context)
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
	d.stat.Removed += removed
	d.stat.Added += added
	fmt.Fprintf(&d.out, "@@ -%s +%s @@\n", span(d.oldLine+1, around+removed), span(d.newLine+1, around+added))
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
	var from, to int
	for _, l := range h.Lines {
		switch l.Kind {
		case udiff.Delete:
			from++
			d.stat.Removed++
		case udiff.Insert:
			to++
			d.stat.Added++
		default:
			from++
			to++
		}
	}
	if d.cut {
		return
	}
	fmt.Fprintf(&d.out, "@@ -%s +%s @@\n", span(d.oldLine+h.FromLine, from), span(d.newLine+h.ToLine, to))
	for _, l := range h.Lines {
		d.line(l)
		if d.cut {
			return
		}
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
