package session

import (
	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/session/elsewhere"
)

// settleIdentity gives a session the identity that its commits have: what is asked for, else
// the configuration's, else the creator's.
func (s *Settings) settleIdentity(w *client.Worktree) error {
	if w.Identity != nil {
		if err := w.Identity.Check(); err != nil {
			return fault.In(fault.Invalid.Errorf("worktree.identity: %v", err), "worktree", "identity")
		}
	}
	if own := s.Worktrees.Identity; own != nil && (w.Identity == nil || w.Identity.Creators) {
		w.Identity = own
	}
	return nil
}

// gitConfig is what git's configuration of the tools' user says of an identity.
func gitConfig(i *client.GitIdentity) string {
	if i == nil {
		return ""
	}
	return "[user]\n\tname = " + elsewhere.Value(i.Name) + "\n\temail = " + elsewhere.Value(i.Email) + "\n"
}

// authorless is the note of a session on a repository in which git commit finds no author.
const authorless = "git commit has no author here, unless the repository's own configuration names one: make the session with an identity (--identity 'NAME <EMAIL>', [worktrees] identity), or run git config user.name and user.email in it"
