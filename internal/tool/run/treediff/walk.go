package treediff

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"

	"github.com/toold/toold/internal/tool/run/root"
)

// walk goes through both directories side by side.
type walk struct {
	ctx    context.Context //nolint:containedctx // of the one walk that it lives for
	o      Options
	out    visitor
	budget int // entries that may still be held
	totals Totals
	omits  bool // what is left is not visited, but counted
	rules  int  // bytes of .gitignore files that are held
}

// visitor is told of each path that differs.
type visitor interface {
	// goal is what the visitor leads to, of what the base and the tree have. A path where
	// that is no directory and the other is one comes after what is in it, unless the
	// visitor wants all in order.
	goal(old, new *root.Node) (to, from *root.Node)
	ordered() bool
	visit(c *change) error
	// reads reports whether the contents of a change are wanted.
	reads(c *change) bool
	// enter is called before an entry of a directory of the tree is looked at, leave after
	// everything in a directory was.
	enter(tree *place, e entry) error
	leave(tree *place) error
	end() error
}

// forward is the part of a visitor that leads to the tree as it is.
type forward struct{}

func (forward) goal(old, new *root.Node) (to, from *root.Node) { return new, old }
func (forward) reads(c *change) bool                           { return !c.left || c.status == Modified }
func (forward) enter(*place, entry) error                      { return nil }
func (forward) leave(*place) error                             { return nil }

const (
	// maxNodes and leastNodes bound the entries of directories that are held, of all
	// together and of one: larger ones are listed again for each part.
	maxNodes   = 128 << 10
	leastNodes = 64
	// openLevels is how deep directories stay open while what is in them is looked at.
	openLevels = 64
)

// place is a directory of one side. It is open as long as that is of use.
type place struct {
	top, dir *root.Dir
	path     string
	there    bool
	// opened: a visitor changed its permissions, which were mode.
	opened bool
	mode   uint32
}

// need opens the directory again where it was closed.
func (p *place) need(ctx context.Context) (*root.Dir, error) {
	var err error
	if p.dir == nil {
		p.dir, err = p.top.Dir(ctx, p.path)
	}
	return p.dir, err
}

func (p *place) shut() {
	if p.dir != nil && p.dir != p.top {
		p.dir.Close()
		p.dir = nil
	}
}

// names gives the entries of a directory in order.
type names struct {
	w     *walk
	place *place
	only  *Touched // what is looked at
	asked int      // of those that it names
	nodes []root.Node
	held  int
	more  bool
	last  string
}

// peek is the next entry, nil for none.
func (n *names) peek() (*root.Node, error) {
	for len(n.nodes) == 0 && n.more {
		if err := n.fill(); err != nil {
			return nil, err
		}
	}
	if len(n.nodes) == 0 {
		return nil, nil
	}
	return &n.nodes[0], nil
}

func (n *names) fill() error {
	dir, err := n.place.need(n.w.ctx)
	if err != nil {
		return err
	}
	n.release()
	most := max(n.w.budget/2, leastNodes)
	if n.only.named() {
		some := n.only.below[n.asked:min(n.asked+most, len(n.only.below))]
		names := make([]string, len(some))
		for i := range some {
			names[i] = some[i].name
		}
		n.asked += len(some)
		n.more = n.asked < len(n.only.below)
		n.nodes, err = dir.Look(n.w.ctx, names)
	} else {
		n.nodes, n.more, err = dir.List(n.w.ctx, n.last, most)
	}
	n.held = len(n.nodes)
	n.w.budget -= n.held
	if n.held > 0 {
		n.last = n.nodes[n.held-1].Name
	}
	return err
}

func (n *names) release() {
	n.w.budget += n.held
	n.held = 0
}

// run walks everything.
func (w *walk) run(out visitor) error {
	w.out = out
	base, tree := &place{top: w.o.Base, dir: w.o.Base, there: true}, &place{top: w.o.Tree, dir: w.o.Tree, there: true}
	sel, done := w.ruled(selectionOf(w.o.Paths), "", base, tree)
	defer done()
	err := w.level("", 0, sel, w.o.Touched, base, tree)
	if err = errors.Join(err, out.leave(tree)); err != nil {
		return err
	}
	return out.end()
}

// lent does work on files on one thread.
func (w *walk) lent(f func() error) error {
	var err error
	if none := w.o.Root.Lend(w.ctx, func() { err = f() }); none != nil {
		return none
	}
	return err
}

// skip counts a path that cannot be looked at. What ends the whole walk is its error.
func (w *walk) skip(err error) error {
	switch root.CodeOf(err) {
	case root.Aborted, root.Broken, "":
		return err
	}
	w.totals.Unreadable++
	w.totals.Unnamed++
	return nil
}

