package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/toold/toold/client"
)

// liveStates are the states of sessions that have not ended. A session passes the
// first and the last of them on its way and should not stay there.
var liveStates = []string{
	string(client.SessionCreating), string(client.SessionReady), string(client.SessionEnding),
}

// sessionCounters count sessions and sandboxes.
type sessionCounters struct {
	runtimes closed[*runtimeCounters]
	ended    map[client.SessionState]prometheus.Counter

	mu   sync.Mutex         // guards live
	live map[string]sojourn // of the sessions that have not ended
}

// runtimeCounters are those of one runtime.
type runtimeCounters struct {
	states   map[string]prometheus.Gauge
	created  [2]prometheus.Observer // cold, warm
	failures prometheus.Counter
}

// sojourn is where a session is counted.
type sojourn struct {
	state client.SessionState
	since time.Time
	in    *runtimeCounters
	made  bool // it was ready once, or an earlier daemon made it
}

func newSessionCounters(r *registrar, runtimes []string) *sessionCounters {
	states := r.gauge("toold_sessions", "Sessions that have not ended, by state and runtime.", "state", "runtime")
	ended := r.counter("toold_sessions_ended_total", "Sessions that are over: ended on request, or lost.", "state")
	created := r.histogram("toold_sandbox_create_duration_seconds",
		"Time to make a usable sandbox, by runtime and whether it came from the warm pool.", latency, "runtime", "warm")
	failures := r.counter("toold_sandbox_create_failures_total", "Sessions that failed before they were ready, by runtime.", "runtime")
	c := &sessionCounters{live: map[string]sojourn{}, ended: map[client.SessionState]prometheus.Counter{}}
	for _, s := range []client.SessionState{client.SessionEnded, client.SessionLost} {
		c.ended[s] = ended.WithLabelValues(string(s))
	}
	c.runtimes = byName(runtimes, unknown, func(runtime string) *runtimeCounters {
		rt := &runtimeCounters{
			states:   map[string]prometheus.Gauge{},
			created:  [2]prometheus.Observer{created.WithLabelValues(runtime, "false"), created.WithLabelValues(runtime, "true")},
			failures: failures.WithLabelValues(runtime),
		}
		for _, s := range liveStates {
			rt.states[s] = states.WithLabelValues(s, runtime)
		}
		return rt
	})
	return c
}

// SessionState counts where a session is now. It goes by what was counted for the
// session before and not by old, so that a session that was adopted from an
// earlier daemon, or reported twice, is counted once.
func (m *Metrics) SessionState(s *client.Session, _ client.SessionState) {
	c := m.sessions
	in := c.runtimes.get(s.Runtime)
	c.mu.Lock()
	defer c.mu.Unlock()
	before, known := c.live[s.ID]
	if known {
		before.in.states[string(before.state)].Dec()
		delete(c.live, s.ID)
	}
	if gauge, ok := in.states[string(s.State)]; ok {
		c.live[s.ID] = before.next(s.State, in)
		gauge.Inc()
		return
	}
	if !known {
		return
	}
	if n, ok := c.ended[s.State]; ok {
		n.Inc()
	}
	if s.State == client.SessionLost && !before.made {
		in.failures.Inc()
	}
}

// next is where a session is that was at s before; the zero sojourn is of one that
// was not known.
func (s sojourn) next(state client.SessionState, in *runtimeCounters) sojourn {
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
	i := 0
	if warm {
		i = 1
	}
	m.sessions.runtimes.get(runtime).created[i].Observe(max(d, 0).Seconds())
}

// oldest is for how long the session that has been longest in this state is there.
func (c *sessionCounters) oldest(state client.SessionState, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var most time.Duration
	for _, s := range c.live {
		if s.state == state {
			most = max(most, now.Sub(s.since))
		}
	}
	return most
}
