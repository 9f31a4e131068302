package treediff

import (
	"bytes"
	"maps"
	"path"
	"strings"

	"github.com/toold/toold/internal/tool/run/ignore"
)

// maxAttributeText bounds the .gitattributes files that are held at a time, in bytes: those of the base, by
// which git apply reads its files. Behind that none is read.
const maxAttributeText = 1 << 20

// converting are the attributes with which git stores a file otherwise than it lies in a worktree, so
// that git apply does not find the file that a patch changes.
var converting = []string{"filter", "working-tree-encoding", "ident"}

// attributes are the lines of a .gitattributes file that say anything of them, in its order.
type attributes []attributeLine

type attributeLine struct {
	match ignore.List
	sets  map[string]bool // of converting
}

// convertedFiles tells of which files git stores something else.
type convertedFiles struct {
	w      *walk
	macros map[string]map[string]bool // of the top
	dirs   map[string]attributes
	held   int
}

// has reports whether git stores a file of the base otherwise than it lies there, as far as its attributes
// tell: for each the deepest .gitattributes counts that speaks of it, and of that the last line. dated says
// whether the file may have what ident is about.
func (a *convertedFiles) has(name string, dated bool) bool {
	if a.w.o.Base == nil { // two files are compared
		return false
	}
	if a.dirs == nil {
		a.dirs, a.macros = make(map[string]attributes), make(map[string]map[string]bool)
		a.in(".") // which has the macros
	}
	said := make(map[string]bool)
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		rel := strings.TrimPrefix(name, dir+"/")
		for i, lines := len(a.in(dir))-1, a.in(dir); i >= 0; i-- {
			if !lines[i].match.Has(rel, false) {
				continue
			}
			for attribute, on := range lines[i].sets {
				if _, known := said[attribute]; !known {
					said[attribute] = on
				}
			}
		}
		if dir == "." {
			break
		}
	}
	return said["filter"] || said["working-tree-encoding"] || said["ident"] && dated
}

// in are the lines of a directory's file. One that cannot be read has none.
func (a *convertedFiles) in(dir string) attributes {
	lines, known := a.dirs[dir]
	if known {
		return lines
	}
	f, err := a.w.o.Base.Open(a.w.ctx, path.Join(dir, ".gitattributes"))
	if err == nil {
		var text []byte
		if text, err = f.ReadAll(a.w.ctx, int64(maxAttributeText-a.held)); err == nil {
			a.held += len(text)
			lines = a.read(text, dir == ".")
		}
		_ = f.Close() // it was only read
	}
	a.dirs[dir] = lines
	return lines
}

// read reads a .gitattributes file.
func (a *convertedFiles) read(text []byte, top bool) (lines attributes) {
	for line := range bytes.SplitSeq(bytes.TrimPrefix(text, []byte("\ufeff")), []byte("\n")) {
		pattern, rest := attributePattern(strings.TrimSpace(string(line)))
		macro, isMacro := strings.CutPrefix(pattern, "[attr]")
		sets := make(map[string]bool)
		for word := range strings.FieldsSeq(rest) {
			a.set(sets, word)
		}
		switch {
		case pattern == "" || pattern[0] == '#' || pattern[0] == '!' || len(sets) == 0: // git takes no such pattern
		case isMacro && top:
			a.macros[macro] = sets
		case !isMacro:
			if match, err := ignore.New([]string{pattern}); err == nil {
				lines = append(lines, attributeLine{match, sets})
			}
		}
	}
	return lines
}

// set notes what one word of a line says.
func (a *convertedFiles) set(sets map[string]bool, word string) {
	name, value, hasValue := strings.Cut(word, "=")
	name, off := strings.CutPrefix(name, "-")
	name, unset := strings.CutPrefix(name, "!")
	for _, attribute := range converting {
		if name == attribute {
			// A filter or an encoding is named, and git's own is none; ident is only there or not.
			named := hasValue && value != "" && !strings.EqualFold(value, "UTF-8")
			sets[name] = !off && !unset && (name == "ident" && !hasValue || name != "ident" && named)
		}
	}
	if !off && !unset && !hasValue {
		maps.Copy(sets, a.macros[name])
	}
}

// attributePattern is the pattern that a line begins with, and the rest of the line. One in double
// quotes is as in C.
func attributePattern(line string) (pattern, rest string) {
	if !strings.HasPrefix(line, `"`) {
		if i := strings.IndexAny(line, " \t"); i >= 0 {
			return line[:i], line[i:]
		}
		return line, ""
	}
	var b strings.Builder
	for i := 1; i < len(line); i++ {
		switch {
		case line[i] == '"':
			return b.String(), line[i+1:]
		case line[i] == '\\' && i+1 < len(line):
			i++
		}
		b.WriteByte(line[i])
	}
	return "", ""
}
