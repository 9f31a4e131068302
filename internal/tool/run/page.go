package run

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// page collects the lines of a file that a read shows. It is fed the file's
// bytes in order and keeps only what it will show.
type page struct {
	first, limit int // line to begin with, from 1; lines to show at most
	most         int // bytes of the output
	out          strings.Builder
	line         []byte // the present line, as much of it as can be shown
	lineCut      bool   // there was more of it
	open         bool   // the present line has begun
	count        int    // lines that have ended
	shown        int
	cutLines     int
	crlf         int    // of the shown lines, those that end in CRLF
	last         bool   // the last one that was shown has no end
	byBytes      bool   // ended by most and not by limit
	invalid      bool   // a shown line is not UTF-8
	encoding     string // of the file, where it is not UTF-8
}

// footerRoom is kept free of page.most for the footer.
const footerRoom = 256

// numberWidth is how wide the numbers of lines are at least.
const numberWidth = "      "

// lineKept is how many bytes of a line can be needed to show readColumns
// characters of it, and one more to know that there are more.
const lineKept = (readColumns + 1) * utf8.UTFMax

func newPage(first, limit, most int) *page {
	if limit <= 0 || limit > readLines {
		limit = readLines
	}
	return &page{first: first, limit: limit, most: most}
}

// full reports that nothing more will be shown.
func (p *page) full() bool { return p.shown >= p.limit || p.byBytes || p.invalid }

func (p *page) feed(data []byte) {
	for len(data) > 0 {
		if p.full() {
			p.skip(data)
			return
		}
		i := bytes.IndexByte(data, '\n')
		part := data
		if i >= 0 {
			part = data[:i]
		}
		p.open = true
		if p.count+1 >= p.first {
			p.keep(part)
		}
		if i < 0 {
			return
		}
		p.endLine()
		data = data[i+1:]
	}
}

// skip counts lines without looking at them.
func (p *page) skip(data []byte) {
	p.count += bytes.Count(data, []byte{'\n'})
	p.open = data[len(data)-1] != '\n'
}

func (p *page) keep(part []byte) {
	if room := lineKept - len(p.line); len(part) > room {
		part, p.lineCut = part[:room], true
	}
	p.line = append(p.line, part...)
}

func (p *page) endLine() {
	p.count++
	p.open = false
	if p.count >= p.first {
		p.show()
	}
	p.line, p.lineCut = p.line[:0], false
}

// show writes the present line. Whether a character at the cut is whole does not
// matter: it is not shown.
func (p *page) show() {
	line := p.line
	if !p.lineCut {
		line = bytes.TrimSuffix(line, []byte{'\r'})
	}
	crlf := len(line) < len(p.line) && !p.last
	end := behindRunes(line, readColumns)
	if p.invalid = !utf8.Valid(line[:end]); p.invalid {
		return
	}
	cut := p.lineCut || end < len(line)
	number, note := strconv.Itoa(p.count), ""
	if cut {
		note = fmt.Sprintf(" … (line cut at %d characters)", readColumns)
	}
	pad := numberWidth[:max(len(numberWidth)-len(number), 0)]
	if p.out.Len()+len(pad)+len(number)+1+end+len(note)+1 > p.most-footerRoom {
		p.byBytes = true
		return
	}
	if cut {
		p.cutLines++
	}
	p.out.WriteString(pad)
	p.out.WriteString(number)
	p.out.WriteByte('\t')
	p.out.Write(line[:end])
	p.out.WriteString(note)
	p.out.WriteByte('\n')
	p.shown++
	if crlf {
		p.crlf++
	}
}

// end is called behind the last byte that was fed; whole says that it was the
// file's last. A last line without a line break is a line.
func (p *page) end(whole bool) {
	if !whole || !p.open {
		return
	}
	if p.full() {
		p.count++
		return
	}
	shown := p.shown
	p.last = true
	p.endLine()
	p.last = p.shown > shown
}

// ends says of which lines that are shown the ends are not what they seem to be; "" of none.
func (p *page) ends() string {
	ended := p.shown
	if p.last {
		ended--
	}
	note := ""
	if p.encoding != "" {
		note = "; the file is " + p.encoding
	}
	switch {
	case p.crlf == 0:
		return note
	case p.crlf >= ended:
		return note + "; they end in CRLF"
	}
	return note + fmt.Sprintf("; %d of them end in CRLF", p.crlf)
}

// result makes the answer with the footer: what is shown, of how much, and where
// to go on.
func (p *page) result(path, title string, whole bool) *Result {
	last := p.first + p.shown - 1
	more := !whole || last < p.count
	meta := map[string]any{
		"path": path, "kind": "file", "first_line": p.first, "last_line": last,
		"total_lines": p.count, "total_exact": whole, "truncated": more || p.cutLines > 0,
	}
	atLeast := ""
	if !whole {
		atLeast = "at least "
	}
	var footer string
	switch {
	case p.count == 0 && p.shown == 0:
		footer = "(the file is empty)"
	case more:
		meta["next_offset"] = last + 1
		why := ""
		if p.byBytes {
			why = fmt.Sprintf("; more than %d KiB", p.most>>10)
		}
		footer = fmt.Sprintf("\n(lines %d-%d of %s%d%s%s; go on with offset %d)", p.first, last, atLeast, p.count, why, p.ends(), last+1)
	default:
		footer = fmt.Sprintf("\n(lines %d-%d of %d, the end of the file%s)", p.first, last, p.count, p.ends())
	}
	return &Result{Title: title, Output: p.out.String() + footer, Metadata: meta}
}
