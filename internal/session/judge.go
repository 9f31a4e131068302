package session

import (
	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/store"
)

// shell runs the session's commands of bash.
func (s *Session) shell() []string {
	set := s.m.settings.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	return shellOf(&s.row, set)
}

// shellOf is the shell of a session: the one that was configured when it began,
// since a reload does not reach its sandbox.
func shellOf(row *store.Session, set *Settings) []string {
	if len(row.Shell) > 0 {
		return row.Shell
	}
	return set.Shell
}

// Shell is that of a session, live or not.
func (m *Manager) Shell(row *store.Session) []string { return shellOf(row, m.settings.Load()) }

// Court makes rules those of sessions.
func (m *Manager) Court() *judge.Court { return m.court }

// judged notes how the call was judged.
func (c *call) judged(action policy.Action, rule, approval string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.row.Permission = &client.CallPermission{Verdict: string(action), Rule: rule, ApprovalID: approval}
}

// decided tells a judgement. Its error is why the call must not run.
func (s *Session) decided(d *judge.Decision) error {
	s.m.observe(func(o Observer) { o.Decided(d) })
	if s.m.cfg.Auditor == nil {
		return nil
	}
	return s.m.cfg.Auditor.Decided(d)
}
