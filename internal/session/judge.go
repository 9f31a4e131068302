package session

import (
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/store"
)

// Shell is that of a session, live or not.
func (m *daemon) Shell(row *store.Session) []string { return m.settings.Load().ShellOf(row) }

// Court makes rules those of sessions.
func (m *daemon) Court() *judge.Court { return m.court }
