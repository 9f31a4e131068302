package run

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/ignore"
	"github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/tool/run/treediff"
)

// Diff streams what differs between the worktree and what it is compared with, read as
// the tool user. It is the daemon's own: no tool that is offered. Its output is the
// treediff.Totals as JSON.
type Diff struct{ unprepared }

// DiffQuery says what Diff gives.
type DiffQuery struct {
	Format treediff.Format
	// Paths are as in treediff.Options, at most MaxTreePaths.
	Paths []string
	// Against is the name of a directory below Env.TreeDir; "" is treeBase.
	Against string
	// Exclude are the patterns of treediff.Options, NoIgnored is as there.
	Exclude   []string
	NoIgnored bool
	// Touched is that of treediff.Options, as treediff.PackTouched has it. Where it is not nil, an
	// agent of an older version has no such tool.
	Touched []byte
	// After and Limit are of a list.
	After string
	Limit int
}

// MaxTreePaths bounds the paths of a DiffQuery.
const MaxTreePaths = 1000

// treeBase is what a worktree is compared with; sandbox.TreeBase, which the agent does
// not link.
const treeBase = "base"

// treeInput is the input of Diff. Paths may have any bytes. An agent of an older version ignores a field
// that it does not know, unless it has a tool that refuses those: what has a field that not all agents
// know is a job of DiffStrict, DiffTouched or RevertTouched.
type treeInput struct {
	Format  treediff.Format `json:"format,omitempty"`
	Paths   [][]byte        `json:"paths,omitempty"`
	Exclude [][]byte        `json:"exclude,omitempty"`
	// Omit are the patterns of what a list or a patch leaves out.
	Omit      [][]byte `json:"omit,omitempty"`
	NoIgnored bool     `json:"no_ignored,omitempty"`
	Against   string   `json:"against,omitempty"`
	Touched   []byte   `json:"touched,omitempty"`
	After     []byte   `json:"after,omitempty"`
	Limit     int      `json:"limit,omitempty"`
}

// Name implements Tool.
func (Diff) Name() string { return "worktree_diff" }

// DiffJob compares the worktree.
func DiffJob(q DiffQuery) Job {
	in := treeInput{Format: q.Format, Paths: pathBytes(q.Paths), NoIgnored: q.NoIgnored, Against: q.Against, Touched: q.Touched, After: []byte(q.After), Limit: q.Limit}
	if in.Omit = pathBytes(q.Exclude); q.Format == treediff.Archive {
		in.Exclude, in.Omit = in.Omit, nil
	}
	input, _ := json.Marshal(in) // never fails for such
	if q.Touched != nil {
		return Job{DiffTouched{}.Name(), input}
	}
	if in.Omit != nil || in.NoIgnored {
		return Job{DiffStrict{}.Name(), input}
	}
	return Job{Diff{}.Name(), input}
}

// DiffTouched is Diff, and looks at nothing but what the query says was touched.
type DiffTouched struct{ unprepared }

// Name implements Tool.
func (DiffTouched) Name() string { return "worktree_diff_touched" }

// Run implements Tool.
func (d DiffTouched) Run(ctx context.Context, env *Env, input json.RawMessage, _ *Prepared) (*Result, error) {
	return withTouched(ctx, env, input, d.Name(), func(ctx context.Context, o treediff.Options) (treediff.Totals, error) {
		return treediff.Write(ctx, o, env.Stream)
	})
}

// DiffStrict is Diff, and refuses what it does not know of a query: an agent of an older version has no
// such tool.
type DiffStrict struct{ unprepared }

// Name implements Tool.
func (DiffStrict) Name() string { return "worktree_diff_strict" }

// Run implements Tool.
func (d DiffStrict) Run(ctx context.Context, env *Env, input json.RawMessage, _ *Prepared) (*Result, error) {
	if _, err := strictInput(input); err != nil {
		return nil, err
	}
	return Diff{}.Run(ctx, env, input, nil)
}

// strictInput refuses fields that it does not know.
func strictInput(input json.RawMessage) (in treeInput, err error) {
	d := json.NewDecoder(bytes.NewReader(input))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return in, Errorf(CodeInvalidInput, "the input cannot be read: %v", err)
	}
	return in, nil
}

// RevertTouched is Revert, and puts back nothing but what the query says was touched.
type RevertTouched struct{ unprepared }

func (RevertTouched) writes() {}

// Name implements Tool.
func (RevertTouched) Name() string { return "worktree_revert_touched" }

// Run implements Tool.
func (r RevertTouched) Run(ctx context.Context, env *Env, input json.RawMessage, _ *Prepared) (*Result, error) {
	return withTouched(ctx, env, input, r.Name(), treediff.Revert)
}

// withTouched is compareTrees of what was touched.
func withTouched(ctx context.Context, env *Env, input json.RawMessage, title string, work func(context.Context, treediff.Options) (treediff.Totals, error)) (*Result, error) {
	in, err := strictInput(input)
	if err != nil {
		return nil, err
	}
	touched, err := treediff.ParseTouched(in.Touched)
	if err != nil {
		return nil, Errorf(CodeInvalidInput, "%s", err)
	}
	return compareTrees(ctx, env, input, title, func(o treediff.Options) (treediff.Totals, error) {
		o.Touched = touched
		return work(ctx, o)
	})
}

