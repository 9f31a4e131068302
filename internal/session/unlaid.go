package session

import (
	"errors"

	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/session/trees"
)

// hintOf is of which kind the error is that kept a worktree from being laid, and what to do next.
func hintOf(why *trees.UnlaidError) (kind fault.Kind, next string) {
	if f, ok := errors.AsType[*fault.Error](why); ok {
		return f.Kind, f.Hint
	}
	return fault.Sandbox, ""
}

// unlaidNote says in a session's notes why it may only read.
func unlaidNote(why *trees.UnlaidError) string {
	_, next := hintOf(why)
	return why.Error() + ": until then calls may only read; " + next
}
