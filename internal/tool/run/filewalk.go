package run

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/globpath"
	"github.com/toold/toold/internal/tool/run/root"
)

// fileWalk finds the files below a directory that a selector picks.
type fileWalk struct {
	place place
	base  string    // canonical
	sel   *selector // nil = all
	// all: files that ignore files exclude are found too, and so is what is in .git.
	all   bool
	small bool              // there is little to walk
	found func(path string) // called by one goroutine at a time
}

// run walks with ripgrep.
func (f *fileWalk) run(ctx context.Context, env *Env, timeout time.Duration) (searchEnd, error) {
	args := []string{"--files", "--null"}
	if f.sel != nil {
		if glob := f.sel.typeGlob(); glob != "" {
			args = append(args, "--type-add=toold:"+glob, "--type=toold")
		}
	}
	run := ripgrepRun{
		args: args, place: f.place, all: f.all, small: f.small, timeout: timeout,
		out: &splitter{fields: []splitField{{end: 0, keep: grepPathBytes}}, visit: func(r [][]byte) bool {
			if name := f.place.path(string(r[0])); f.sel == nil || f.sel.match(below(name, f.base)) {
				f.found(name)
			}
			return true
		}},
	}
	return run.run(ctx, env)
}

// whyTime bounds the second look of whyNone.
const whyTime = 5 * time.Second

// whyNone says why a search for files found none, as far as that can be seen: the
// directory that the pattern names is not there or is a link, or ignore files exclude
// what it matches. It is "" where nothing of that holds.
func whyNone(ctx context.Context, env *Env, f fileWalk, pattern string) string {
	if why := namedDir(ctx, env, f.base, pattern); why != "" {
		return why
	}
	if info, err := env.Root.Resolve(ctx, path.Join(f.base, pattern)); err == nil && info.Exists && info.Kind == root.KindDir && pattern != "" {
		return fmt.Sprintf("\n(%s is a directory, and files are found: give the pattern as %s to find what is in it.)\n", plain.Name(info.Path), plain.Name(pattern+"/**"))
	}
	hidden, err := unreadOf(env)
	if err != nil {
		return ""
	}
	if why := f.inOtherForm(ctx, env, pattern, hidden); why != "" {
		return why
	}
	count, first := 0, ""
	f.all = true
	f.found = func(name string) {
		if hidden.hidesName(name) {
			return
		}
		if count++; first == "" || name < first {
			first = name
		}
	}
	end, err := f.run(ctx, env, min(remaining(ctx), whyTime))
	if err != nil || count == 0 {
		return ""
	}
	next := "read and edit open it by its name; bash finds all such files"
	if dir := f.findable(ctx, env, first); dir != "" {
		next = "set path to " + plain.Name(dir) + " to find what is there"
	}
	return excluded(count, end.partial != "", first, next)
}

// inOtherForm says that a pattern finds files in another Unicode form.
func (f fileWalk) inOtherForm(ctx context.Context, env *Env, pattern string, hidden *unread) string {
	for _, other := range otherUnicode(pattern) {
		sel, err := newSelector(other, f.base)
		if err != nil {
			continue
		}
		first := ""
		f.sel, f.found = sel, func(name string) {
			if first == "" && !hidden.hidesName(name) {
				first = name
			}
		}
		if _, err := f.run(ctx, env, min(remaining(ctx), whyTime)); err == nil && first != "" {
			return fmt.Sprintf("\n(The same letters in another Unicode form find files, for example %s: give the pattern as %s.)\n",
				strconv.QuoteToASCII(first), strconv.QuoteToASCII(other))
		}
	}
	return ""
}

// excluded says that ignore files keep count files from a search, or at least so many,
// and what to do about the first.
func excluded(count int, least bool, first, next string) string {
	match := plain.Count(count, "file matches", "files match")
	if least {
		match = "at least " + match
	}
	return fmt.Sprintf("\n(%s that ignore files such as .gitignore exclude, for example %s: %s.)\n", match, plain.Name(first), next)
}

// findable is the directory of the file name, if a search that is given this
// directory as path finds the file; otherwise it is "".
func (f fileWalk) findable(ctx context.Context, env *Env, name string) string {
	dir := path.Dir(name)
	sel, err := newSelector(literalGlob(path.Base(name)), dir)
	if err != nil || dir == f.base {
		return ""
	}
	seen := false
	again := fileWalk{
		place: placeOf(root.Info{Path: dir, Kind: root.KindDir}), base: dir, sel: sel, small: f.small,
		found: func(found string) { seen = seen || found == name },
	}
	if _, err := again.run(ctx, env, min(remaining(ctx), whyTime)); err != nil || !seen {
		return ""
	}
	return dir
}

// literalGlob is a glob that matches name and nothing else.
func literalGlob(name string) string {
	var b strings.Builder
	for _, r := range name {
		if strings.ContainsRune(`*?[]{}\!,`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return "/" + b.String()
}

// namedDir says why nothing can be found in the directory of base that a pattern begins
// with; "" = it can.
func namedDir(ctx context.Context, env *Env, base, pattern string) string {
	dir := strings.TrimPrefix(globpath.Fixed(pattern), "/")
	if dir == "" || strings.HasPrefix(pattern, base+"/") {
		return ""
	}
	at := path.Join(base, dir)
	info, err := env.Root.Resolve(ctx, at)
	switch {
	case err != nil:
		return ""
	case !info.Exists && path.IsAbs(pattern):
		return fmt.Sprintf("\n(%s does not exist: the pattern is matched below %s. To search another directory set path.)\n", plain.Name(at), plain.Name(base))
	case !info.Exists:
		return fmt.Sprintf("\n(%s)\n", notFound(ctx, env, at))
	case info.Path != at:
		return fmt.Sprintf("\n(%s leads to %s, and links are not followed: set path to that.)\n", plain.Name(at), plain.Name(info.Path))
	}
	return ""
}
