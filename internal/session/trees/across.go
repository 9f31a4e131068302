package trees

import (
	"cmp"
	"context"
	"fmt"
	"path"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call/errand"
	"github.com/toold/toold/internal/tool/run/treediff"
	"github.com/toold/toold/internal/worktree/apply"
)

func pathOf(c *client.Change) string { return cmp.Or(string(c.Bytes), c.Path) }

// judged is how a page of changes stands to the source.
type judged struct {
	base  map[string]*apply.Base // of what the source has something else for
	stale map[string]bool        // it has, and there is no base, or a directory above is stale
	*across
}

// modeOf is the mode of a directory as lists have it.
func modeOf(b *apply.Base) string { return fmt.Sprintf("%04o", b.Perm) }

func (j *judged) any() bool { return len(j.base)+len(j.stale) > 0 }

func (j *judged) changed(p string) bool { return j.stale[p] || j.base[p] != nil }

// drops reports whether a change is none of the session's: a directory that the source has
// lost, and what the source has put in the place of a file.
func (j *judged) drops(c *client.Change) bool {
	p := pathOf(c)
	if c.Status == client.ChangeAdded && c.Kind == string(treediff.Dir) {
		return j.above[p]
	}
	return c.Status == client.ChangeDeleted && j.files.over(p)
}

// tell makes a page what is told against the bases, of which lines has the changes.
func (j *judged) tell(c *client.Changes, lines map[string]*treediff.Line) {
	items := c.Items[:0:0]
	for i := range c.Items {
		o := c.Items[i]
		switch p := pathOf(&o); {
		case j.drops(&o):
			continue
		case j.base[p] != nil && j.base[p].Dir:
			if o.OldMode = modeOf(j.base[p]); o.Mode == o.OldMode {
				continue
			}
			o.SourceChanged = true
			c.SourceChanged++
		case j.base[p] != nil:
			if lines[p] == nil {
				continue // it is what the session began with, or what the source has by now
			}
			o = errand.ChangeOf(p, lines[p])
			o.SourceChanged = true
			c.SourceChanged++
		case j.stale[p]:
			o.Stale = true
			c.Stale++
		}
		items = append(items, o)
	}
	c.Items = items
}

// hasSide reports whether the daemon can compare what the session has at a change.
func hasSide(c *client.Change) bool {
	switch treediff.Kind(c.Kind) {
	case "", treediff.Link:
		return true
	case treediff.File:
		return c.Size <= treediff.MaxSide
	}
	return false
}

// across is what changes say of others that are not beside them. Lists go by bytes: between a directory and what is
// in it come its neighbours, as in "a", "a-x", "a/f", and a page may end there.
type across struct {
	// stays are the directories in whose place the session has something else, by whether something
	// in them is stale: then they stay, and what takes their place is stale too.
	stays map[string]bool
	// staleDirs are stale, as is what is in them.
	staleDirs dirs
	// above are those that have files which the session began with.
	above dirs
	// files are those in whose place the source has a directory.
	files dirs
}

// dirs are paths that others may be below.
type dirs map[string]bool

// over reports whether a path is below one of them.
func (s dirs) over(p string) bool {
	for d := path.Dir(p); d != "." && len(s) > 0; d = path.Dir(d) {
		if s[d] {
			return true
		}
	}
	return false
}

func newAcross() *across {
	return &across{stays: make(map[string]bool), staleDirs: make(dirs), above: make(dirs), files: make(dirs)}
}

// survey notes what a page says of stays.
func (a *across) survey(items []client.Change, j *judged) {
	for i := range items {
		p := pathOf(&items[i])
		if items[i].Status == client.ChangeType && items[i].OldKind == string(treediff.Dir) {
			a.stays[p] = false
		}
		if !j.stale[p] || j.drops(&items[i]) {
			continue
		}
		for d := path.Dir(p); d != "."; d = path.Dir(d) {
			if _, is := a.stays[d]; is {
				a.stays[d] = true
			}
		}
	}
}

// judge is that of a view, by what is known of each change. Its pages come in order.
func (a *across) judge(ctx context.Context, items []client.Change, verdicts []apply.Verdict, base func(string) *apply.Base) (*judged, error) {
	j := &judged{base: make(map[string]*apply.Base), stale: make(map[string]bool), across: a}
	for i := range items {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		o := &items[i]
		p := pathOf(o)
		if a.stays[p] {
			j.stale[p] = true
			continue
		}
		if !verdicts[i].Changed {
			continue
		}
		plain := hasSide(o) || treediff.Kind(o.Kind) == treediff.Dir && o.Status == client.ChangeModified
		if verdicts[i].Known && plain && o.Unreadable == "" {
			j.base[p] = base(p)
		}
		if b := j.base[p]; b == nil {
			delete(j.base, p)
			j.stale[p] = true
		} else if b.File {
			b.Content = nil // it is read again when its turn comes
			for d := path.Dir(p); d != "." && !a.above[d]; d = path.Dir(d) {
				a.above[d] = true
			}
			if o.OldKind == string(treediff.Dir) {
				a.files[p] = true
			}
		}
	}
	for i := range items {
		o := &items[i]
		p := pathOf(o)
		switch {
		case j.drops(o) || j.base[p] != nil:
		case a.staleDirs.over(p):
			j.stale[p] = true
		case j.stale[p] && o.Kind == string(treediff.Dir):
			a.staleDirs[p] = true
		}
	}
	return j, nil
}
