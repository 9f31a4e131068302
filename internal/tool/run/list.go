package run

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/root"
)

// List shows a directory as a tree: the files that glob finds there, the directories that
// they are in or that hold no file, and what is neither.
type List struct{}

// listLimit is how many entries one answer has.
const listLimit = 100

// listInput is the input of list.
type listInput struct {
	Path   string   `json:"path"`
	Ignore []string `json:"ignore"`
}

// Name implements Tool.
func (List) Name() string { return "list" }

// Prepare implements Tool.
func (List) Prepare(ctx context.Context, env *Env, input json.RawMessage) (*Prepared, error) {
	return prepareSearch(ctx, env, input, false)
}

// Run implements Tool.
func (List) Run(ctx context.Context, env *Env, input json.RawMessage, prep *Prepared) (*Result, error) {
	var in listInput
	if err := decodeInput(input, &in); err != nil {
		return nil, err
	}
	target, err := searchTarget(ctx, env, in.Path, prep, false)
	if err != nil {
		return failure(plain.Name(in.Path), err)
	}
	l := &lister{root: env.Root, base: target.Path, excluded: plain.Names{}}
	if l.hidden, err = unreadOf(env); err != nil {
		return nil, err
	}
	if l.ignore, err = ignoreGlobs(in.Ignore, target.Path); err != nil {
		return nil, err
	}
	timeout := remaining(ctx)
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	top := &listNode{path: target.Path}
	if top.found, err = l.find(limited, env, placeOf(target), timeout); err != nil {
		return searchFailure(in.Path, err)
	}
	lent := env.Root.Lend(limited, func() { err = l.readAll(limited, top) })
	err = cmp.Or(lent, err)
	l.partial = l.unknown || err != nil && limited.Err() != nil && ctx.Err() == nil
	switch {
	case err == nil || l.partial:
	case ctx.Err() != nil:
		return nil, Errorf(CodeAborted, "the listing was stopped before it was done")
	default:
		return failure(relative(env, target.Path), err)
	}
	return l.result(ctx, env, top), nil
}

func ignoreGlobs(globs []string, base string) ([]*selector, error) {
	var out []*selector
	for _, glob := range globs {
		if strings.HasPrefix(glob, "!") {
			return nil, Errorf(CodeInvalidInput, "ignore has the glob %q: one that begins with ! cannot be ignored; leave it out", glob)
		}
		sel, err := newSelector(strings.TrimSuffix(glob, "/"), base)
		if err != nil {
			return nil, err
		}
		out = append(out, sel)
	}
	return out, nil
}

// lister gathers the tree of one call, level by level: where not everything
// fits, the upper levels say more than the depths of the first directory.
type lister struct {
	root   *root.Root
	base   string
	ignore []*selector
	hidden *unread

	count    int
	more     bool
	partial  bool // the time was up
	unknown  bool // what ignore files exclude, so it is shown
	excluded plain.Names
	asked    int // left out by the input's own globs
}

// listNode is an entry of the tree; path is canonical.
type listNode struct {
	path     string
	kind     root.Kind
	found    *findings // of a directory what searches find in it; nil = nothing
	bare     bool      // a directory with no file anywhere below it
	children []*listNode
	note     string // what else there is to say
}

func (n *listNode) name() string { return path.Base(n.path) }

func (n *listNode) key() (dir bool, name string) { return n.kind == root.KindDir, n.name() }

// find asks ripgrep which files searches find below the directory.
func (l *lister) find(ctx context.Context, env *Env, where place, timeout time.Duration) (*findings, error) {
	all := newFindings()
	small := glimpseAt(ctx, env.Root, nil, l.base, smallTree).whole
	walk := fileWalk{place: where, base: l.base, small: small, found: func(name string) { all.add(below(name, l.base)) }}
	end, err := walk.run(ctx, env, timeout*2/3) // the rest is for reading what is shown
	if err == nil && end.fatal != "" {
		err = Errorf(CodeSandboxFailed, "ripgrep cannot list files: %s", end.fatal)
	}
	l.unknown = end.partial != ""
	return all.top, err
}

// readAll reads the tree below top, as far as the answer has room for it.
func (l *lister) readAll(ctx context.Context, top *listNode) error {
	if err := l.read(ctx, top); err != nil {
		return err
	}
	return l.expand(ctx, slices.Clone(top.children))
}

// expand reads the directories among nodes and those below them, until the
// answer is full. An error means that ctx ended; what was read until then stays.
func (l *lister) expand(ctx context.Context, nodes []*listNode) error {
	for ; len(nodes) > 0 && !l.more; nodes = nodes[1:] {
		dir := nodes[0]
		if dir.kind != root.KindDir {
			continue
		}
		if err := l.read(ctx, dir); err != nil {
			if ctx.Err() != nil {
				return err
			}
			dir.note = " (" + readNote(err) + ")"
		}
		nodes = append(nodes, dir.children...)
	}
	return nil
}

