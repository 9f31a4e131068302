package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/root"
)

const (
	// dirPages bounds how deep into a sorted listing an offset reaches: the
	// entries before it have to be kept to sort them.
	dirPages = 50000
	// dirCount bounds how many entries are counted.
	dirCount = 2_000_000
	// siblingsSeen bounds the entries that are compared with a missing name.
	siblingsSeen = 20000
	siblings     = 3
)

// readDir shows a page of a directory's entries, sorted by name. notRegular is
// the error to give when path is no directory either.
func readDir(ctx context.Context, env *Env, path string, in readInput, notRegular error) (*Result, error) {
	title := relative(env, path)
	first, limit := max(in.Offset, 1), in.Limit
	if limit <= 0 || limit > readLines {
		limit = readLines
	}
	if first+limit-1 > dirPages {
		return Failed(title, "a listing can be read up to entry %d; use glob with a pattern, or bash, for more", dirPages), nil
	}
	hidden, err := unreadOf(env)
	if err != nil {
		return nil, err
	}
	least := smallest{n: first + limit - 1}
	count, complete := 0, true
	err = env.Root.ReadDir(ctx, path, func(e root.Entry) bool {
		if count == dirCount {
			complete = false
			return false
		}
		if hidden.hidesName(strings.TrimSuffix(path, "/") + "/" + e.Name) {
			return true
		}
		count++
		least.add(e)
		return true
	})
	if root.CodeOf(err) == root.NotRegular {
		err = notRegular
	}
	if err != nil {
		return failure(title, err)
	}
	entries := least.sorted()
	if first > 1 && first > len(entries) {
		return Failed(title, "offset %d is past the end of %s, which has %s", first, title, plain.Count(count, "entry", "entries")), nil
	}
	return dirPage(path, title, entries, first, count, complete, hidden), nil
}

func dirPage(path, title string, entries []root.Entry, first, count int, complete bool, hidden *unread) *Result {
	var out strings.Builder
	last := first - 1
	for _, e := range entries[min(first-1, len(entries)):] {
		line := entryName(e) + "\n"
		if out.Len()+len(line) > readBytes-footerRoom {
			break
		}
		out.WriteString(line)
		last++
	}
	more := last < count || !complete
	meta := map[string]any{
		"path": path, "kind": "dir", "first_entry": first, "last_entry": last,
		"total_entries": count, "total_exact": complete, "truncated": more,
	}
	atLeast := ""
	if !complete {
		atLeast = "at least "
	}
	switch {
	case count == 0:
		out.WriteString("(the directory is empty)")
	case more:
		meta["next_offset"] = last + 1
		fmt.Fprintf(&out, "\n(entries %d-%d of %s%d; go on with offset %d)", first, last, atLeast, count, last+1)
	default:
		fmt.Fprintf(&out, "\n(entries %d-%d of %d)", first, last, count)
	}
	hidden.note(&out, meta, !complete, "entry left out", "entries left out")
	return &Result{Title: title, Output: out.String(), Metadata: meta}
}

// entryName marks what is not a regular file, as ls -F does.
func entryName(e root.Entry) string {
	mark := map[root.Kind]string{
		root.KindDir: "/", root.KindSymlink: "@", root.KindFIFO: "|", root.KindSocket: "=", root.KindDevice: "%",
	}[e.Kind]
	return plain.Name(e.Name) + mark
}

// smallest keeps the n entries that come first by name, of any number. It holds
// at most twice as many.
type smallest struct {
	n       int
	entries []root.Entry
}

func (s *smallest) add(e root.Entry) {
	s.entries = append(s.entries, e)
	if len(s.entries) >= 2*max(s.n, 1000) {
		s.entries = s.sorted()
	}
}

func (s *smallest) sorted() []root.Entry {
	slices.SortFunc(s.entries, func(a, b root.Entry) int { return cmp.Compare(a.Name, b.Name) })
	return s.entries[:min(s.n, len(s.entries))]
}

