package trees

import (
	"context"

	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/worktree"
)

// there refuses what needs the source of a session where that is not at its path, and says what is.
func there(ctx context.Context, session string, source worktree.Source) (is string, err error) {
	is, err = source.Astray(ctx)
	if is == "" || err != nil {
		return "", nil // whoever opens it says what is wrong
	}
	return is, fault.Conflict.Errorf("the source of session %s is not at %s: it was moved or removed, and %s", session, plain.Name(source.Path), is).
		Next("put the directory back there that the session began with, and try again; toolctl diff " + session + " gives the changes as a patch meanwhile")
}
