package call

import "github.com/toold/toold/internal/store"

// audit puts the end of the call on the audit log. The call has run, so that an
// error refuses nothing any more; the log counts it and writes later what it can.
// That comes before the end is stored: a daemon that is killed in between leaves
// two records and not none.
func (g *Group) audit(c *Call, row *store.Call) {
	if g.svc.Auditor == nil {
		return
	}
	by := c.by
	by.Tenant = g.tenant.Name // all that is known of who made a call of an earlier daemon
	if err := g.svc.Auditor.Finished(by, &row.Call, c.out.Sum()); err != nil {
		g.log.Error("put the end of a call on the audit log", "call", c.id, "error", err)
	}
}
