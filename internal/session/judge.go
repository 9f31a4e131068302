package session

import (
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/store"
)

// Shell is that of a session, live or not.
func (dm *daemon) Shell(row *store.Session) []string { return dm.settings.Load().ShellOf(row) }

// Court makes rules those of sessions.
func (dm *daemon) Court() *judge.Court { return dm.court }
