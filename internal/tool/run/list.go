package run

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/tool/run/search"
)

// List shows a directory as a tree.
type List struct{}

// listLimit is how many entries one answer has.
const listLimit = 100

// repositories are the names of what version control keeps for itself. They are left
// out wherever they are below the directory that is listed.
var repositories = []string{".git", ".hg", ".svn", ".jj"}

// listInput is the input of list.
type listInput struct {
	Path   string   `json:"path"`
	Ignore []string `json:"ignore"`
}

// Name implements Tool.
func (List) Name() string { return "list" }

func (List) onlyFiles() {}

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
	l := &lister{root: env.Root, base: target.Path, excluded: leftOut{}}
	if l.hidden, err = unreadOf(env); err != nil {
		return nil, err
	}
	if l.ignore, err = ignoreGlobs(in.Ignore, target.Path); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, remaining(ctx))
	defer cancel()
	top := &listNode{path: target.Path}
	lent := env.Root.Lend(limited, func() { err = l.readAll(limited, top) })
	err = cmp.Or(lent, err)
	l.partial = err != nil && limited.Err() != nil && ctx.Err() == nil
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

	ignores *search.Ignores

	count    int
	more     bool
	partial  bool // the time was up
	excluded leftOut
	asked    int    // left out by the input's own globs
	unsure   string // why not all ignore files count
}

// listNode is an entry of the tree; path is canonical.
type listNode struct {
	path     string
	kind     root.Kind
	place    search.Place // where it is
	children []*listNode
	note     string // what else there is to say
}

func (n *listNode) name() string { return path.Base(n.path) }

// readAll reads the tree below top, as far as the answer has room for it.
func (l *lister) readAll(ctx context.Context, top *listNode) error {
	l.ignores = search.NewIgnores(ctx, l.root, l.base)
	defer l.ignores.Close()
	err := l.read(ctx, top)
	if err == nil {
		err = l.expand(ctx, slices.Clone(top.children))
	}
	l.unsure = l.ignores.Partial()
	return err
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
	place := l.placeOf(dir)
	err := l.root.ReadDir(ctx, dir.path, func(e root.Entry) bool {
		if ctx.Err() != nil {
			return false
		}
		node := &listNode{path: path.Join(dir.path, e.Name), kind: e.Kind, place: place}
		if l.hidden.hidesName(node.path) || l.ignored(node) {
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

func listOrder(a, b *listNode) int {
	if (a.kind == root.KindDir) != (b.kind == root.KindDir) {
		if a.kind == root.KindDir {
			return -1
		}
		return 1
	}
	return cmp.Compare(a.name(), b.name())
}

// placeOf is dir with the ignore files that count in it.
func (l *lister) placeOf(dir *listNode) search.Place {
	if dir.path == l.base {
		return l.ignores.Top()
	}
	return l.ignores.Below(dir.place, dir.path)
}

// ignored reports whether an entry is not shown, and counts it then.
func (l *lister) ignored(n *listNode) bool {
	rel, dir := below(n.path, l.base), n.kind == root.KindDir
	switch {
	case slices.ContainsFunc(l.ignore, func(s *selector) bool { return s.match(rel) }):
		l.asked++
	case slices.Contains(repositories, n.name()), l.ignores.Excluded(n.place, n.path, dir):
		if dir {
			rel += "/"
		}
		l.excluded.add(rel)
	default:
		return false
	}
	return true
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
	l.write(ctx, env, &b, top, 1)
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
	l.note(&b, meta)
	l.hidden.note(&b, meta, l.more || l.partial, "entry left out", "entries left out")
	return &Result{Title: relative(env, top.path), Output: b.String(), Metadata: meta}
}

// note says at the end of an answer what it leaves out.
func (l *lister) note(b *strings.Builder, meta map[string]any) {
	if l.unsure != "" {
		fmt.Fprintf(b, "\n(Not all that is to be left out is: %s.)\n", l.unsure)
	}
	if l.asked > 0 {
		fmt.Fprintf(b, "\n(Left out by ignore: %s.)\n", entries(l.asked))
		meta["ignored"] = l.asked
	}
	if l.excluded.count == 0 {
		return
	}
	names := l.excluded.shown()
	fmt.Fprintf(b, "\n(Left out, since ignore files such as .gitignore exclude it or version control keeps it for itself: %s. To see into a directory give it as path.)\n", names)
	meta["excluded"] = l.excluded.count
}

func entries(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}

func (l *lister) write(ctx context.Context, env *Env, b *strings.Builder, dir *listNode, depth int) {
	for _, n := range dir.children {
		b.WriteString(strings.Repeat("  ", depth))
		b.WriteString(plain.Name(n.name()))
		b.WriteString(mark(ctx, env, n))
		b.WriteString(n.note + "\n")
		l.write(ctx, env, b, n, depth+1)
	}
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
