package metrics

import (
	"sync"
	"time"

	"github.com/toold/toold/client"
)

// approvalCounters count approvals.
type approvalCounters struct {
	wait    timers
	replies counters

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
	c := &approvalCounters{
		wait: r.histogram("toold_approval_wait_seconds", "Time from asking for an approval to its reply.", waiting),
		replies: r.counter("toold_approval_replies_total",
			"Finished approvals by reply: once, always, reject, timeout, stale, gone (their call or session ended).",
			label{"reply", []string{"once", "always", "reject", "timeout", "stale", "gone"}, unknown}),
		pending: map[string]span{},
	}
	r.asked("toold_approvals_pending", "Calls that are waiting for approval.", nil, func() float64 {
		n, _ := c.waiting()
		return float64(n)
	})
	r.asked("toold_approval_oldest_pending_seconds", "Age of the oldest pending approval, in seconds; 0 if none.", nil, func() float64 {
		_, oldest := c.waiting()
		return oldest.Seconds()
	})
	return c
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
	c.replies.of(reply).Inc()
	c.wait.of().took(waited)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, a.ID)
}

// waiting says how many approvals are pending, and how long the one waits that
// has waited longest.
func (c *approvalCounters) waiting() (n int, oldest time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, p := range c.pending {
		if !p.expires.IsZero() && time.Since(p.expires) > overdue {
			delete(c.pending, id)
			continue
		}
		oldest = max(oldest, time.Since(p.asked))
	}
	return len(c.pending), oldest
}
