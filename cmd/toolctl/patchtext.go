package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"

	"github.com/toold/toold/internal/plain"
)

// patchText shows a patch on a terminal, with git's colours. Unlike a screen it leaves
// nothing out: a carriage return at the end of a line, or a colour, may be all that has
// changed. Everything that acts is spelled out.
type patchText struct {
	w     *bufio.Writer
	color bool
	// old and added are the lines of the current hunk that are still to come: what stands in a
	// hunk is content, whatever it looks like.
	old, added int
}

// maxPatchLine is how much of a line is held, in bytes; a longer one is shown in parts.
const maxPatchLine = 64 << 10

// SGR of the parts of a patch that are no content.
const (
	sgrBold = 1
	sgrNone = 0
)

// showPatch copies a patch from r to w.
func showPatch(w io.Writer, r io.Reader, color bool) error {
	p := &patchText{w: bufio.NewWriterSize(w, 32<<10), color: color}
	in := bufio.NewReaderSize(r, maxPatchLine)
	begins, paint := true, sgrNone
	var cut []byte // the beginning of a character that a part ended in
	for {
		part, err := in.ReadSlice('\n')
		if begins && len(part) > 0 {
			paint = p.colorOf(part)
		}
		whole := !errors.Is(err, bufio.ErrBufferFull)
		text := append(cut, part...)
		cut = nil
		if !whole {
			n := len(text) - plain.PartialRune(text)
			cut = bytes.Clone(text[n:])
			text = text[:n]
		}
		if err := p.show(text, paint); err != nil {
			return err
		}
		begins = whole
		switch {
		case whole && errors.Is(err, io.EOF):
			return p.w.Flush()
		case whole && err != nil:
			return errors.Join(err, p.w.Flush())
		}
	}
}

// show prints a line, or a part of one, in a color. The line end is outside of it.
func (p *patchText) show(text []byte, color int) error {
	text, ended := bytes.CutSuffix(text, []byte("\n"))
	var rest []byte // of a hunk's first line, what git thinks it is in
	if at := bytes.Index(text, []byte(" @@")); color == colorCyan && at >= 0 {
		text, rest = text[:at+3], text[at+3:]
	}
	shown := visibleParts(string(rest), "\t")
	if len(text) > 0 {
		shown = painted(visibleParts(string(text), "\t"), color, p.color) + shown
	}
	if ended {
		shown += "\n"
	}
	_, err := p.w.WriteString(shown)
	return err
}

// colorOf is the color of a line that begins so, and counts it.
func (p *patchText) colorOf(text []byte) int {
	if p.old > 0 || p.added > 0 {
		switch text[0] {
		case '+':
			p.added--
			return colorGreen
		case '-':
			p.old--
			return colorRed
		case ' ':
			p.old, p.added = p.old-1, p.added-1
			return sgrNone
		case '\\':
			return sgrNone
		}
		p.old, p.added = 0, 0 // no hunk: it is cut short
	}
	if rest, ok := bytes.CutPrefix(text, []byte("@@ -")); ok {
		p.old, p.added = hunkLines(rest)
		return colorCyan
	}
	if bytes.HasPrefix(text, []byte(`\`)) || bytes.HasPrefix(text, []byte("GIT binary")) {
		return sgrNone
	}
	for _, head := range patchHeads {
		if bytes.HasPrefix(text, []byte(head)) {
			return sgrBold
		}
	}
	return sgrNone
}

// patchHeads begin the lines in which git says what a patch is of.
var patchHeads = []string{"diff --git ", "index ", "--- ", "+++ ", "old mode ", "new mode ", "new file mode ", "deleted file mode "}

// hunkLines reads "1,2 +3,4 @@": how many lines of both sides follow. A count that is
// left out is 1.
func hunkLines(text []byte) (old, added int) {
	before, after, ok := bytes.Cut(text, []byte(" +"))
	after, _, ends := bytes.Cut(after, []byte(" @@"))
	if !ok || !ends {
		return 0, 0
	}
	return hunkCount(before), hunkCount(after)
}

func hunkCount(span []byte) int {
	_, count, given := bytes.Cut(span, []byte(","))
	if !given {
		return 1
	}
	n, err := strconv.Atoi(string(count))
	if err != nil || n < 0 {
		return 0
	}
	return n
}