// level compares what is in one directory. Where one of the sides cannot be listed, both
// are left out: the other one alone would look like a difference.
func (w *walk) level(path string, depth int, sel *selection, only *Touched, base, tree *place) error {
	only = only.of(sel)
	old, new := &names{w: w, place: base, only: only, more: base.there}, &names{w: w, place: tree, only: only, more: tree.there}
	defer old.release()
	defer new.release()
	err := w.lent(func() error {
		if _, err := old.peek(); err != nil {
			return err
		}
		_, err := new.peek()
		return err
	})
	l := &level{w: w, path: path, sel: sel, only: only, base: base, tree: tree, old: old, new: new}
	for err == nil {
		var e *entry
		some := func() (failed error) {
			e, err, failed = l.some()
			return failed
		}
		lend := w.lent
		if !w.omits {
			lend = func(f func() error) error { return f() } // it writes contents, or to the tree
		}
		if failed := lend(some); failed != nil {
			return failed
		}
		if err != nil || e == nil {
			continue
		}
		for n := len(l.waiting) - 1; n >= 0 && (e.name == "" || behind(l.waiting[n].name, e.name)); n-- {
			if failed := w.descend(&l.waiting[n], depth, base, tree); failed != nil {
				return failed
			}
			l.waiting = l.waiting[:n]
		}
		if e.name == "" {
			return nil
		}
		if failed := l.one(*e); failed != nil {
			return failed
		}
	}
	return w.skip(err)
}

// together is how many entries are looked at with one change of identity.
const together = 64

// level is a directory that is gone through.
type level struct {
	w          *walk
	path       string
	sel        *selection
	only       *Touched
	base, tree *place
	old, new   *names
	waiting    []below // each begins with the one before it
}

// some looks at the next entries. It gives the one before which something that waits is to be looked
// into, or that ends the level; nil where that is not known yet. err is of the directory.
func (l *level) some() (e *entry, err, failed error) {
	for range together {
		e, err := next(l.old, l.new)
		if n := len(l.waiting); err != nil || e.name == "" || n > 0 && behind(l.waiting[n-1].name, e.name) {
			return &e, err, nil
		}
		if failed := l.one(e); failed != nil {
			return nil, nil, failed
		}
	}
	return nil, nil, nil
}

// one looks at an entry, and has it wait where something below it is to be looked at.
func (l *level) one(e entry) error {
	if !l.w.mayDiffer(e) {
		return nil
	}
	b := below{entry: e, path: join(l.path, e.name), sel: l.sel.at(e.name), only: l.only.at(e.name)}
	in, err := l.w.entry(&b, l.base, l.tree)
	if in {
		l.waiting = append(l.waiting, b)
	}
	return err
}

// entry is one name, with what it is on both sides; nil for nothing.
type entry struct {
	name     string
	old, new *root.Node
}

func next(old, new *names) (e entry, err error) {
	if e.old, err = old.peek(); err != nil {
		return e, err
	}
	if e.new, err = new.peek(); err != nil {
		return e, err
	}
	switch {
	case e.old == nil && e.new == nil:
		return e, nil
	case e.new == nil || e.old != nil && e.old.Name < e.new.Name:
		e.name, e.new = e.old.Name, nil
	case e.old == nil || e.new.Name < e.old.Name:
		e.name, e.old = e.new.Name, nil
	default:
		e.name = e.old.Name
	}
	if e.old != nil {
		old.nodes = old.nodes[1:]
	}
	if e.new != nil {
		new.nodes = new.nodes[1:]
	}
	return e, nil
}

