package search

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/toold/toold/internal/tool/run/root"
)

// Bounds of ignore files. A repository's come to some kilobytes.
const (
	ignoreFileBytes  = 1 << 20  // of one file
	ignoreTotalBytes = 32 << 20 // of all that one search reads, in memory
)

// level holds the rules of one directory; those of the directories above it are
// reached through parent.
type level struct {
	parent *level
	dir    string // canonical
	// hasGit: the directory has a .git. The rules for git of directories above it
	// are those of another repository.
	hasGit bool

	rgignore, ignore, gitignore, exclude rules
}

// ignored reports whether the rules leave out full, a canonical path below the
// level's directory.
func (l *level) ignored(m *globber, full string, dir bool) bool {
	var rg, ig, git, exclude verdict
	sawGit := false
	for ; l != nil; l = l.parent {
		rel := relTo(full, l.dir)
		if rg == silent {
			rg = l.rgignore.judge(m, rel, dir)
		}
		if ig == silent {
			ig = l.ignore.judge(m, rel, dir)
		}
		if !sawGit {
			if git == silent {
				git = l.gitignore.judge(m, rel, dir)
			}
			if exclude == silent {
				exclude = l.exclude.judge(m, rel, dir)
			}
		}
		sawGit = sawGit || l.hasGit
	}
	for _, v := range []verdict{rg, ig, git, exclude} {
		if v != silent {
			return v == ignored
		}
	}
	return false
}

// relTo is the part of full behind dir, both canonical.
func relTo(full, dir string) string {
	if dir == "/" {
		return full[1:]
	}
	return full[len(dir)+1:]
}

// ignoreReader reads ignore files.
type ignoreReader struct {
	root *root.Root
	base string // the directory that is searched
	// spend takes n bytes from what the rules of the search may take; false says
	// that there are none left.
	spend func(n int) bool
	// cut is called with a file of which not everything was read.
	cut func(path string)
}

// chain are the levels above the directory that is searched. Those without rules
// are left out.
func (r *ignoreReader) chain(ctx context.Context) *level {
	var dirs []string
	for dir := r.base; dir != "/"; {
		dir = path.Dir(dir)
		dirs = append(dirs, dir)
	}
	var l *level
	for _, dir := range slices.Backward(dirs) {
		l = r.level(ctx, l, dir)
	}
	return l
}

// level reads the rules of a directory; where there are none it gives parent.
func (r *ignoreReader) level(ctx context.Context, parent *level, dir string) *level {
	l := &level{parent: parent, dir: dir}
	prefix := strings.TrimSuffix(dir, "/") + "/"
	l.rgignore = r.read(ctx, prefix+".rgignore")
	l.ignore = r.read(ctx, prefix+".ignore")
	l.gitignore = r.read(ctx, prefix+".gitignore")
	switch r.kind(ctx, prefix+".git") {
	case root.KindFile:
		l.hasGit = true
		l.exclude = r.linked(ctx, prefix+".git")
	case root.KindDir:
		l.hasGit = true
		l.exclude = r.read(ctx, prefix+".git/info/exclude")
	case "":
	default:
		l.hasGit = true
	}
	if !l.hasGit && l.rgignore == nil && l.ignore == nil && l.gitignore == nil {
		return parent
	}
	return l
}

// kind is what a path leads to; "" is nothing.
func (r *ignoreReader) kind(ctx context.Context, name string) root.Kind {
	info, err := r.root.Lstat(ctx, name)
	if err != nil {
		return ""
	}
	if info.Kind == root.KindSymlink {
		if info, err = r.root.Resolve(ctx, name); err != nil || !info.Exists {
			return ""
		}
	}
	return info.Kind
}

// linked reads the exclude file of the repository that a working tree beside it
// belongs to; name is its .git file.
func (r *ignoreReader) linked(ctx context.Context, name string) rules {
	dir, ok := strings.CutPrefix(firstLine(r.text(ctx, name)), "gitdir: ")
	if !ok {
		return nil
	}
	if !path.IsAbs(dir) {
		dir = r.base + "/" + dir
	}
	common := firstLine(r.text(ctx, dir+"/commondir"))
	switch {
	case common == "":
		return nil
	case strings.HasPrefix(common, "."):
		common = dir + "/" + common
	case !path.IsAbs(common):
		common = r.base + "/" + common
	}
	return r.read(ctx, common+"/info/exclude")
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return strings.TrimSuffix(line, "\r")
}

func (r *ignoreReader) read(ctx context.Context, name string) rules {
	text := r.text(ctx, name)
	if text == "" {
		return nil
	}
	return parseRules(text, r.spend)
}

// text is what a small file holds; "" when there is none that can be read. A
// link is followed, within the root.
func (r *ignoreReader) text(ctx context.Context, name string) string {
	f, err := r.root.Open(ctx, name)
	if root.CodeOf(err) == root.Stale {
		_, f, err = r.root.Look(ctx, name)
	}
	if err != nil || f == nil {
		return ""
	}
	defer func() { _ = f.Close() }() // it was only read
	data := make([]byte, min(f.Info().Size, ignoreFileBytes)+1)
	n := 0
	for n < len(data) {
		k, err := f.Read(data[n:])
		n += k
		if err != nil {
			break
		}
	}
	if n > ignoreFileBytes {
		r.cut(name)
		n = strings.LastIndexByte(string(data[:n]), '\n') + 1
	}
	return string(data[:n])
}
