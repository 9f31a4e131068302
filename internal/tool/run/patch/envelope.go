package patch

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/toold/toold/internal/plain"
)

// The marks of an envelope.
const (
	beginMark  = "*** Begin Patch"
	endMark    = "*** End Patch"
	addMark    = "*** Add File:"
	deleteMark = "*** Delete File:"
	updateMark = "*** Update File:"
	moveMark   = "*** Move to:"
	eofMark    = "*** End of File"
	// placeMark says where the patch is to be applied, which a session decides.
	placeMark = "*** Environment ID:"
)

// atMargin is lines whose marks begin at the margin, and whether some did not.
func atMargin(lines []string) (_ []string, changed bool) {
	out := slices.Clone(lines)
	for i, line := range lines {
		mark := strings.TrimLeft(line, " \t")
		if len(mark) < len(line) && (bare(mark) == beginMark || bare(mark) == endMark || bare(mark) == eofMark ||
			slices.ContainsFunc([]string{addMark, deleteMark, updateMark, moveMark, placeMark}, func(m string) bool { return strings.HasPrefix(mark, m) })) {
			out[i], changed = mark, true
		}
	}
	return out, changed
}

// envelope reads the lines of one, of which it has gone past those before at.
type envelope struct {
	lines []string
	at    int
	first int // the number of lines[0]
	// loose: they are of a unified diff whose numbers say nothing.
	loose bool
}

// number is that of the line that comes next.
func (e *envelope) number() int { return e.first + e.at }

// peek is the line that comes next, without a carriage return; false at the end.
func (e *envelope) peek() (string, bool) {
	if e.at >= len(e.lines) {
		return "", false
	}
	return strings.TrimSuffix(e.lines[e.at], "\r"), true
}

// marked reports whether the next line has a mark, and gives what stands behind it.
func (e *envelope) marked(mark string) (string, bool) {
	line, ok := e.peek()
	if !ok {
		return "", false
	}
	rest, ok := strings.CutPrefix(line, mark)
	return strings.TrimSpace(rest), ok
}

