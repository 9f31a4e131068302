package session

import "github.com/toold/toold/internal/session/trees"

// life makes sessions, takes them over and ends them, part by part.
type life struct {
	*roster
	parts []part         // of every session
	trees *trees.Service // nil where there are no worktrees of mode overlay
}
