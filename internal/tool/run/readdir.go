package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"

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
		return Failed(title, "offset %d is past the end of %s, which has %d entries", first, title, count), nil
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
	return displayName(e.Name) + mark
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
	fmt.Fprintf(&b, "%s does not exist", displayName(path))
	dir, name := path, ""
	for dir != "/" && dir != "" {
		i := strings.LastIndexByte(dir, '/')
		dir, name = dir[:i], dir[i+1:]
		names, err := similarNames(ctx, env, dir+"/", name)
		if root.CodeOf(err) == root.NotExist {
			fmt.Fprintf(&b, ", nor does %s", displayName(dir+"/"))
			continue
		}
		if err == nil && len(names) > 0 {
			b.WriteString(". Did you mean one of these?")
			for _, n := range names {
				b.WriteString("\n" + displayName(dir+"/"+n))
			}
		}
		break
	}
	return b.String()
}

// similarNames gives the names in a directory that are most like name.
func similarNames(ctx context.Context, env *Env, dir, name string) ([]string, error) {
	type scored struct {
		name  string
		score int
	}
	var found []scored
	seen := 0
	lower := strings.ToLower(name)
	err := env.Root.ReadDir(ctx, dir, func(e root.Entry) bool {
		seen++
		if score, ok := unlikeness(lower, strings.ToLower(e.Name)); ok {
			found = append(found, scored{e.Name, score})
			if len(found) > 1000 {
				return false
			}
		}
		return seen < siblingsSeen
	})
	slices.SortFunc(found, func(a, b scored) int {
		return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.name, b.name))
	})
	var names []string
	for _, f := range found[:min(len(found), siblings)] {
		names = append(names, f.name)
	}
	return names, err
}

// unlikeness is how far two names are from each other; false when they are not
// alike. One that contains the other, such as a name without its extension, is.
func unlikeness(a, b string) (int, bool) {
	short, long := min(len(a), len(b)), max(len(a), len(b))
	if short == 0 {
		return 0, false
	}
	if short >= 3 && (strings.Contains(a, b) || strings.Contains(b, a)) {
		return long - short, true
	}
	if long-short > long/3 {
		return 0, false
	}
	d := levenshtein.ComputeDistance(a, b)
	return d, d <= max(2, long/3) && d < long // two characters in the wrong order are two changes
}