func parseEnvelope(lines []string, first int) ([]File, error) {
	e := &envelope{lines: lines, at: 1, first: first}
	var files []File
	for {
		line, ok := e.peek()
		switch {
		case !ok:
			return nil, syntax(0, `it does not end with "%s"`, endMark)
		case bare(line) == endMark:
			if e.at++; e.at < len(e.lines) {
				return nil, syntax(e.number(), `there is something behind "%s": write one patch a call`, endMark)
			}
			return files, nil
		case strings.TrimSpace(line) == "", strings.HasPrefix(line, placeMark):
			e.at++
			continue
		}
		f, err := e.file()
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
}

// file reads what is said of one file.
func (e *envelope) file() (File, error) {
	f := File{Line: e.number()}
	var err error
	if p, ok := e.marked(addMark); ok {
		e.at++
		f.Kind, f.Path = Add, p
		f.Content, err = e.content(p)
		return f, err
	}
	if p, ok := e.marked(deleteMark); ok {
		e.at++
		f.Kind, f.Path = Delete, p
		return f, nil
	}
	p, ok := e.marked(updateMark)
	if !ok {
		line, _ := e.peek()
		return f, syntax(e.number(), `expected "%s PATH", "%s PATH" or "%s PATH", found %s`, addMark, deleteMark, updateMark, plain.Name(plain.Cut(line, 80)))
	}
	e.at++
	f.Kind, f.Path = Update, p
	if to, ok := e.marked(moveMark); ok {
		if to == "" {
			return f, syntax(e.number(), "it names no file to move to")
		}
		e.at++
		f.To = to
	}
	f.Hunks, err = e.hunks(p)
	return f, err
}

// content reads the lines of a file that is added.
func (e *envelope) content(path string) (string, error) {
	var b strings.Builder
	for {
		line, ok := e.peek()
		if !ok || strings.HasPrefix(line, "*** ") {
			return b.String(), nil
		}
		text, added := strings.CutPrefix(line, "+")
		if !added && strings.TrimSpace(line) != "" {
			return "", syntax(e.number(), `each line of %s, which is added, begins with "+"; found %s`, plain.Name(path), plain.Name(plain.Cut(line, 80)))
		}
		e.at++
		if added {
			b.WriteString(text + "\n")
		}
	}
}

// hunks reads those of an update.
func (e *envelope) hunks(path string) ([]Hunk, error) {
	var all []Hunk
	for {
		line, ok := e.peek()
		if !ok || strings.HasPrefix(line, "*** ") {
			return all, nil
		}
		if strings.TrimSpace(line) == "" && e.blankToTheNext() {
			e.at++
			continue
		}
		h, err := e.hunk(path)
		if err != nil {
			return nil, err
		}
		all = append(all, h)
	}
}

// blankToTheNext reports whether nothing but blank lines comes before the next file: these
// are no context.
func (e *envelope) blankToTheNext() bool {
	for _, line := range e.lines[e.at:] {
		if strings.HasPrefix(line, "*** ") {
			return true
		}
		if strings.TrimSpace(line) != "" {
			return false
		}
	}
	return true
}

// rangesPattern is what unified diffs write behind "@@".
var rangesPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^-(\d{1,9})(?:,\d+)? \+\d+(?:,\d+)?(?: @@|$)`) })

// hunk reads one, with the lines "@@" before it.
func (e *envelope) hunk(path string) (Hunk, error) {
	h := Hunk{Line: e.number(), At: -1}
	headed := false
	for {
		context, ok := e.marked("@@")
		if !ok {
			break
		}
		e.at, headed = e.at+1, true
		if e.loose {
			context = strings.Trim(strings.TrimSuffix(context, "@@"), " .…")
		}
		if m := rangesPattern().FindStringSubmatch(context); m != nil {
			h.At, _ = strconv.Atoi(m[1]) // at most nine digits
		} else if context != "" {
			h.Contexts = append(h.Contexts, context)
		}
	}
	for {
		line, ok := e.peek()
		if _, next := e.marked("@@"); !ok || next || e.endsHunk(line) {
			break
		}
		e.at++
		if bare(line) == eofMark {
			h.End = true
			break
		}
		if line == "" {
			line = " " // models leave out what stands at the end of a line
		}
		op := Op(line[0])
		if last := len(h.Lines) - 1; e.loose && op == '\\' && last >= 0 {
			h.Lines[last].EOL = "" // "\ No newline at end of file"
			continue
		}
		if op != Context && op != Insert && op != Remove {
			e.at--
			return h, syntax(e.number(), `each line of the update of %s begins with a blank, "+" or "-"; found %s`, plain.Name(path), plain.Name(plain.Cut(line, 80)))
		}
		h.Lines = append(h.Lines, Line{Op: op, Text: line[1:], EOL: "\n"})
	}
	return h, e.checkHunk(&h, path, headed)
}

// endsHunk reports whether the next line belongs to no hunk: the mark of another file, or
// a blank one before it.
func (e *envelope) endsHunk(line string) bool {
	if strings.HasPrefix(line, "*** ") && bare(line) != eofMark {
		return true
	}
	return line == "" && e.blankToTheNext() && !e.eofFollows()
}

// eofFollows reports whether the mark of the file's end is the next that is not blank.
func (e *envelope) eofFollows() bool {
	for _, line := range e.lines[e.at:] {
		if strings.TrimSpace(line) != "" {
			return bare(line) == eofMark
		}
	}
	return false
}

func (e *envelope) checkHunk(h *Hunk, path string, headed bool) error {
	for _, l := range h.Lines {
		if l.Op != Context {
			return nil
		}
	}
	if len(h.Lines) == 0 && headed {
		return syntax(h.Line, `"@@" in the update of %s has no lines below it`, plain.Name(path))
	}
	return syntax(h.Line, "a hunk of the update of %s changes nothing: no line begins with + or -", plain.Name(path))
}