// notFound words that path does not exist, with what else it could mean: names
// like the missing one in the nearest directory that exists.
func notFound(ctx context.Context, env *Env, path string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s does not exist", plain.Name(path))
	if here := inWorktree(ctx, env, path); here != "" {
		fmt.Fprintf(&b, ". The worktree is %s, and has %s", plain.Name(env.Worktree), plain.Name(here))
		return b.String()
	}
	dir, name := path, ""
	for dir != "/" && dir != "" {
		i := strings.LastIndexByte(dir, '/')
		dir, name = dir[:i], dir[i+1:]
		near, err := similarNames(ctx, env, dir+"/", name)
		if root.CodeOf(err) == root.NotExist {
			fmt.Fprintf(&b, ", nor does %s", plain.Name(dir+"/"))
			continue
		}
		if dir == "" && name != "" && path != "/"+name {
			fmt.Fprintf(&b, ". The worktree is %s", plain.Name(env.Worktree))
		}
		switch {
		case near.same != "":
			fmt.Fprintf(&b, ". One of the same letters in another Unicode form does: give it as %s", strconv.QuoteToASCII(dir+"/"+near.same))
		case len(near.names) > 0:
			b.WriteString(". Did you mean one of these?")
			for _, n := range near.names {
				b.WriteString("\n" + plain.Name(dir+"/"+n))
			}
		}
		break
	}
	return b.String()
}

// nearNames are those in a directory that a missing name may have been meant to be.
type nearNames struct {
	same  string // has the same letters in another Unicode form
	names []string
}

// inWorktree is the file of the worktree that a missing path elsewhere may mean, as it may be that
// of another machine (/repo/a/b): the one with most of its last names; "" is none.
func inWorktree(ctx context.Context, env *Env, path string) string {
	hidden, err := unreadOf(env)
	if err != nil || path == env.Worktree || strings.HasPrefix(path, env.Worktree+"/") {
		return ""
	}
	for rest := path; rest != ""; {
		at := env.Worktree + rest
		if _, _, err := env.Root.Peek(ctx, at); err == nil && !hidden.hidesName(at) {
			return at
		}
		next := strings.IndexByte(rest[1:], '/')
		if next < 0 {
			break
		}
		rest = rest[1+next:]
	}
	return ""
}

// similarNames gives the names in a directory that are most like name. What no file
// tool opens is none of them.
func similarNames(ctx context.Context, env *Env, dir, name string) (near nearNames, err error) {
	type scored struct {
		name  string
		score int
	}
	var found []scored
	seen := 0
	lower, form := strings.ToLower(name), norm.NFC.String(name)
	hidden, err := unreadOf(env)
	if err != nil {
		return near, err
	}
	err = env.Root.ReadDir(ctx, dir, func(e root.Entry) bool {
		seen++
		switch e.Kind {
		case root.KindSocket, root.KindFIFO, root.KindDevice:
			return true
		}
		if hidden.hidesName(dir + e.Name) {
			return true
		}
		if e.Name != name && norm.NFC.String(e.Name) == form {
			near.same = e.Name
			return false
		}
		if score, ok := unlikeness(lower, strings.ToLower(e.Name)); ok {
			found = append(found, scored{e.Name, score})
		}
		return seen < siblingsSeen && len(found) <= 1000
	})
	slices.SortFunc(found, func(a, b scored) int {
		return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.name, b.name))
	})
	for _, f := range found[:min(len(found), siblings)] {
		near.names = append(near.names, f.name)
	}
	return near, err
}

// unlikeness is how far name is from other; false when they are not alike. One that
// contains the other, such as a name without its extension, is.
func unlikeness(name, other string) (int, bool) {
	short, long := min(len(name), len(other)), max(len(name), len(other))
	if short >= 3 && (strings.Contains(name, other) || strings.Contains(other, name)) {
		return long - short, true
	}
	return plain.Alike(name, other)
}
