package treediff

import (
	"bytes"
	"strings"

	"github.com/toold/toold/internal/tool/run/ignore"
	"github.com/toold/toold/internal/tool/run/root"
)

// maxRules bounds the .gitignore files that are held at a time, those of a directory and of
// all above it on both sides, in bytes. Below one that is not read for it nothing is ignored.
const maxRules = 128 << 10

// rules are what the .gitignore files of a directory and of those above it ignore.
type rules struct {
	up   *rules
	dir  string
	list ignore.List
	// settled: the directory itself is ignored (all), or its file could not be read.
	settled, all bool
}

// ignores says whether a path is ignored: the deepest file that speaks of it decides.
func (r *rules) ignores(path string, dir bool) bool {
	for ; r != nil; r = r.up {
		if r.settled {
			return r.all
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(path, r.dir), "/")
		if out, known := r.list.Decide(rel, dir); known {
			return out
		}
	}
	return false
}

// ignored finds out whether .gitignore files ignore an entry, on each side where it is, and
// sets what is looked at below it. A .gitignore file that says what is ignored is not.
func (b *below) ignored(asked bool) {
	sel := *b.sel
	if asked && !sel.whole && !sel.left {
		in := sel.new
		if b.new == nil {
			in = sel.old
		}
		speaks := b.name == ".gitignore" && (in == nil || !in.all)
		oldOut, newOut := sel.old.ignores(b.path, isDir(b.old)), sel.new.ignores(b.path, isDir(b.new))
		b.hidden = (b.old == nil || oldOut) && (b.new == nil || newOut) && !speaks
		if oldOut && isDir(b.old) {
			sel.old = &rules{settled: true, all: true}
		}
		if newOut && isDir(b.new) {
			sel.new = &rules{settled: true, all: true}
		}
	}
	sel.whole = sel.whole || !sel.left && !b.hidden && isDir(b.old) && b.new != nil && !isDir(b.new)
	b.sel = &sel
}

// ruled is a selection with the .gitignore files of a directory. done gives their room back.
func (w *walk) ruled(sel *selection, path string, base, tree *place) (in *selection, done func()) {
	held := w.rules
	if w.omits && w.o.NoIgnored {
		with := *sel
		with.old, with.new = w.read(sel.old, path, base), w.read(sel.new, path, tree)
		sel = &with
	}
	return sel, func() { w.rules = held }
}

// read adds the .gitignore file of a directory to those above it.
func (w *walk) read(up *rules, path string, p *place) *rules {
	if !p.there || up != nil && up.settled {
		return up
	}
	dir, err := p.need(w.ctx)
	if err != nil {
		return up // the level says it
	}
	f, err := dir.Open(w.ctx, ".gitignore")
	switch code := root.CodeOf(err); {
	case code == root.NotExist || code == root.NotRegular: // git follows no link either
		return up
	case err != nil:
		return &rules{settled: true}
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := f.ReadAll(w.ctx, int64(maxRules-w.rules))
	if err != nil {
		return &rules{settled: true}
	}
	var lines []string
	for line := range bytes.SplitSeq(bytes.TrimPrefix(text, []byte("\ufeff")), []byte("\n")) {
		if line = bytes.TrimSuffix(line, []byte("\r")); len(line) > 0 && line[0] != '#' {
			lines = append(lines, string(line))
		}
	}
	list, err := ignore.New(lines)
	if err != nil {
		return &rules{settled: true}
	}
	w.rules += len(text)
	return &rules{up: up, dir: path, list: list}
}