// Revert makes the worktree, or paths of it, what it is compared with, as the tool user.
// Its input and output are those of Diff; treediff.Revert says more.
type Revert struct{ unprepared }

func (Revert) writes() {}

// Name implements Tool.
func (Revert) Name() string { return "worktree_revert" }

// RevertJob puts back what of the worktree is at or below paths; none is everything. Touched is that of a
// DiffQuery.
func RevertJob(paths []string, against string, touched []byte) Job {
	input, _ := json.Marshal(treeInput{Paths: pathBytes(paths), Against: against, Touched: touched})
	if touched != nil {
		return Job{RevertTouched{}.Name(), input}
	}
	return Job{Revert{}.Name(), input}
}

// Run implements Tool.
func (r Revert) Run(ctx context.Context, env *Env, input json.RawMessage, _ *Prepared) (*Result, error) {
	return compareTrees(ctx, env, input, r.Name(), func(o treediff.Options) (treediff.Totals, error) {
		return treediff.Revert(ctx, o)
	})
}

func pathBytes(paths []string) [][]byte {
	var b [][]byte
	for _, p := range paths {
		b = append(b, []byte(p))
	}
	return b
}

// Run implements Tool.
func (d Diff) Run(ctx context.Context, env *Env, input json.RawMessage, _ *Prepared) (*Result, error) {
	return compareTrees(ctx, env, input, d.Name(), func(o treediff.Options) (treediff.Totals, error) {
		return treediff.Write(ctx, o, env.Stream)
	})
}

// compareTrees opens both sides for work on them.
func compareTrees(ctx context.Context, env *Env, input json.RawMessage, title string, work func(treediff.Options) (treediff.Totals, error)) (*Result, error) {
	against, o, err := treeOptions(input)
	if err != nil {
		return nil, err
	}
	o.Root = env.Root
	if o.Base, err = openBase(ctx, env, against); err != nil {
		return failure(title, err)
	}
	defer o.Base.Close()
	if o.Tree, err = env.Root.OpenDir(ctx, env.Worktree); err != nil {
		return failure(title, err)
	}
	defer o.Tree.Close()
	if o.Base.Mounted() && (!o.Tree.Mounted() || o.Tree.InMemory()) { // else all of it would have been removed
		return nil, Errorf(CodeSandboxFailed, "the worktree is not mounted in the sandbox: its changes cannot be told there")
	}
	totals, err := work(o)
	if root.CodeOf(err) != "" {
		return failure(title, err)
	}
	if err != nil {
		return nil, err
	}
	out, err := json.Marshal(totals)
	return &Result{Title: title, Output: string(out)}, err
}

func treeOptions(input json.RawMessage) (against string, o treediff.Options, err error) {
	var in treeInput
	if err := decodeInput(input, &in); err != nil {
		return "", o, err
	}
	if len(in.Paths) > MaxTreePaths {
		return "", o, Errorf(CodeInvalidInput, "%d paths; the limit is %d", len(in.Paths), MaxTreePaths)
	}
	for _, p := range in.Paths {
		path := strings.TrimSuffix(string(p), "/")
		bad := func(name string) bool {
			return name == "" || name == "." || name == ".." || strings.Contains(name, "\x00")
		}
		if len(path) > treediff.MaxPath || slices.ContainsFunc(strings.Split(path, "/"), bad) {
			return "", o, Errorf(CodeInvalidPath, "%s is not a plain path below the worktree", plain.Name(plain.Cut(path, 256)))
		}
		o.Paths = append(o.Paths, path)
	}
	var patterns []string
	for _, p := range slices.Concat(in.Exclude, in.Omit) {
		patterns = append(patterns, string(p))
	}
	o.NoIgnored = in.NoIgnored
	if o.Exclude, err = ignore.New(patterns); err != nil {
		return "", o, Errorf(CodeInvalidInput, "%s", err)
	}
	o.Format, o.After, o.Limit = in.Format, string(in.After), in.Limit
	return cmp.Or(in.Against, treeBase), o, nil
}

// openBase opens what the worktree is compared with. The tool user cannot go there, so
// that the agent opens it as itself; all that is below is the tool user's work again.
func openBase(ctx context.Context, env *Env, name string) (*root.Dir, error) {
	odd := func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '_' && r != '-'
	}
	if len(name) > 128 || strings.ContainsFunc(name, odd) {
		return nil, Errorf(CodeInvalidInput, "%s is no name of what a worktree is compared with", plain.Name(plain.Cut(name, 128)))
	}
	fd, err := -1, error(unix.ENOENT)
	if env.TreeDir != "" {
		fd, err = unix.Open(env.TreeDir+"/"+name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, Errorf(CodeInvalidInput, "the worktree has no %s to be compared with: the session writes to its source", name)
	case err != nil:
		return nil, Errorf(CodeSandboxFailed, "open %s: %v", name, err)
	}
	defer unix.Close(fd)
	return env.Root.OpenDirFD(ctx, fd, name)
}
