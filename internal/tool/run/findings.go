package run

import (
	"slices"
	"strings"
)

// findings are what searches find in a directory: files, and directories that hold some.
// Of each directory only the first entries are kept, in the order of a listing.
type findings struct {
	entries []*findings
	cut     bool // there are more entries, all of them after these
	name    string
	dir     bool
}

func (f *findings) key() (dir bool, name string) { return f.dir, f.name }

// maxFindings is findingsTree.most: more than any two levels that a listing reaches.
const maxFindings = 20_000

// findingsTree gathers findings path by path, in the order in which they come. It holds no
// more than it takes to fill a listing, however large the tree is: where the upper levels
// do so, the lower ones are dropped.
type findingsTree struct {
	top   *findings
	most  int // entries that are kept before the deeper levels give way
	depth int // levels that are kept; 0 = all
	count int
}

func newFindings() *findingsTree {
	return &findingsTree{top: &findings{dir: true}, most: maxFindings}
}

// add takes the path of a file below the directory.
func (t *findingsTree) add(rel string) {
	at := t.top
	for level := 1; ; level++ {
		name, rest, deeper := strings.Cut(rel, "/")
		if t.depth > 0 && level > t.depth {
			return
		}
		next, isNew := at.insert(name, deeper)
		if isNew {
			t.count++
		}
		if next == nil || !deeper {
			break
		}
		at, rel = next, rest
	}
	if t.count > t.most {
		t.prune()
	}
}

// insert gives the entry of that name, which it makes; nil when it comes after those
// that are kept.
func (f *findings) insert(name string, dir bool) (_ *findings, isNew bool) {
	entry := &findings{name: name, dir: dir}
	at, there := slices.BinarySearchFunc(f.entries, entry, listOrder)
	if there {
		return f.entries[at], false
	}
	if len(f.entries) > listLimit {
		f.cut = true
		if at == len(f.entries) {
			return nil, false
		}
		f.entries = f.entries[:listLimit]
	}
	f.entries = slices.Insert(f.entries, at, entry)
	return entry, true
}

// prune drops the levels that no listing reaches.
func (t *findingsTree) prune() {
	level, kept := []*findings{t.top}, 0
	for t.depth = 1; ; t.depth++ {
		var below []*findings
		for _, f := range level {
			below = append(below, f.entries...)
		}
		kept += len(below)
		if level = below; kept > listLimit || len(below) == 0 {
			break
		}
	}
	for _, f := range level {
		f.entries, f.cut = nil, true
	}
	t.count = kept
}

// child is the entry of that name, nil when searches find none. It is not known of one
// that comes after those that are kept.
func (f *findings) child(name string, dir bool) (_ *findings, known bool) {
	if f == nil {
		return nil, true
	}
	at, there := slices.BinarySearchFunc(f.entries, &findings{name: name, dir: dir}, listOrder)
	if there {
		return f.entries[at], true
	}
	return nil, !f.cut || at < len(f.entries)
}
