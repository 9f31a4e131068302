package session

import "github.com/toold/toold/internal/store"

// audit puts the end of the call on the audit log. The call has run, so that an
// error refuses nothing any more; the log counts it and writes later what it can.
// That comes before the end is stored: a daemon that is killed in between leaves
// two records and not none.
func (s *Session) audit(c *call, row *store.Call) {
	if s.m.cfg.Auditor == nil {
		return
	}
	by := c.by
	by.Tenant = s.tenant.name // all that is known of who made a call of an earlier daemon
	if err := s.m.cfg.Auditor.Finished(by, &row.Call, c.out.Sum()); err != nil {
		s.log.Error("put the end of a call on the audit log", "call", c.id, "error", err)
	}
}
