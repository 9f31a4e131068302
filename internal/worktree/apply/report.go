package apply

import (
	"cmp"
	"fmt"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
)

// maxListed is how many paths a list has at most.
const maxListed = 1000

// Conflict is a path that is not as the session's changes need it.
type Conflict struct {
	Path string // quoted where it could be taken for something else
	Why  string
}

// ConflictError says what is in the way of changes. With Applied all else was applied:
// somebody changed these paths while it went on, and they are left alone. Otherwise
// nothing was applied. It comes wrapped in an error of the kind fault.Conflict.
type ConflictError struct {
	Conflicts []Conflict // the first thousand
	Count     int
	Applied   *client.Applied
}

func (e *ConflictError) Error() string {
	first := fmt.Sprintf("%s: %s", e.Conflicts[0].Path, e.Conflicts[0].Why)
	if e.Count > 1 {
		first = fmt.Sprintf("%s, and %d more", first, e.Count-1)
	}
	if e.Applied != nil {
		return "all but a part was applied: " + first
	}
	return "nothing was applied: " + first
}

// conflicts collect what is in the way.
type conflicts struct {
	found ConflictError
	next  string // what to do about them
}

// What to do about conflicts: where one of them can be merged, where Force does not help with one, and
// for all others.
const (
	nextMerge = "compare these paths with the source, then apply with --merge, or with --force to overwrite them"
	nextHard  = "--force does not help with all of these: move what is in the way elsewhere, or apply the others alone (--exclude)"
	nextForce = "compare these paths with the source, and make them fit in the session; then apply with --force, or the others alone (--exclude)"
)

func (c *conflicts) add(path, why string) {
	if c.found.Count++; len(c.found.Conflicts) < maxListed {
		c.found.Conflicts = append(c.found.Conflicts, Conflict{shown(path), why})
	}
}

func (c *conflicts) err() error {
	if c.found.Count == 0 {
		return nil
	}
	var places []fault.Place
	for _, f := range c.found.Conflicts {
		places = append(places, fault.Place{Path: f.Path, Message: f.Why})
	}
	return fault.Conflict.Errorf("%w", &c.found).At(places).Next(cmp.Or(c.next, nextForce))
}

// after is err of a plan that was carried out.
func (c *conflicts) after(r *report) error {
	if c.found.Count > 0 {
		c.found.Applied = r.applied(false)
	}
	return c.err()
}

// report is what becomes of the changes.
type report struct {
	tasks     []task
	left      map[int]bool // tasks that were not carried out
	sensitive list
	skipped   list
	kinds     map[string]string // of what is in skipped
	stays     list              // what Force did not remove
}

// list has the first paths of some, as people see them.
type list struct {
	paths []string
	count int
}

func (l *list) add(path string) {
	if l.count++; len(l.paths) < maxListed {
		l.paths = append(l.paths, shown(path))
	}
}

func (s *survey) report() *report {
	r := &report{tasks: s.tasks, left: make(map[int]bool)}
	for _, c := range s.changes {
		switch c.left {
		case onSight:
			r.sensitive.add(c.path)
		case impossible:
			r.skip(c)
		case chosen:
			if c.theirs && c.done {
				r.stays.add(c.path)
			}
		}
	}
	return r
}

// special is the kind of what is none of those that an archive names, and inSource that of what the
// session has removed, but the source has something special there.
const (
	special  = "special"
	inSource = "source_special"
)

func (r *report) skip(c *change) {
	r.skipped.add(c.path)
	if r.skipped.count > maxListed {
		return
	}
	if r.kinds == nil {
		r.kinds = make(map[string]string)
	}
	kind := cmp.Or(plain.Name(c.cannot), special)
	if c.cannot == "" && !c.put() {
		kind = inSource
	}
	r.kinds[shown(c.path)] = kind
}

// applied is the report for those who asked.
func (r *report) applied(dry bool) *client.Applied {
	var written, removed, merged, build, over list
	bare := 0
	for i, t := range r.tasks {
		path := string(t.Path)
		if r.left[i] {
			continue
		}
		if t.Over {
			over.add(path)
		}
		switch {
		case t.Want.Kind == "":
			removed.add(path)
			continue
		case t.Of != "":
			merged.add(path)
		}
		written.add(path)
		if t.Attrs.Left > 0 {
			bare++
		}
		if t.Build && t.Want.Kind != beneath.Dir {
			build.add(path)
		}
	}
	return &client.Applied{
		Written: written.paths, Removed: removed.paths, Merged: merged.paths, Build: build.paths,
		Sensitive: r.sensitive.paths, Skipped: r.skipped.paths, SkippedKinds: r.kinds,
		Overwritten: over.paths, OverwrittenCount: over.count, Kept: r.stays.paths, KeptCount: r.stays.count,
		WrittenCount: written.count, RemovedCount: removed.count, SensitiveCount: r.sensitive.count, SkippedCount: r.skipped.count,
		AttributesLeft: bare, DryRun: dry,
	}
}