// read fills in the children of dir, as many as the answer still has room for:
// directories first, then by name. Only those are held in memory, however many
// entries the directory has.
func (l *lister) read(ctx context.Context, dir *listNode) error {
	room := listLimit - l.count
	err := l.root.ReadDir(ctx, dir.path, func(e root.Entry) bool {
		if ctx.Err() != nil {
			return false
		}
		node := &listNode{path: path.Join(dir.path, e.Name), kind: e.Kind}
		if l.hidden.hidesName(node.path) || l.leftOut(ctx, dir, node) {
			return true
		}
		at, _ := slices.BinarySearchFunc(dir.children, node, listOrder)
		if len(dir.children) == room {
			l.more = true
			if at == room {
				return room > 0 // without room one entry is all there is to know
			}
			dir.children = dir.children[:room-1]
		}
		dir.children = slices.Insert(dir.children, at, node)
		return true
	})
	l.count += len(dir.children)
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// listOrder has directories first, then goes by name.
func listOrder[T interface {
	key() (dir bool, name string)
}](a, b T) int {
	aDir, aName := a.key()
	bDir, bName := b.key()
	switch {
	case aDir == bDir:
		return cmp.Compare(aName, bName)
	case aDir:
		return -1
	}
	return 1
}

// leftOut reports whether an entry of dir is not shown, and counts it then.
func (l *lister) leftOut(ctx context.Context, dir, n *listNode) bool {
	rel := below(n.path, l.base)
	switch {
	case slices.ContainsFunc(l.ignore, func(s *selector) bool { return s.match(rel) }):
		l.asked++
	case slices.Contains(repositories, n.name()), l.isExcluded(ctx, dir, n):
		if n.kind == root.KindDir {
			rel += "/"
		}
		l.excluded.Add(rel)
	default:
		return false
	}
	return true
}

// isExcluded reports whether ignore files exclude an entry of dir: a file that searches do
// not find, or a directory in which they find none of the files that are there.
func (l *lister) isExcluded(ctx context.Context, dir, n *listNode) bool {
	if dir.bare || l.unknown || n.kind != root.KindFile && n.kind != root.KindDir {
		n.bare = dir.bare
		return false
	}
	found, known := dir.found.child(n.name(), n.kind == root.KindDir)
	n.found = found
	switch {
	case !known || found != nil:
		return false
	case n.kind == root.KindFile:
		return true
	}
	looks := bareLooks
	n.bare = !l.hasFile(ctx, n.path, &looks)
	return !n.bare
}

// bareLooks is how many entries are looked at to see whether a directory holds a file.
const bareLooks = 1000

// hasFile reports whether there is a regular file below dir, as far as it can be seen.
func (l *lister) hasFile(ctx context.Context, dir string, looks *int) bool {
	has := false
	var dirs []string
	// What cannot be read holds nothing that could be left out.
	_ = l.root.ReadDir(ctx, dir, func(e root.Entry) bool {
		*looks--
		switch {
		case slices.Contains(repositories, e.Name):
		case e.Kind == root.KindFile:
			has = true
		case e.Kind == root.KindDir:
			dirs = append(dirs, path.Join(dir, e.Name))
		}
		return !has && *looks > 0
	})
	for ; !has && *looks > 0 && len(dirs) > 0; dirs = dirs[1:] {
		has = l.hasFile(ctx, dirs[0], looks)
	}
	return has
}

func readNote(err error) string {
	if root.CodeOf(err) == root.Denied {
		return "not readable"
	}
	return "cannot be listed"
}

func (l *lister) result(ctx context.Context, env *Env, top *listNode) *Result {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/\n", plain.Name(strings.TrimSuffix(top.path, "/")))
	names := l.write(ctx, env, &b, top, 1)
	meta := map[string]any{"count": l.count, "more": l.more, "truncated": l.more || l.partial}
	switch {
	case l.partial:
		fmt.Fprintf(&b, "\n(The listing is incomplete: its time was up after %s.)\n", searchDeadline)
		meta["partial"] = true
	case l.more:
		fmt.Fprintf(&b, "\n(There are more entries than these %d. List a directory further down, or ignore some.)\n", l.count)
	case l.count == 0:
		b.WriteString("  (empty)\n")
	}
	noteForms(&b, names)
	l.note(&b, meta)
	l.hidden.note(&b, meta, l.more || l.partial, "entry left out", "entries left out")
	return &Result{Title: relative(env, top.path), Output: b.String(), Metadata: meta}
}

// note says at the end of an answer what it leaves out.
func (l *lister) note(b *strings.Builder, meta map[string]any) {
	if l.unknown {
		b.WriteString("\n(What ignore files exclude is not left out: it was not known in time.)\n")
	}
	if l.asked > 0 {
		fmt.Fprintf(b, "\n(Left out by ignore: %s.)\n", plain.Count(l.asked, "entry", "entries"))
		meta["ignored"] = l.asked
	}
	if l.excluded.N == 0 {
		return
	}
	names := l.excluded.String()
	fmt.Fprintf(b, "\n(Left out, since ignore files such as .gitignore exclude it or version control keeps it for itself: %s. To see into a directory give it as path.)\n", names)
	meta["excluded"] = l.excluded.N
}

// write writes what is below dir, and gives the paths of all of it.
func (l *lister) write(ctx context.Context, env *Env, b *strings.Builder, dir *listNode, depth int) (names []string) {
	for _, n := range dir.children {
		names = append(names, n.path)
		b.WriteString(strings.Repeat("  ", depth))
		b.WriteString(plain.Name(n.name()))
		b.WriteString(mark(ctx, env, n))
		b.WriteString(n.note + "\n")
		names = append(names, l.write(ctx, env, b, n, depth+1)...)
	}
	return names
}

// mark shows what an entry is, as far as it is no regular file, and where a
// link leads.
func mark(ctx context.Context, env *Env, n *listNode) string {
	switch n.kind {
	case root.KindFile:
		return ""
	case root.KindDir:
		return "/"
	case root.KindSymlink:
		info, err := env.Root.Resolve(ctx, n.path)
		if err != nil {
			return " -> (leads nowhere)"
		}
		return " -> " + relative(env, info.Path)
	default:
		return fmt.Sprintf(" (%s)", n.kind)
	}
}
