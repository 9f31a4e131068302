package patch

import (
	"io/fs"
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"github.com/toold/toold/internal/plain"
)

// isUnified recognises unified diffs by their headers.
func isUnified(lines []string) bool {
	for i, line := range lines {
		if strings.HasPrefix(line, "diff --git ") {
			return true
		}
		if strings.HasPrefix(line, "--- ") && i+1 < len(lines) && strings.HasPrefix(lines[i+1], "+++ ") {
			return true
		}
	}
	return false
}

// parseUnified reads a unified diff, of git or another program.
func parseUnified(lines []string, first int) ([]File, error) {
	text := strings.Join(lines, "\n") + "\n"
	if crlf(lines) {
		text = strings.ReplaceAll(text, "\r\n", "\n")
	}
	for i, line := range lines {
		// What is packed into such a patch may be a thousand times as large.
		if strings.HasPrefix(line, "GIT binary patch") || strings.HasPrefix(line, "Binary files ") {
			return nil, syntax(first+i, "it changes a binary file: use another tool for that file")
		}
	}
	parsed, _, err := gitdiff.Parse(strings.NewReader(text))
	if err != nil {
		return nil, syntax(0, "it cannot be read as a unified diff: %s", plain.Name(plain.Cut(err.Error(), 300)))
	}
	files, strip := make([]File, 0, len(parsed)), prefixed(lines)
	for _, p := range parsed {
		f, err := fileOf(p, first, strip)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// crlf reports whether the lines of a patch end as those of a Windows file do, its headers
// too, so that it is nothing that the patch says of the file.
func crlf(lines []string) bool {
	for _, line := range lines {
		if strings.HasPrefix(line, "@@ ") || strings.HasPrefix(line, "+++ ") || strings.HasPrefix(line, "diff --git ") {
			return strings.HasSuffix(line, "\r")
		}
	}
	return false
}

func fileOf(p *gitdiff.File, first int, strip bool) (File, error) {
	from, to := names(p, strip)
	f := File{Kind: Update, Path: from, Line: first}
	shown := plain.Name(from + to)
	switch {
	case p.IsBinary:
		return f, syntax(0, "%s is binary: use another tool for that file", shown)
	case p.IsCopy:
		return f, syntax(0, "%s is a copy of another file: write it as a file that is added", plain.Name(to))
	case !plainMode(p.OldMode) || !plainMode(p.NewMode):
		return f, syntax(0, "%s is a link or something else that is no plain file: use another tool for it", shown)
	}
	for _, fragment := range p.TextFragments {
		f.Hunks = append(f.Hunks, hunkOf(fragment, first))
	}
	switch {
	case p.IsNew:
		f.Kind, f.Path, f.Content, f.Hunks = Add, to, added(f.Hunks), nil
		f.Exec = executable(0, p.NewMode)
	case p.IsDelete:
		f.Kind = Delete
	default:
		if f.Exec = executable(p.OldMode, p.NewMode); from != to {
			f.To = to
		}
	}
	return f, nil
}

// names are the paths of a file before and after. Headers that are not git's may have what
// git puts before them all the same: prefixed says so.
func names(p *gitdiff.File, prefixed bool) (from, to string) {
	from, to = p.OldName, p.NewName
	if prefixed {
		// Of two headers the parser takes the second name for both.
		before := "b/"
		if p.IsDelete {
			before = "a/"
		}
		from, to = strings.TrimPrefix(from, before), strings.TrimPrefix(to, before)
	}
	if from == "" && !p.IsNew {
		from = to
	}
	if to == "" && !p.IsDelete {
		to = from
	}
	return from, to
}

// prefixed reports whether all headers have "a/" and "b/" before their paths, in a diff
// that has none of git's, which say it.
func prefixed(lines []string) bool {
	for i, line := range lines {
		if strings.HasPrefix(line, "diff --git ") {
			return false
		}
		if i+1 >= len(lines) || !strings.HasPrefix(line, "--- ") || !strings.HasPrefix(lines[i+1], "+++ ") {
			continue
		}
		for _, is := range [][2]string{{line[4:], "a/"}, {lines[i+1][4:], "b/"}} {
			if !strings.HasPrefix(is[0], is[1]) && !strings.HasPrefix(is[0], "/dev/null") {
				return false
			}
		}
	}
	return true
}

// plainMode reports whether a mode is that of a regular file, or not said.
func plainMode(m fs.FileMode) bool {
	const kinds, file = 0o170000, 0o100000 // as git writes them
	return m&kinds == 0 || m&kinds == file
}

// executable is what a change of modes means; nil = nothing.
func executable(old, new fs.FileMode) *bool {
	if new == 0 || old != 0 && old&0o111 == new&0o111 || old == 0 && new&0o111 == 0 {
		return nil
	}
	is := new&0o111 != 0
	return &is
}

func hunkOf(t *gitdiff.TextFragment, first int) Hunk {
	h := Hunk{At: int(max(min(t.OldPosition, 1<<40), 0)), Line: first}
	for _, l := range t.Lines {
		text, eol := cutEOL(l.Line)
		op := Context
		switch l.Op {
		case gitdiff.OpAdd:
			op = Insert
		case gitdiff.OpDelete:
			op = Remove
		}
		h.Lines = append(h.Lines, Line{Op: op, Text: text, EOL: eol})
	}
	return h
}

// added is the content of a file that a diff makes.
func added(hunks []Hunk) string {
	var b strings.Builder
	for _, h := range hunks {
		for _, l := range h.Lines {
			b.WriteString(l.Text + l.EOL)
		}
	}
	return b.String()
}
