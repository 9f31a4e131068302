// Package patch reads the patches that models write, and says what they make of texts: the
// envelope that begins with "*** Begin Patch", and unified diffs. It is pure: no files, no
// clock. The daemon reads a patch to know which paths it touches, the agent to apply it;
// both go by the same Parse.
package patch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toold/toold/internal/plain"
)

// Bounds of a patch.
const (
	// MaxFiles bounds the paths that one patch names.
	MaxFiles = 100
	// maxPath is PATH_MAX without its NUL.
	maxPath = 4095
)

// Kind is what becomes of a file.
type Kind string

// The kinds.
const (
	Add    Kind = "add"
	Delete Kind = "delete"
	Update Kind = "update"
)

// File is what a patch says of one file. A patch may say several things of the same.
type File struct {
	Kind Kind
	Path string // as it is written
	To   string // where an update moves the file; "" = nowhere
	// Content is that of a file that is added.
	Content string
	Hunks   []Hunk // of an update, in the order of the file
	// Exec says that the file becomes executable, or that it is not any more; nil = as it is.
	Exec *bool
	Line int // of the patch, from 1, where it begins
}

// Hunk is one place of a file that is changed.
type Hunk struct {
	// Contexts are lines that stand above it, each below the one before ("@@ class A",
	// "@@ def b").
	Contexts []string
	Lines    []Line
	// End: its last line is the last of the file.
	End bool
	// At is the line of the old file where it begins, from 1, as a unified diff says it; of
	// a hunk that only inserts, the line above, 0 at the top. -1 = not said.
	At   int
	Line int // of the patch, from 1
}

// Line is one line of a hunk.
type Line struct {
	Op   Op
	Text string // without its line ending
	// EOL is its line ending, "" where a unified diff says that it has none. An envelope
	// does not say which.
	EOL string
}

// Op says what becomes of a line.
type Op byte

// What becomes of lines.
const (
	Context Op = ' '
	Insert  Op = '+'
	Remove  Op = '-'
)

// SyntaxError means that a text is no patch, or that one cannot be taken.
type SyntaxError struct {
	Line int // from 1; 0 = the text as a whole
	Msg  string
}

// Error implements error.
func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return e.Msg
	}
	return fmt.Sprintf("line %d of the patch: %s", e.Line, e.Msg)
}

func syntax(line int, format string, args ...any) error {
	return &SyntaxError{Line: line, Msg: fmt.Sprintf(format, args...)}
}

// Parse reads a patch. The error is a *SyntaxError. A wrapper that a shell or Markdown
// would take off is no part of it: a here-document, a fence of three backticks. Nor is what
// a model says before and behind an envelope. Blanks before the marks of an envelope are left out
// where it is none with them, and numbers in a unified diff that cannot be right.
func Parse(text string) ([]File, error) {
	if strings.IndexByte(text, 0) >= 0 {
		return nil, syntax(0, "it has a NUL byte, with which a file is binary data: write that with bash, from base64")
	}
	all := strings.Split(text, "\n")
	files, err := parse(all)
	if err != nil {
		if lines, changed := atMargin(all); changed {
			if again, err := parse(lines); err == nil {
				return again, nil
			}
		}
	}
	return files, err
}

// parse is Parse of a patch whose marks begin at the margin.
func parse(all []string) ([]File, error) {
	lines, first := unwrapped(all)
	var files []File
	var err error
	switch {
	case len(lines) > 0 && bare(lines[0]) == beginMark:
		files, err = parseEnvelope(lines, first)
	case isUnified(lines):
		if files, err = parseUnified(lines, first); err != nil {
			if again, wrong := parseLoose(lines, first); again != nil || wrong != nil {
				files, err = again, wrong
			}
		}
	default:
		err = syntax(0, `it is no patch: it begins neither with "%s" nor as a unified diff does, with "diff --git" or with "---" and "+++"`, beginMark)
	}
	if err != nil {
		return nil, err
	}
	return files, check(files)
}

