package patch

import "strings"

// result puts the file together. An ending that the patch does not say is that of the line
// above, or of the file.
func (a *applier) result(old string) []byte {
	usual := a.usualEOL()
	var out []row
	last, done, letterEnd := usual, 0, false
	keep := func(rows []row) {
		for _, r := range rows {
			if r.open {
				r.eol = last
			} else if r.eol != "" {
				last = r.eol
			}
			out = append(out, r)
		}
	}
	for _, e := range a.edits {
		keep(a.rows[done:e.at])
		keep(e.rows)
		done = e.at + e.n
		letterEnd = e.byLetter && done == len(a.rows)
	}
	keep(a.rows[done:])
	a.finish(out, usual, letterEnd)
	var b strings.Builder
	if a.keepsBOM(old, out) {
		b.WriteString(bom)
	}
	for _, r := range out {
		b.WriteString(r.text)
		b.WriteString(r.eol)
	}
	return []byte(b.String())
}

// finish gives every line but the last an ending, and the last one where the file's had
// one, unless a diff has said by the letter how the file ends.
func (a *applier) finish(out []row, usual string, letterEnd bool) {
	for i := range out[:max(len(out)-1, 0)] {
		if out[i].eol == "" {
			out[i].eol = usual
		}
	}
	if len(out) == 0 || letterEnd {
		return
	}
	end := &out[len(out)-1]
	switch bare := len(a.rows) > 0 && a.rows[len(a.rows)-1].eol == ""; {
	case bare:
		end.eol = ""
	case end.eol == "":
		end.eol = usual
	}
}

// usualEOL is the line ending that most lines have.
func (a *applier) usualEOL() string {
	n := 0
	for _, r := range a.rows {
		switch r.eol {
		case "\r\n":
			n++
		case "\n":
			n--
		}
	}
	if n > 0 {
		return "\r\n"
	}
	return "\n"
}

// keepsBOM reports whether a byte order mark is to be put back that a new first line does
// not have, and of which the patch did not say that it goes.
func (a *applier) keepsBOM(old string, out []row) bool {
	if !strings.HasPrefix(old, bom) || len(out) == 0 || strings.HasPrefix(out[0].text, bom) {
		return false
	}
	for _, h := range a.file.Hunks {
		for _, l := range h.Lines {
			if l.Op == Remove && strings.HasPrefix(l.Text, bom) {
				return false
			}
		}
	}
	return true
}
