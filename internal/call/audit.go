package call

import "github.com/toold/toold/internal/store"

// audit puts the end of the call on the audit log. The call has run, so that an
// error refuses nothing any more; the log counts it and writes later what it can.
// That comes before the end is stored: a daemon that is killed in between leaves
// two records and not none.
func (t tail) audit(row *store.Call) {
	if t.g.svc.Auditor == nil {
		return
	}
	by := t.c.by
	by.Tenant = t.g.tenant.Name // all that is known of who made a call of an earlier daemon
	if err := t.g.svc.Auditor.Finished(by, &row.Call, t.c.out.Sum()); err != nil {
		t.g.log.Error("put the end of a call on the audit log", "call", t.c.id, "error", err)
	}
}
