package run

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run/root"
)

// resolve follows a path of an input; a relative one begins at the worktree. A path in
// the quoted form in which answers show odd names is taken too.
func resolve(ctx context.Context, env *Env, asked string) (root.Info, error) {
	info, err := env.Root.Resolve(ctx, fromWorktree(env, asked))
	if name := unquoted(asked); name != "" && !info.Exists {
		return env.Root.Resolve(ctx, fromWorktree(env, name))
	}
	return info, err
}

// look is resolve and opens what it finds, if it is a regular file.
func look(ctx context.Context, env *Env, asked string) (root.Info, *root.File, error) {
	info, file, err := env.Root.Look(ctx, fromWorktree(env, asked))
	if name := unquoted(asked); name != "" && !info.Exists {
		return env.Root.Look(ctx, fromWorktree(env, name))
	}
	return info, file, err
}

// unquoted is a path that is quoted as a whole, or of which names are, as displayName
// does it; "" = it is not.
func unquoted(asked string) string {
	if !strings.Contains(asked, `"`) {
		return ""
	}
	if name, ok := unquote(asked); ok {
		return name
	}
	names, found := strings.Split(asked, "/"), false
	for i, n := range names {
		if name, ok := unquote(n); ok {
			names[i], found = name, true
		}
	}
	if !found {
		return ""
	}
	return strings.Join(names, "/")
}

func unquote(s string) (string, bool) {
	if len(s) < 3 || s[0] != '"' {
		return "", false
	}
	name, err := strconv.Unquote(s)
	return name, err == nil
}

func fromWorktree(env *Env, asked string) string {
	if asked == "" || strings.HasPrefix(asked, "/") {
		return asked
	}
	return strings.TrimSuffix(env.Worktree, "/") + "/" + asked
}

// target is what Prepare tells of a resolved path.
func target(asked string, info root.Info, write bool) Target {
	return Target{Asked: asked, Path: info.Path, Exists: info.Exists, Kind: string(info.Kind), Write: write}
}

// prepareTarget is Prepare of a tool that has one target, of which check may refuse what it
// is; nil refuses nothing.
func prepareTarget(ctx context.Context, env *Env, asked string, write bool, check func(root.Info) error) (*Prepared, error) {
	info, err := resolve(ctx, env, asked)
	if err == nil && check != nil {
		err = check(info)
	}
	if err != nil {
		return prepareFailure(plain.Name(asked), nil, err)
	}
	return &Prepared{Targets: []Target{target(asked, info, write)}}, nil
}

// preparedPath is the path that Run must open: the one that Prepare resolved,
// or, where there was no Prepare, what the input's path leads to now.
func preparedPath(ctx context.Context, env *Env, asked string, prep *Prepared) (string, error) {
	if prep != nil && len(prep.Targets) > 0 {
		return prep.Targets[0].Path, nil
	}
	info, err := resolve(ctx, env, asked)
	return info.Path, err
}

// relative is a canonical path as titles show it: below the worktree without
// the worktree.
func relative(env *Env, canonical string) string {
	return PathTitle(env.Worktree, canonical)
}

// ForeignOwner is set in the metadata of a call that failed because a user who is not
// in the session owns the file.
const ForeignOwner = "foreign_owner"

// failure sorts err: what the tree has is the tool's own failure and so a
// Result; what means that the call could not be run is an *Error.
func failure(title string, err error) (*Result, error) {
	if known, ok := errors.AsType[*Error](err); ok {
		return nil, known
	}
	switch root.CodeOf(err) {
	case root.NotExist, root.Denied, root.Failed, root.TooLarge:
		r := Failed(title, "%s", err)
		if e, ok := errors.AsType[*root.Error](err); ok && e.Foreign {
			r.Metadata = map[string]any{ForeignOwner: true}
		}
		return r, nil
	case root.InvalidPath:
		return nil, withHint(CodeInvalidPath, err)
	case root.NotRegular:
		return nil, withHint(CodeNotRegularFile, err)
	case root.Stale:
		return nil, withHint(CodeStale, err)
	case root.Aborted:
		return nil, Errorf(CodeAborted, "%s", err)
	case root.Broken:
		return nil, Errorf(CodeSandboxFailed, "%s", err)
	}
	return nil, Errorf(CodeInternal, "%s", err)
}

// withHint is an *Error that says what err says, with what to do next.
func withHint(code Code, err error) *Error {
	e := Errorf(code, "%s", err)
	if known, ok := errors.AsType[*root.Error](err); ok {
		e.Hint = known.Hint
	}
	return e
}

// prepareFailure is failure for Prepare.
func prepareFailure(title string, targets []Target, err error) (*Prepared, error) {
	result, err := failure(title, err)
	if err != nil {
		return nil, err
	}
	return &Prepared{Targets: targets, Result: result}, nil
}
