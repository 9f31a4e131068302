package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/tool/run/globpath"
	"github.com/toold/toold/internal/tool/run/treetar"
)

// Bounds of the artifacts of a report. What is more is left out, file by file, and counted.
const (
	maxArtifacts     = 10_000
	maxArtifactBytes = 1 << 30
)

// checkPatterns refuses those that cannot match. Errors are of usage.
func checkPatterns(patterns []string) error {
	for _, pattern := range patterns {
		if !doublestar.ValidatePattern(pattern) {
			return usagef("--artifact %q is not a pattern: write one such as 'reports/**'", pattern)
		}
		if clean := path.Clean(pattern); path.IsAbs(pattern) || clean == ".." || strings.HasPrefix(clean, "../") {
			return usagef("--artifact %q: patterns are relative to the worktree, and match what is in it", pattern)
		}
	}
	return nil
}

// artifacts picks files as they come.
type artifacts struct {
	patterns []string
	matched  []bool
	files    int // that were picked
	bytes    int64
	count    *resultArtifacts
}

// leaves reports whether an entry of an archive is no artifact.
func (a *artifacts) leaves(at string, e *treetar.Entry) bool {
	if e.Kind == treetar.Dir || !a.match(strings.TrimPrefix(at, "/")) {
		return true // directories are made for the files in them
	}
	switch {
	case e.Kind != treetar.File:
		a.count.Links++
		return true
	case a.files == maxArtifacts || e.Size > maxArtifactBytes-a.bytes:
		a.count.LeftOut++
		return true
	}
	a.files++
	a.bytes += e.Size
	return false
}

// match reports whether a pattern matches a path, or a directory that it is in.
func (a *artifacts) match(name string) bool {
	found := false
	for i, pattern := range a.patterns {
		if doublestar.MatchUnvalidated(pattern, name) || doublestar.MatchUnvalidated(pattern+"/**", name) {
			a.matched[i], found = true, true
		}
	}
	return found
}

// tops are the directories in which patterns match, none of them in another.
func tops(patterns []string) []string {
	var dirs []string
	for _, pattern := range patterns {
		dirs = append(dirs, path.Clean(globpath.Fixed(pattern)))
	}
	return outermost(dirs)
}

// outermost are those of some directories that are in no other one of them.
func outermost(dirs []string) []string {
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	return slices.DeleteFunc(slices.Clone(dirs), func(d string) bool {
		return slices.ContainsFunc(dirs, func(o string) bool { return d != o && (o == "." || strings.HasPrefix(d, o+"/")) })
	})
}

// fetchArtifacts copies the files that match. They are packed by the agent in the sandbox,
// with the rights of its tools.
func (p *ciReport) fetchArtifacts(ctx context.Context, c *client.Client, session string) {
	a := &artifacts{count: new(resultArtifacts)}
	for _, pattern := range p.patterns {
		a.patterns = append(a.patterns, path.Clean(pattern))
	}
	a.matched = make([]bool, len(a.patterns))
	p.result.Artifacts = a.count
	for _, top := range tops(a.patterns) {
		if err := p.fetchBelow(ctx, client.Tree{Client: c, Session: session, Dir: top}, a); err != nil {
			p.miss("artifacts", err)
		}
	}
	for i, pattern := range p.patterns {
		if !a.matched[i] {
			a.count.Unmatched = append(a.count.Unmatched, pattern)
		}
	}
}

// noDir are the answers where no directory is.
var noDir = map[client.Code]bool{client.CodeInvalidPath: true, client.CodeNotRegularFile: true}

// fetchBelow copies what matches below one directory. A directory that is not there has
// nothing that matches.
func (p *ciReport) fetchBelow(ctx context.Context, t client.Tree, a *artifacts) error {
	r, id, err := t.Get(ctx)
	if answered, ok := errors.AsType[*client.Error](err); ok && noDir[answered.Code] {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", t.Dir, err)
	}
	defer r.Close()
	report, err := os.OpenRoot(p.dir)
	if err != nil {
		return err
	}
	defer func() { _ = report.Close() }()
	got, err := unpackIn(ctx, r, report, "artifacts", t.Dir, a.leaves)
	if err == nil && got.Failed.N > 0 {
		err = fmt.Errorf("%s could not be written: %s", plural(got.Failed.N, "file"), got.Why)
	}
	if got != nil {
		a.count.Files += got.Files
		a.count.Bytes += got.Bytes
		a.count.Failed += got.Failed.N
	}
	if call, cerr := t.Client.GetCall(ctx, id); cerr == nil {
		for _, missing := range []string{"left_out", "failed", "skipped"} {
			n, _ := call.Metadata[missing].(float64)
			a.count.Unread += int(n)
		}
		if err != nil && call.IsError {
			err = errors.New(call.Output)
		}
	}
	return err
}
