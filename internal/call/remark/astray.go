package remark

import (
	"fmt"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/store"
)

// Astray says which directories of a session are not at their paths on the host, and what helps.
func Astray(row *store.Session) (notes []string) {
	for i, s := range row.Sources {
		if s.Is == "" {
			continue
		}
		path := plain.Name(s.Path)
		switch tree := i == 0 && row.Worktree.Source != ""; {
		case s.IsMountedIn():
			notes = append(notes, fmt.Sprintf("something was mounted on the host in %s after the session got that as %s. Calls do not see it: what they write there lies beneath it. "+
				"Unmount it, or give it as a mount to another session", path, plain.Name(s.Target)))
		case tree && row.Worktree.Mode == client.WorktreeOverlay:
			notes = append(notes, fmt.Sprintf("the worktree's source %s was moved or removed on the host: %s. The session goes on over the directory that it began with; "+
				"apply needs that one: put it back, or take the changes as a patch: toolctl diff %s", path, s.Is, row.ID))
		default:
			what := "the mount " + plain.Name(s.Target)
			if tree {
				what = "the worktree"
			}
			notes = append(notes, fmt.Sprintf("%s is not %s of the host any more, which was moved or removed: %s. Calls go on in the directory that the session began with, "+
				"so nobody sees there what they write: put that one back, or end the session and create another one", what, path, s.Is))
		}
	}
	return notes
}
