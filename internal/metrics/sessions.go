package metrics

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/toold/toold/client"
)

// sessionCounters count sessions and sandboxes.
type sessionCounters struct {
	states  gauges // of sessions that have not ended
	ended   counters
	created timers
	failed  counters

	mu   sync.Mutex         // guards live
	live map[string]sojourn // of the sessions that have not ended
}

// sojourn is where a session is counted.
type sojourn struct {
	state client.SessionState
	since time.Time
	in    prometheus.Gauge
	made  bool // it was ready once, or an earlier daemon made it
}

func newSessionCounters(r *registrar, runtime label) *sessionCounters {
	c := &sessionCounters{
		states: r.gauge("toold_sessions", "Sessions that have not ended, by state and runtime.",
			label{name: "state", values: names(client.SessionCreating, client.SessionReady, client.SessionEnding)}, runtime),
		ended: r.counter("toold_sessions_ended_total", "Sessions that are over: ended on request, or lost.",
			label{name: "state", values: names(client.SessionEnded, client.SessionLost)}),
		created: r.histogram("toold_sandbox_create_duration_seconds",
			"Time to make a usable sandbox, by runtime and whether it came from the warm pool.", latency,
			runtime, label{name: "warm", values: []string{"false", "true"}}),
		failed: r.counter("toold_sandbox_create_failures_total", "Sessions that failed before they were ready, by runtime.", runtime),
		live:   map[string]sojourn{},
	}
	for _, s := range []client.SessionState{client.SessionCreating, client.SessionEnding} { // none should stay there
		r.asked("toold_session_oldest_transition_seconds", "Age of the oldest session in this transitional state, in seconds; 0 if none.",
			prometheus.Labels{"state": string(s)}, func() float64 { return c.oldest(s).Seconds() })
	}
	return c
}

// SessionState counts where a session is now. It goes by what was counted for the
// session before and not by old, so that a session that was adopted from an
// earlier daemon, or reported twice, is counted once.
func (m *Metrics) SessionState(s *client.Session, _ client.SessionState) {
	c := m.sessions
	c.mu.Lock()
	defer c.mu.Unlock()
	before, known := c.live[s.ID]
	if known {
		before.in.Dec()
		delete(c.live, s.ID)
	}
	if in := c.states.of(string(s.State), s.Runtime); in != nil {
		c.live[s.ID] = before.next(s.State, in)
		in.Inc()
		return
	}
	if !known {
		return
	}
	if n := c.ended.of(string(s.State)); n != nil {
		n.Inc()
	}
	if s.State == client.SessionLost && !before.made {
		c.failed.of(s.Runtime).Inc()
	}
}

// next is where a session is that was at s before; the zero sojourn is of one that
// was not known.
func (s sojourn) next(state client.SessionState, in prometheus.Gauge) sojourn {
	n := sojourn{state: state, since: s.since, in: in}
	if s.state != state {
		n.since = time.Now()
	}
	adopted := s.state == "" && state != client.SessionCreating
	n.made = s.made || adopted || state == client.SessionReady
	return n
}

// SandboxCreated times a new sandbox.
func (m *Metrics) SandboxCreated(runtime string, warm bool, d time.Duration) {
	m.sessions.created.of(runtime, strconv.FormatBool(warm)).took(d)
}

// oldest is for how long the session that has been longest in this state is there.
func (c *sessionCounters) oldest(state client.SessionState) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var most time.Duration
	for _, s := range c.live {
		if s.state == state {
			most = max(most, time.Since(s.since))
		}
	}
	return most
}
