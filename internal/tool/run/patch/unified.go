package patch

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"github.com/toold/toold/internal/plain"
)

// isUnified recognises unified diffs by their headers.
func isUnified(lines []string) bool {
	for i, line := range lines {
		if strings.HasPrefix(line, "diff --git ") {
			return true
		}
		if isHeader(lines, i) {
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
	var hunks []*gitdiff.TextFragment
	for _, p := range parsed {
		hunks = append(hunks, p.TextFragments...)
		f, err := fileOf(p, first, strip)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, complete(lines, first, hunks)
}

// complete sees that every line of a diff is in one of its hunks that looks like a line of one. The
// parser ends a hunk where its numbers say, and takes what is left for words before the next file.
func complete(lines []string, first int, hunks []*gitdiff.TextFragment) error {
	words := true // as a mail has them, before the first file
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		switch {
		case strings.HasPrefix(line, "@@"):
			if len(hunks) == 0 {
				return syntax(first+i, `"@@" has no numbers of lines, as a unified diff has, and the place of its lines cannot be told without`)
			}
			for n := len(hunks[0].Lines); n > 0; i++ {
				if !strings.HasPrefix(lines[i+1], `\`) {
					n--
				}
			}
			hunks, words = hunks[1:], false
		case isHeader(lines, i):
			i, words = i+1, false
		case strings.HasPrefix(line, "diff --git "):
			words = false
		case message().MatchString(line), signature(lines[i:]):
			words = true
		case !words && line != "" && strings.IndexByte("+- ", line[0]) >= 0 && strings.TrimSpace(line) != "":
			return syntax(first+i, `%s is in no hunk: the numbers behind "@@" above it say that the hunk has ended; give the right ones, or "@@" without numbers`, plain.Name(plain.Cut(line, 80)))
		}
	}
	return nil
}

// message begins what stands between the diffs of two commits, in what git prints.
var message = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:From|commit) [0-9a-f]{7,64}\b`) })

// signature reports whether lines begin with what git puts behind a patch: "-- " and its version.
func signature(lines []string) bool {
	if bare(lines[0]) != "--" {
		return false
	}
	rest := slices.DeleteFunc(slices.Clone(lines[1:]), func(s string) bool { return bare(s) == "" })
	return len(rest) == 0 || strings.IndexByte("+- @", rest[0][0]) < 0 && (len(rest) == 1 || message().MatchString(rest[1]))
}

// isHeader reports whether line i is the first of the two that name a file.
func isHeader(lines []string, i int) bool {
	return i+1 < len(lines) && strings.HasPrefix(lines[i], "--- ") && strings.HasPrefix(lines[i+1], "+++ ")
}

// extended are the headers of git that say nothing of the lines of a file.
var extended = []string{"diff --git ", "index ", "new file mode 100644", "deleted file mode "}

// parseLoose reads a unified diff by its lines alone, for one whose numbers are wrong or missing:
// the places of its hunks must be the only ones. nil: it is none. An error says what no numbers mend.
func parseLoose(lines []string, first int) ([]File, error) {
	windows, strip := crlf(lines), prefixed(lines) || slices.ContainsFunc(lines, func(s string) bool { return strings.HasPrefix(s, "diff --git a/") })
	path := func(header, prefix string) string {
		name, _, _ := strings.Cut(strings.TrimRight(header[4:], "\r"), "\t")
		if name = strings.TrimSpace(name); strip {
			name = strings.TrimPrefix(name, prefix)
		}
		return name
	}
	var files []File
	for i := 0; i < len(lines); {
		if !isHeader(lines, i) {
			if bare(lines[i]) != "" && !slices.ContainsFunc(extended, func(s string) bool { return strings.HasPrefix(lines[i], s) }) {
				return nil, nil
			}
			i++
			continue
		}
		from, to := path(lines[i], "a/"), path(lines[i+1], "b/")
		end := i + 2
		for end < len(lines) && !isHeader(lines, end) && !strings.HasPrefix(lines[end], "diff --git ") {
			end++
		}
		f, err := looseFile(lines[i+2:end], first+i+2, from, to, windows)
		if f == nil {
			return nil, err
		}
		f.Line = first + i
		files, i = append(files, *f), end
	}
	return files, nil
}

// looseFile reads the hunks of one file.
func looseFile(lines []string, first int, from, to string, windows bool) (*File, error) {
	if windows {
		lines = slices.Clone(lines)
		for i, line := range lines {
			lines[i] = strings.TrimSuffix(line, "\r")
		}
	}
	e := &envelope{lines: lines, first: first, loose: true}
	hunks, err := e.hunks(to)
	if err != nil || e.at < len(lines) {
		return nil, nil //nolint:nilerr // the error of its numbers says more
	}
	switch none := "/dev/null"; {
	case from == none && to == none:
		return nil, nil
	case from == none:
		if i := hunkWith(hunks, Remove); i >= 0 {
			return nil, syntax(hunks[i].Line, `%s is a new file, whose old one is /dev/null, and has lines that are removed: leave out those with "-", or name the file behind "---" if it is there`, plain.Name(to))
		}
		return &File{Kind: Add, Path: to, Content: added(hunks)}, nil
	case to == none:
		if i := hunkWith(hunks, Insert, Context); i >= 0 {
			return nil, syntax(hunks[i].Line, `%s is deleted, as its new one is /dev/null, and has lines that stay or are added: name the file behind "+++" if it is to stay`, plain.Name(from))
		}
		return &File{Kind: Delete, Path: from}, nil
	}
	for i := range hunks {
		switch h := &hunks[i]; {
		case len(oldLines(h.Lines)) > 0:
			h.At = -1
		case h.At < 0 && len(h.Contexts) == 0:
			return nil, nil // it may be anywhere
		}
	}
	f := &File{Kind: Update, Path: from, Hunks: hunks}
	if from != to {
		f.To = to
	}
	return f, nil
}

// hunkWith is the first that has a line of one of these; -1 for none.
func hunkWith(hunks []Hunk, ops ...Op) int {
	return slices.IndexFunc(hunks, func(h Hunk) bool {
		return slices.ContainsFunc(h.Lines, func(l Line) bool { return slices.Contains(ops, l.Op) })
	})
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
		if !isHeader(lines, i) {
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
