package run

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/toold/toold/internal/tool/run/root"
)

// List shows a directory as a tree.
type List struct{}

// listLimit is how many entries one answer has.
const listLimit = 100

// junk are the names of directories that tools make or fetch and that say
// nothing about a project. They are left out wherever they are below the
// directory that is listed; given as path they are listed like any other.
var junk = []string{
	".git", ".hg", ".svn", ".jj",
	"node_modules", "bower_components", "vendor", ".venv", "venv",
	"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".eggs",
	"dist", "build", "target", "out", "bin", "obj",
	".next", ".nuxt", ".svelte-kit", ".turbo", ".parcel-cache",
	".gradle", ".terraform", ".zig-cache", "zig-out",
	".cache", "coverage", "tmp", "temp", "logs", ".idea", ".vscode",
}

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
		return failure(displayName(in.Path), err)
	}
	l := &lister{root: env.Root, base: target.Path}
	if l.hidden, err = unreadOf(env); err != nil {
		return nil, err
	}
	if l.ignore, err = ignoreGlobs(in.Ignore, target.Path); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, remaining(ctx))
	defer cancel()
	top := &listNode{path: target.Path}
	if err = l.read(limited, top); err == nil {
		err = l.expand(limited, slices.Clone(top.children))
	}
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

	count   int
	more    bool
	partial bool // the time was up
}

// listNode is an entry of the tree; path is canonical.
type listNode struct {
	path     string
	kind     root.Kind
	children []*listNode
	note     string // what else there is to say
}

func (n *listNode) name() string { return path.Base(n.path) }

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
		if l.ignored(node) || l.hidden.hidesName(node.path) {
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

func (l *lister) ignored(n *listNode) bool {
	if n.kind == root.KindDir && slices.Contains(junk, n.name()) {
		return true
	}
	rel := below(n.path, l.base)
	return slices.ContainsFunc(l.ignore, func(s *selector) bool { return s.match(rel) })
}

func readNote(err error) string {
	if root.CodeOf(err) == root.Denied {
		return "not readable"
	}
	return "cannot be listed"
}

func (l *lister) result(ctx context.Context, env *Env, top *listNode) *Result {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/\n", displayName(strings.TrimSuffix(top.path, "/")))
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
	l.hidden.note(&b, meta, l.more || l.partial, "entry left out", "entries left out")
	return &Result{Title: relative(env, top.path), Output: b.String(), Metadata: meta}
}

func (l *lister) write(ctx context.Context, env *Env, b *strings.Builder, dir *listNode, depth int) {
	for _, n := range dir.children {
		b.WriteString(strings.Repeat("  ", depth))
		b.WriteString(displayName(n.name()))
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
