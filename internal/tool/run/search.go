package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/root"
)

// searchDeadline bounds the work of a search; what was found until then is the
// answer, marked as incomplete.
const searchDeadline = 30 * time.Second

// prepareSearch resolves the path that grep or list names.
func prepareSearch(ctx context.Context, env *Env, input json.RawMessage, fileToo bool) (*Prepared, error) {
	var in struct {
		Path string `json:"path"`
	}
	if err := decodeInput(input, &in); err != nil {
		return nil, err
	}
	return prepareIn(ctx, env, in.Path, fileToo)
}

// prepareIn resolves the path of a search.
func prepareIn(ctx context.Context, env *Env, path string, fileToo bool) (*Prepared, error) {
	info, err := findTarget(ctx, env, path, fileToo)
	// Where no path is given the call names the worktree, by the name that it is
	// judged by.
	targets := []Target{target(cmp.Or(path, "."), info, false)}
	if err != nil {
		return prepareFailure(plain.Name(path), targets, err)
	}
	return &Prepared{Targets: targets}, nil
}

// searchTarget is what a Run searches: the path that Prepare resolved, as long
// as it still leads there, or where there was no Prepare what asked leads to.
func searchTarget(ctx context.Context, env *Env, asked string, prep *Prepared, fileToo bool) (root.Info, error) {
	if prep == nil || len(prep.Targets) == 0 {
		return findTarget(ctx, env, asked, fileToo)
	}
	was := prep.Targets[0].Path
	info, err := findTarget(ctx, env, was, fileToo)
	if err == nil && info.Path != was {
		return info, &root.Error{Code: root.Stale, Msg: plain.Name(was) + " leads to another place than when the call was judged"}
	}
	return info, err
}

// findTarget resolves asked, "" being the worktree, to a directory or, where
// fileToo says so, a regular file. Errors are for failure to sort.
func findTarget(ctx context.Context, env *Env, asked string, fileToo bool) (root.Info, error) {
	info, err := resolve(ctx, env, cmp.Or(asked, env.Worktree))
	if err != nil {
		return info, err
	}
	switch name := plain.Name(info.Path); {
	case !info.Exists:
		return info, &root.Error{Code: root.NotExist, Msg: notFound(ctx, env, info.Path)}
	case info.Kind == root.KindDir, fileToo && info.Kind == root.KindFile:
		return info, nil
	case info.Kind == root.KindFile:
		return info, &root.Error{
			Code: root.NotRegular, Msg: name + " is a file, not a directory",
			Hint: "read shows the file and grep searches it; to see what is beside it, set path to " + plain.Name(path.Dir(info.Path)),
		}
	default:
		return info, &root.Error{
			Code: root.NotRegular,
			Msg:  fmt.Sprintf("%s is a %s; only directories and regular files can be searched", name, info.Kind),
			Hint: "set path to a directory: " + plain.Name(path.Dir(info.Path)) + " has it",
		}
	}
}

// searchFailure is failure for what ended a search of asked; what is not known
// stays as it is.
func searchFailure(asked string, err error) (*Result, error) {
	if root.CodeOf(err) == "" {
		return nil, err
	}
	return failure(plain.Name(asked), err)
}

// searchEnd is how a search ended.
type searchEnd struct {
	// partial says, in words, why not everything was searched; "" = it was.
	partial string
	// fatal is what ripgrep said when it did not search at all.
	fatal string
	// unreadable: some files or directories could not be read.
	unreadable bool
}

// cancelled is how a search ends whose call has ended.
func cancelled(ctx context.Context) (searchEnd, error) {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return searchEnd{partial: "the time for the call was up"}, nil
	}
	return searchEnd{}, Errorf(CodeAborted, "the search was aborted")
}

// timedOut is how a search ends whose own time is up.
func timedOut(after time.Duration) searchEnd {
	return searchEnd{partial: fmt.Sprintf("it was ended after %s", after.Round(time.Millisecond))}
}

// placeError is why the search could not begin in dir.
func placeError(dir string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return &root.Error{Code: root.Denied, Msg: fmt.Sprintf("cannot search %s: permission denied", plain.Name(dir)), Err: err}
	}
	return Errorf(CodeStale, "%s has changed since the call was judged (%v)", plain.Name(dir), cause(err))
}

// note says at the end of an answer what was not searched.
func (e searchEnd) note(b *strings.Builder, meta map[string]any) {
	if e.partial != "" {
		fmt.Fprintf(b, "\n(The search is incomplete: %s. Search a smaller part.)\n", e.partial)
		meta["partial"] = true
	}
	if e.unreadable {
		b.WriteString("\n(Some files or directories could not be read.)\n")
		meta["unreadable"] = true
	}
}

// place is where ripgrep searches. It is started in the directory itself and
// given a path without a directory, because it follows links in the path that it
// is given: one that takes the place of a directory meanwhile would lead it away.
type place struct {
	dir string // canonical; ripgrep's working directory
	arg string // its argument
}

func placeOf(target root.Info) place {
	if target.Kind == root.KindDir {
		// Not ".": ripgrep 14 loses the dot of a hidden name below that when it asks
		// the ignore files of the directories above.
		return place{dir: target.Path, arg: "./"}
	}
	dir, base := path.Split(target.Path)
	return place{dir: path.Clean(dir), arg: "./" + base}
}

// path is the absolute path of what ripgrep calls name.
func (p place) path(name string) string {
	return strings.TrimSuffix(p.dir, "/") + "/" + strings.TrimPrefix(name, "./")
}

// decodeInput reads an input that the daemon has checked.
func decodeInput(input json.RawMessage, v any) error {
	if err := json.Unmarshal(input, v); err != nil {
		return Errorf(CodeInvalidInput, "the input cannot be read: %v", err)
	}
	return nil
}

// inputOf is decodeInput of a type.
func inputOf[T any](input json.RawMessage) (in T, err error) {
	err = decodeInput(input, &in)
	return in, err
}

// remaining is the time that a search may take, which leaves some of the call's
// own time to answer.
func remaining(ctx context.Context) time.Duration {
	left := searchDeadline
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline)*9/10)
	}
	return max(left, time.Millisecond)
}