// check refuses what no patch may say, whichever form it has.
func check(files []File) error {
	if len(files) == 0 {
		return syntax(0, "it changes no file")
	}
	for _, f := range files {
		for _, p := range []string{f.Path, f.To} {
			switch {
			case p == "" && f.Path != "":
			case p == "":
				return syntax(f.Line, "it names no file")
			case strings.IndexByte(p, 0) >= 0:
				return syntax(f.Line, "the path %s has a NUL byte", plain.Name(plain.Cut(p, 64)))
			case len(p) > maxPath:
				return syntax(f.Line, "the path %s has %d bytes; the limit is %d", plain.Name(plain.Cut(p, 64)), len(p), maxPath)
			}
		}
		if f.Kind == Update && len(f.Hunks) == 0 && f.To == "" && f.Exec == nil {
			return syntax(f.Line, "the update of %s changes nothing", plain.Name(f.Path))
		}
	}
	if n := len(Paths(files)); n > MaxFiles {
		return syntax(0, "it names %d paths; the limit is %d: make several patches of it", n, MaxFiles)
	}
	return nil
}

// Paths are the distinct paths that a patch names, in their order.
func Paths(files []File) []string {
	var all []string
	for _, f := range files {
		for _, p := range []string{f.Path, f.To} {
			if p != "" && !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}

// Reads are the distinct paths of the files of which a patch needs what is in them: lines of
// it must be there, or it moves to another path.
func Reads(files []File) []string {
	var all []string
	for _, f := range files {
		if f.Kind == Update && (len(f.Hunks) > 0 || f.To != "") && !slices.Contains(all, f.Path) {
			all = append(all, f.Path)
		}
	}
	return all
}

// Title says what a patch is about that names several paths; "" for one, which says it
// itself.
func Title(paths []string) string {
	if len(paths) < 2 {
		return ""
	}
	return fmt.Sprintf("%s and %d more", plain.Name(paths[0]), len(paths)-1)
}

// unwrapped takes off what stands around a patch; first is the number of the first line
// that is left.
func unwrapped(lines []string) (_ []string, first int) {
	first = 1
	drop := func() {
		for len(lines) > 0 && strings.TrimSpace(lines[0]) == "" {
			lines, first = lines[1:], first+1
		}
		// A blank in the last line is context of a unified diff.
		for n := len(lines); n > 0 && strings.TrimSuffix(lines[n-1], "\r") == ""; n-- {
			lines = lines[:n-1]
		}
	}
	drop()
	for len(lines) > 1 {
		opens, closes := strings.TrimSpace(lines[0]), strings.TrimSpace(lines[len(lines)-1])
		end, ok := endOf(opens)
		if !ok || closes != end {
			break
		}
		lines, first = lines[1:len(lines)-1], first+1
		drop()
	}
	from, end := said(lines)
	return lines[from:end], first + from
}

// said is where an envelope begins and ends among what a model says before and behind it.
// Where that may be a patch too, all of it is one.
func said(lines []string) (from, end int) {
	from = slices.IndexFunc(lines, func(s string) bool { return bare(s) == beginMark })
	if from < 0 {
		return 0, len(lines)
	}
	end = from + 1 + slices.IndexFunc(lines[from:], func(s string) bool { return bare(s) == endMark })
	around := slices.Concat(lines[:from], lines[max(end, from):])
	if end <= from || slices.ContainsFunc(around, func(s string) bool { return strings.HasPrefix(s, "***") }) || isUnified(lines) {
		return 0, len(lines)
	}
	return from, end
}

// endOf is the line that ends what a line begins: a here-document ("apply_patch <<'EOF'")
// or a fence.
func endOf(opens string) (end string, ok bool) {
	if strings.HasPrefix(opens, "```") {
		return "```", true
	}
	_, word, ok := strings.Cut(opens, "<<")
	word = strings.Trim(strings.TrimSpace(strings.TrimPrefix(word, "-")), `'"`)
	return word, ok && word != "" && !strings.ContainsAny(word, " \t")
}

// bare is a line without a carriage return at its end, and without blanks there.
func bare(line string) string { return strings.TrimRight(line, " \t\r") }
