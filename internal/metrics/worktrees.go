package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// worktreeCounters count what is done with the changes of sessions, by operation.
type worktreeCounters struct{ of closed[*operationCounters] }

// operationCounters are those of one operation.
type operationCounters struct {
	outcomes closed[prometheus.Counter]
	duration prometheus.Observer
}

func newWorktreeCounters(r *registrar) worktreeCounters {
	ended := r.counter("toold_worktree_operations_total",
		"Operations on the changes of sessions in worktrees of mode overlay, by outcome: ok, conflict, refused, failed.", "operation", "outcome")
	duration := r.histogram("toold_worktree_operation_duration_seconds",
		"Duration of operations on the changes of sessions; that of a diff includes its reading by the client.", latency, "operation")
	operations := []string{"diff", "apply", "discard", "checkpoint", "restore", "fork", "merge"}
	return worktreeCounters{byName(operations, unknown, func(operation string) *operationCounters {
		return &operationCounters{
			outcomes: byName([]string{"ok", "conflict", "refused"}, "failed", func(outcome string) prometheus.Counter {
				return ended.WithLabelValues(operation, outcome)
			}),
			duration: duration.WithLabelValues(operation),
		}
	})}
}

// WorktreeOperation counts and times what was done with the changes of a session.
func (m *Metrics) WorktreeOperation(operation, outcome string, d time.Duration) {
	c := m.worktrees.of.get(operation)
	c.outcomes.get(outcome).Inc()
	c.duration.Observe(max(d, 0).Seconds())
}
