package errand

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/sensitive"
	"github.com/toold/toold/internal/strictjson"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/tool/run/treediff"
)

const (
	// treeTime bounds the agent's work on a worktree.
	treeTime = 10 * time.Minute
	// MaxChanges bounds the changes of one page, defaultChanges are those of one that
	// does not say how many it wants.
	MaxChanges     = 10_000
	defaultChanges = 1000
	// maxChangesBytes bounds what the agent says of a page, maxChangeLine of one change:
	// of its path each byte may take six, and four thirds more.
	maxChangesBytes = 64 << 20
	maxChangeLine   = 8*treediff.MaxPath + 4096
	maxUnreadable   = 512
	maxTotals       = 4 << 10
)

// TreeDiff writes a patch or an archive of what differs in the worktree to w, which holds
// the agent back where it is slow. The bytes are the session's and may be anything; where
// TreeDiff fails, w has a part of them. More than most bytes are ErrTooLong; 0 = no bound.
func (e *Errand) TreeDiff(ctx context.Context, q run.DiffQuery, most int64, w io.Writer) (treediff.Totals, error) {
	return e.tree(ctx, run.DiffJob(q), most, w)
}

// TreeChanges lists what differs in the worktree. q.Against is the name that the agent
// knows. q.After is the Next of the page before. A page of long paths has fewer than q.Limit.
func (e *Errand) TreeChanges(ctx context.Context, q client.DiffQuery) (*client.Changes, error) {
	return e.TreeTouched(ctx, q, nil)
}

// TreeTouched is TreeChanges of what was touched, which is that of a run.DiffQuery.
func (e *Errand) TreeTouched(ctx context.Context, q client.DiffQuery, touched []byte) (*client.Changes, error) {
	after, err := base64.RawURLEncoding.DecodeString(q.After)
	if err != nil {
		return nil, fmt.Errorf("after %s: it is the next of no page", plain.Name(plain.Cut(q.After, maxChangeLine)))
	}
	limit := min(q.Limit, MaxChanges)
	if limit <= 0 {
		limit = defaultChanges
	}
	for {
		list := &changeList{last: string(after), limit: limit}
		totals, err := e.tree(ctx, run.DiffJob(run.DiffQuery{
			Format: treediff.List, Paths: q.Paths, Exclude: q.Exclude, NoIgnored: q.NoIgnored,
			Against: q.Against, After: string(after), Limit: limit, Touched: touched,
		}), maxChangesBytes, list)
		switch {
		case err == nil:
			return list.end(totals)
		case !errors.Is(err, ErrTooLong) || limit == 1:
			return nil, err
		}
		limit = max(1, min(len(list.items), limit-1)) // as many as there is room for
	}
}

// RevertTouched is TreeRevert of what was touched, which is that of a run.DiffQuery.
func (e *Errand) RevertTouched(ctx context.Context, paths []string, touched []byte) (treediff.Totals, error) {
	return e.tree(ctx, run.RevertJob(paths, "", touched), 1, io.Discard)
}

// TreeRevert puts back what of the worktree is at or below paths, all of it without paths,
// as the tool user. Totals.LeftOut counts what could not be. After an error a part of it is
// done.
func (e *Errand) TreeRevert(ctx context.Context, paths []string, against string) (treediff.Totals, error) {
	return e.tree(ctx, run.RevertJob(paths, against, nil), 1, io.Discard)
}

// tree runs a job on the worktree, and passes on what it says.
func (e *Errand) tree(ctx context.Context, j run.Job, most int64, w io.Writer) (treediff.Totals, error) {
	bound := int64(0)
	if most > 0 {
		bound = most + 1 // so that one byte too many is seen here
	}
	r := e.request(j, bound, treeTime)
	result, err := e.do(ctx, r, e.flow(r.CallID, w, most))
	if err != nil {
		return treediff.Totals{}, err
	}
	return totalsOf(result.Output)
}

// totalsOf reads what an agent counted, which may be hostile.
func totalsOf(text string) (t treediff.Totals, err error) {
	if len(text) > maxTotals || strictjson.Decode([]byte(text), &t) != nil ||
		min(t.Files, t.Added, t.Removed, t.Unreadable, t.Unnamed, t.LeftOut, t.Excluded, t.Ignored, t.Converted) < 0 {
		return treediff.Totals{}, errNoAnswer
	}
	return t, nil
}

// changeList reads a list, line by line. Its methods refuse everything that no honest
// agent says.
type changeList struct {
	last   string // path, or where the page begins
	limit  int
	line   []byte // that has begun
	items  []client.Change
	totals *treediff.Totals
}

