package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/toold/toold/client"
)

var (
	oldestSession = prometheus.NewDesc("toold_session_oldest_transition_seconds",
		"Age of the oldest session in this transitional state, in seconds; 0 if none.", []string{"state"}, nil)
	pendingApprovals = prometheus.NewDesc("toold_approvals_pending", "Calls that are waiting for approval.", nil, nil)
	oldestApproval   = prometheus.NewDesc("toold_approval_oldest_pending_seconds",
		"Age of the oldest pending approval, in seconds; 0 if none.", nil, nil)
)

// waitsCollector works out at each scrape what waits, and for how long.
type waitsCollector struct{ m *Metrics }

// Describe implements prometheus.Collector.
func (c *waitsCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- oldestSession
	ch <- pendingApprovals
	ch <- oldestApproval
}

// Collect implements prometheus.Collector.
func (c *waitsCollector) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	for _, s := range []client.SessionState{client.SessionCreating, client.SessionEnding} {
		ch <- prometheus.MustNewConstMetric(oldestSession, prometheus.GaugeValue, c.m.sessions.oldest(s, now).Seconds(), string(s))
	}
	n, oldest := c.m.approvals.waiting(now)
	ch <- prometheus.MustNewConstMetric(pendingApprovals, prometheus.GaugeValue, float64(n))
	ch <- prometheus.MustNewConstMetric(oldestApproval, prometheus.GaugeValue, oldest.Seconds())
}
