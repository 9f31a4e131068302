package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/toold/toold/client"
)

// approvalCounters count approvals.
type approvalCounters struct {
	wait    prometheus.Observer
	replies closed[prometheus.Counter]

	mu      sync.Mutex // guards pending
	pending map[string]span
}

// span is from when to when an approval may be pending.
type span struct{ asked, expires time.Time }

// overdue is how long after its deadline an approval still counts as pending. Its
// end comes at the deadline; one that does not come, since it could not be
// stored, must not count for ever.
const overdue = time.Minute

func newApprovalCounters(r *registrar) *approvalCounters {
	replies := r.counter("toold_approval_replies_total",
		"Finished approvals by reply: once, always, reject, timeout, stale, gone (their call or session ended).", "reply")
	return &approvalCounters{
		wait:    r.histogram("toold_approval_wait_seconds", "Time from asking for an approval to its reply.", waiting).WithLabelValues(),
		pending: map[string]span{},
		replies: byName([]string{"once", "always", "reject", "timeout", "stale", "gone"}, unknown, func(reply string) prometheus.Counter {
			return replies.WithLabelValues(reply)
		}),
	}
}

// ApprovalAsked counts an approval that is pending. One that is told again, after
// a restart, counts once.
func (m *Metrics) ApprovalAsked(a *client.Approval) {
	c := m.approvals
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending[a.ID] = span{a.Created, a.Expires}
}

// ApprovalReplied counts how an approval ended.
func (m *Metrics) ApprovalReplied(a *client.Approval, reply string, waited time.Duration) {
	c := m.approvals
	c.replies.get(reply).Inc()
	c.wait.Observe(max(waited, 0).Seconds())
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, a.ID)
}

// waiting says how many approvals are pending, and how long the one waits that
// has waited longest.
func (c *approvalCounters) waiting(now time.Time) (n int, oldest time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, p := range c.pending {
		if !p.expires.IsZero() && now.Sub(p.expires) > overdue {
			delete(c.pending, id)
			continue
		}
		oldest = max(oldest, now.Sub(p.asked))
	}
	return len(c.pending), oldest
}