// behind reports whether what is in dir comes before name, which comes after dir.
func behind(dir, name string) bool {
	return !strings.HasPrefix(name, dir) || name[len(dir)] > '/'
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// below is an entry that is a directory on one side at least.
type below struct {
	entry
	path string
	sel  *selection
	only *Touched
	late bool // it is visited after what is in it
	// hidden: .gitignore files ignore it.
	hidden bool
}

// entry visits one name, and says whether to look at what is below it.
func (w *walk) entry(b *below, base, tree *place) (in bool, err error) {
	switch {
	case b.sel == nil || b.old != nil && b.old.Mount || b.new != nil && b.new.Mount:
		return false, nil
	case len(b.path) > MaxPath:
		w.totals.Unreadable++
		w.totals.Unnamed++
		return false, nil
	case !b.sel.left && !b.sel.whole && w.o.Exclude.Has(b.path, isDir(b.new) || b.new == nil && isDir(b.old)):
		sel := *b.sel
		sel.left = true
		b.sel = &sel
	}
	if w.omits && (w.o.NoIgnored || len(w.o.Exclude) > 0) {
		b.ignored(w.o.NoIgnored)
	}
	if err := w.out.enter(tree, b.entry); err != nil {
		return false, err
	}
	to, from := w.out.goal(b.old, b.new)
	b.late = !w.out.ordered() && isDir(from) && !isDir(to)
	in = (isDir(to) || isDir(from)) && !b.denied()
	if b.late && in {
		return true, nil
	}
	return in, w.visit(b, base, tree)
}

// applying are the names of files that an apply of another session is writing to the base before
// they take their places: no change of anybody's, and seen on one side or on both.
var applying = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\.toold-[A-Z2-7]{26}-[0-9]+$`) })

// mayDiffer is false of most entries: those that are no directories, and the same. What an
// overlay still shows of a base that has lost or replaced it is no change of the tree.
func (w *walk) mayDiffer(e entry) bool {
	if strings.HasPrefix(e.name, ".toold-") && applying().MatchString(e.name) {
		return false
	}
	if e.new != nil && e.new.Nameless && (e.old == nil || !e.old.Nameless) {
		return false
	}
	return e.old == nil || e.new == nil || isDir(e.old) || !w.unchanged(e.old, e.new)
}

// unchanged reports whether two entries count as the same without a look inside. Most
// that the tree did not touch do; of those that it did, no times say it: files of one size that were
// made at once and have changed places have the same ones.
func (w *walk) unchanged(old, new *root.Node) bool {
	if w.o.Touched != nil && old.Kind != root.KindDir {
		return false
	}
	return old.Kind == new.Kind && old.Kind != root.KindUnknown && old.Size == new.Size && old.MTime == new.MTime &&
		old.CTime == new.CTime && old.Mode == new.Mode && old.Denied == new.Denied && !new.Mount
}

func isDir(n *root.Node) bool { return n != nil && n.Kind == root.KindDir }

// denied reports whether one of the sides is a directory that cannot be listed, or may be one: it
// cannot be looked at.
func (e entry) denied() bool {
	shut := func(n *root.Node) bool {
		return n != nil && (n.Kind == root.KindUnknown || n.Kind == root.KindDir && n.Denied)
	}
	return shut(e.old) || shut(e.new)
}

// visit tells of one path, if it differs. Of a directory on the way to a selected path
// only that is told without which the path could not be.
func (w *walk) visit(b *below, base, tree *place) error {
	if to, from := w.out.goal(b.old, b.new); !b.sel.all && (!isDir(to) || isDir(from)) {
		return nil
	}
	c := &change{w: w, path: b.path, left: b.sel.left || b.hidden, old: half{node: b.old, place: base}, new: half{node: b.new, place: tree}}
	defer c.release()
	differs, err := c.compare()
	switch {
	case err != nil || !differs:
		return err
	case w.omits && b.sel.left:
		w.totals.Excluded++
		return nil
	case w.omits && b.hidden:
		w.totals.Ignored++
		return nil
	}
	w.totals.Files++
	if c.unreadable != "" {
		w.totals.Unreadable++
	}
	return w.out.visit(c)
}

// descend looks at what is in a directory.
func (w *walk) descend(b *below, depth int, base, tree *place) error {
	if depth >= openLevels {
		base.shut()
		tree.shut()
	}
	var old, new *place
	err := w.lent(func() (err error) {
		if old, err = w.child(base, b.path, b.name, isDir(b.old)); err != nil {
			return err
		}
		new, err = w.child(tree, b.path, b.name, isDir(b.new))
		return err
	})
	if err != nil {
		err = w.skip(err)
	} else {
		sel, done := w.ruled(b.sel, b.path, old, new)
		err = errors.Join(w.level(b.path, depth+1, sel, b.only, old, new), w.out.leave(new))
		done()
	}
	for _, p := range []*place{old, new} {
		if p != nil {
			p.shut()
		}
	}
	if err == nil && b.late {
		err = w.visit(b, base, tree)
	}
	return err
}

// child opens a directory in another.
func (w *walk) child(in *place, path, name string, there bool) (*place, error) {
	p := &place{top: in.top, path: path, there: there}
	if !there {
		return p, nil
	}
	var err error
	if in.dir != nil {
		p.dir, err = in.dir.Dir(w.ctx, name)
	} else {
		_, err = p.need(w.ctx)
	}
	return p, err
}

// selection is what of a directory is looked at; nil is nothing.
type selection struct {
	all  bool
	left bool // it is in Options.Exclude
	// whole: something else has taken the place of a directory above, and that is not left.
	whole    bool
	old, new *rules // of the two sides, with NoIgnored
	below    map[string]*selection
}

func selectionOf(paths []string) *selection {
	top := &selection{all: len(paths) == 0}
	for _, p := range paths {
		s := top
		for name := range strings.SplitSeq(p, "/") {
			if s.below == nil {
				s.below = make(map[string]*selection)
			}
			if s.below[name] == nil {
				s.below[name] = &selection{}
			}
			s = s.below[name]
		}
		s.all = true
	}
	return top
}

// at is what is looked at of an entry.
func (s *selection) at(name string) *selection {
	if s.all {
		return s
	}
	next := s.below[name]
	if next == nil {
		return nil
	}
	in := *s
	in.all, in.below = next.all, next.below
	return &in
}
