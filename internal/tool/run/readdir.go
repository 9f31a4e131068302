package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/root"
)

const (
	// dirPages bounds how deep into a sorted listing an offset reaches: the
	// entries before it have to be kept to sort them.
	dirPages = 50000
	// dirCount bounds how many entries are counted.
	dirCount = 2_000_000
)

// readDir shows a page of a directory's entries, sorted by name. notRegular is
// the error to give when path is no directory either.
func readDir(ctx context.Context, env *Env, path string, in readInput, most int, notRegular error) (*Result, error) {
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
	return dirPage(path, title, entries, first, count, complete, hidden, most), nil
}

func dirPage(path, title string, entries []root.Entry, first, count int, complete bool, hidden *unread, most int) *Result {
	var out strings.Builder
	last := first - 1
	var names []string
	for _, e := range entries[min(first-1, len(entries)):] {
		line := entryName(e) + "\n"
		if out.Len()+len(line) > most-footerRoom {
			break
		}
		out.WriteString(line)
		names = append(names, strings.TrimSuffix(path, "/")+"/"+e.Name)
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
	noteForms(&out, names)
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
