package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/toold/toold/client"
)

// approvalCounters count approvals.
type approvalCounters struct {
	count   prometheus.Gauge
	wait    prometheus.Observer
	replies closed[prometheus.Counter]

	mu      sync.Mutex           // guards pending
	pending map[string]time.Time // when each that nobody has answered was asked
}

func newApprovalCounters(r *registrar) *approvalCounters {
	replies := r.counter("toold_approval_replies_total",
		"Approvals that ended, by how: once, always, reject, timeout, stale, gone (with their call or session).", "reply")
	return &approvalCounters{
		count:   r.gauge("toold_approvals_pending", "Calls that wait for somebody to allow them.").WithLabelValues(),
		wait:    r.histogram("toold_approval_wait_seconds", "How long approvals waited for their end.", waiting).WithLabelValues(),
		pending: map[string]time.Time{},
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
	c.pending[a.ID] = a.Created
	c.count.Set(float64(len(c.pending)))
}

// ApprovalReplied counts how an approval ended.
func (m *Metrics) ApprovalReplied(a *client.Approval, reply string, waited time.Duration) {
	c := m.approvals
	c.replies.get(reply).Inc()
	c.wait.Observe(max(waited, 0).Seconds())
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, a.ID)
	c.count.Set(float64(len(c.pending)))
}

// oldest is how long the approval waits that has waited longest.
func (c *approvalCounters) oldest(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var most time.Duration
	for _, asked := range c.pending {
		most = max(most, now.Sub(asked))
	}
	return most
}