// Write implements io.Writer.
func (l *changeList) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		part, after, whole := bytes.Cut(rest, []byte("\n"))
		if rest = after; len(l.line)+len(part) > maxChangeLine {
			return 0, errNoAnswer
		}
		l.line = append(l.line, part...)
		if !whole {
			break
		}
		if err := l.take(l.line); err != nil {
			return 0, err
		}
		l.line = l.line[:0]
	}
	return len(p), nil
}

// take reads one line.
func (l *changeList) take(line []byte) error {
	if l.totals != nil {
		return errNoAnswer
	}
	if bytes.HasPrefix(line, []byte(`{"totals"`)) {
		var last treediff.Last
		if strictjson.Decode(line, &last) != nil || last.Totals == nil {
			return errNoAnswer
		}
		l.totals = last.Totals
		return nil
	}
	var c treediff.Line
	if strictjson.Decode(line, &c) != nil || len(l.items) == l.limit {
		return errNoAnswer
	}
	path := c.Path
	if c.Bytes != nil {
		path = string(c.Bytes)
	}
	// Bytes are given if, and only if, they say what the text cannot.
	if string([]rune(path)) != c.Path || (path == c.Path) != (c.Bytes == nil) || !plainPath(path) || path <= l.last || !consistent(&c) {
		return errNoAnswer
	}
	l.last = path
	l.items = append(l.items, ChangeOf(path, &c))
	return nil
}

// plainPath reports whether a path is relative and leads down.
func plainPath(path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		if name == "" || name == "." || name == ".." {
			return false
		}
	}
	return len(path) <= treediff.MaxPath && !strings.Contains(path, "\x00")
}

// consistent reports whether a line does not contradict itself.
func consistent(c *treediff.Line) bool {
	counted := c.Added != 0 || c.Removed != 0
	switch {
	case !told(c), !side(c.Kind, c.Mode, c.Size), !side(c.OldKind, c.OldMode, c.OldSize), min(c.Added, c.Removed) < 0:
		return false
	case counted && (c.Binary || c.Unreadable != ""):
		return false
	case counted || c.Binary:
		return c.Kind == treediff.File || c.OldKind == treediff.File
	}
	return true
}

// told reports whether the status says what became of the kinds.
func told(c *treediff.Line) bool {
	is, was := c.Kind != "", c.OldKind != ""
	switch c.Status {
	case treediff.Added:
		return is && !was
	case treediff.Deleted:
		return was && !is
	case treediff.Modified:
		return is && c.Kind == c.OldKind
	case treediff.Type:
		return is && was && c.Kind != c.OldKind
	}
	return false
}

// side reports whether what is said of one side belongs together.
func side(k treediff.Kind, mode string, size int64) bool {
	switch k {
	case treediff.File, treediff.Dir:
		return len(mode) == 4 && strings.Trim(mode, "01234567") == "" && size >= 0 && (size == 0 || k == treediff.File)
	case "", treediff.Link, treediff.Other:
		return mode == "" && size == 0
	}
	return false
}

// ChangeOf is a line of a list for clients, of any bytes as its path.
func ChangeOf(path string, l *treediff.Line) client.Change {
	kind := sensitive.Path(path)
	c := client.Change{
		Path: l.Path, Bytes: l.Bytes, Status: client.ChangeStatus(l.Status), Kind: string(l.Kind), OldKind: string(l.OldKind),
		Mode: l.Mode, OldMode: l.OldMode, Size: l.Size, OldSize: l.OldSize, Added: l.Added, Removed: l.Removed, Binary: l.Binary,
		Sensitive: kind == sensitive.OnSight, Build: kind == sensitive.Build,
	}
	if l.Unreadable != "" {
		c.Unreadable = plain.Name(plain.Cut(l.Unreadable, maxUnreadable))
	}
	return c
}

// end is the page.
func (l *changeList) end(totals treediff.Totals) (*client.Changes, error) {
	if l.totals == nil || *l.totals != totals || len(l.line) > 0 || totals.Files < len(l.items) || totals.More && len(l.items) != l.limit {
		return nil, errNoAnswer
	}
	c := &client.Changes{
		Items: l.items, Files: totals.Files, Added: totals.Added, Removed: totals.Removed, Unreadable: totals.Unreadable,
		Excluded: totals.Excluded, Ignored: totals.Ignored,
	}
	if totals.More {
		c.Next = base64.RawURLEncoding.EncodeToString([]byte(l.last))
	}
	return c, nil
}
