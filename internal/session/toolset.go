package session

import (
	"slices"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/tool"
)

// toolSet is the tools that the session has now.
func (s *Session) toolSet() *tool.Set { return s.judge.Rules(s.Row().Profile).Set() }

// tellTools tells that the session has other tools than before, if it has.
func (s *Session) tellTools(before *tool.Set) {
	now := s.toolSet()
	if now.Revision == before.Revision {
		return
	}
	s.daemon.publish(s.event(client.EventToolsChanged, client.ToolsChanged{
		Revision: now.Revision, Added: without(now.Names(), before.Names()), Removed: without(before.Names(), now.Names()),
	}))
}

// without are those of all that are not in others.
func without(all, others []string) []string {
	return append([]string{}, slices.DeleteFunc(all, func(n string) bool { return slices.Contains(others, n) })...)
}
