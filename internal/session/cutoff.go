package session

import (
	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/session/trees"
)

// cutOff is the note about an apply of a session that the daemon ended in the middle of.
func cutOff(t *trees.Service, v *client.Session) []string {
	if v.Worktree.Mode != client.WorktreeOverlay {
		return nil
	}
	if words := t.CutOff(v.ID); words != "" {
		return []string{words}
	}
	return nil
}
