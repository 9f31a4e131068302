// Package metrics counts what the daemon does, in the Prometheus format. It
// observes the session manager and is the only importer of the Prometheus
// client, so that nothing else depends on how counts are kept.
//
// Every label has a closed set of values, fixed when the daemon starts: what a
// client or a sandbox says never makes a new series. Names of tools and runtimes
// outside their set are counted as "unknown".
package metrics

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/session"
)

// Config is what New needs.
type Config struct {
	Version client.Version
	// Tools and Runtimes are the values that the labels of these names may have.
	Tools, Runtimes []string
}

// unknown stands for every name that is not in its label's set.
const unknown = "unknown"

// latency are the classic buckets of the histograms, in seconds, for scrapers
// without native histograms: a read takes 0.3 ms, a build its minutes.
var latency = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600}

// Metrics implements session.Observer. Its methods may be called from any
// goroutine and do not block.
type Metrics struct {
	registry *prometheus.Registry
	tools    map[string]bool
	runtimes map[string]bool

	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	sessions *prometheus.GaugeVec
	created  *prometheus.HistogramVec
	spilled  prometheus.Counter
	kills    *prometheus.CounterVec
	lenient  *prometheus.CounterVec

	mu   sync.Mutex       // guards live
	live map[string]state // of the sessions that have not ended
}

// state is where a session is counted.
type state struct{ state, runtime string }

// New makes a Metrics with a registry of its own.
func New(cfg Config) (*Metrics, error) {
	m := &Metrics{registry: prometheus.NewRegistry(), tools: set(cfg.Tools), runtimes: set(cfg.Runtimes), live: map[string]state{}}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "toold_build_info", Help: "1; the labels say what is running.",
		ConstLabels: prometheus.Labels{"version": cfg.Version.Version, "commit": cfg.Version.Commit, "go_version": cfg.Version.GoVersion},
	})
	build.Set(1)
	m.calls = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "toold_tool_calls_total", Help: "Finished calls by tool and outcome: ok, tool_error, denied, error.",
	}, []string{"tool", "outcome"})
	m.duration = histogram("toold_tool_call_duration_seconds", "Time from the start of a call's tool to its result.", "tool")
	m.sessions = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "toold_sessions", Help: "Sessions that have not ended, by state and runtime.",
	}, []string{"state", "runtime"})
	m.created = histogram("toold_sandbox_create_duration_seconds", "Time to a usable sandbox, by runtime and whether it was taken from the warm pool.", "runtime", "warm")
	m.spilled = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "toold_output_spilled_bytes_total", Help: "Bytes of whole outputs written to disk because they were too long for the result.",
	})
	m.kills = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "toold_call_kills_total", Help: "Calls whose processes were killed, by reason.",
	}, []string{"reason"})
	m.lenient = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "toold_lenient_conversions_total", Help: "Inputs in which a loosely typed value was converted, by tool.",
	}, []string{"tool"})
	return m, m.register(build)
}

func histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: latency,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}, labels)
}

func (m *Metrics) register(build prometheus.Collector) error {
	var errs []error
	for _, c := range []prometheus.Collector{
		build, m.calls, m.duration, m.sessions, m.created, m.spilled, m.kills, m.lenient,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		errs = append(errs, m.registry.Register(c))
	}
	return errors.Join(errs...)
}

// Handler answers scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// SessionState counts where a session is now. It goes by what was counted for the
// session before and not by old, so that a session that was adopted from an
// earlier daemon, or reported twice, is counted once.
func (m *Metrics) SessionState(s *client.Session, _ client.SessionState) {
	now := state{string(s.State), m.known(m.runtimes, s.Runtime)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if before, ok := m.live[s.ID]; ok {
		m.sessions.WithLabelValues(before.state, before.runtime).Dec()
		delete(m.live, s.ID)
	}
	switch s.State {
	case client.SessionCreating, client.SessionReady, client.SessionPaused, client.SessionEnding:
		m.live[s.ID] = now
		m.sessions.WithLabelValues(now.state, now.runtime).Inc()
	}
}

// SandboxCreated times a new sandbox.
func (m *Metrics) SandboxCreated(runtime string, warm bool, d time.Duration) {
	label := "false"
	if warm {
		label = "true"
	}
	m.created.WithLabelValues(m.known(m.runtimes, runtime), label).Observe(d.Seconds())
}

// CallFinished counts and times a call. Calls that never ran have no duration.
func (m *Metrics) CallFinished(c *client.Call, _, ran time.Duration) {
	tool := m.known(m.tools, c.Tool)
	m.calls.WithLabelValues(tool, outcome(c)).Inc()
	if c.Time.Started != nil {
		m.duration.WithLabelValues(tool).Observe(ran.Seconds())
	}
	if reason, _ := c.Metadata["reason"].(string); killReasons[reason] {
		m.kills.WithLabelValues(reason).Inc()
	}
}

// killReasons are those values of metadata.reason that mean that the daemon or a
// limit ended the call's processes.
var killReasons = set([]string{"timeout", "aborted", "memory", "pids", "disk", "output_limit", "session_ended", "lost"})

// outcome is the label of how a call ended.
func outcome(c *client.Call) string {
	switch {
	case c.Status == client.CallCompleted && !c.IsError:
		return "ok"
	case c.Status == client.CallCompleted:
		return "tool_error"
	case c.Error != nil && deniedCodes[c.Error.Code]:
		return "denied"
	}
	return "error"
}

// deniedCodes are the codes of calls that were not allowed to run.
var deniedCodes = map[client.Code]bool{client.CodeDenied: true, client.CodeApprovalTimeout: true, client.CodeDoomLoop: true}

// OutputSpilled counts bytes written to disk.
func (m *Metrics) OutputSpilled(bytes int64) { m.spilled.Add(float64(max(bytes, 0))) }

// LenientConversion counts an input that was converted.
func (m *Metrics) LenientConversion(tool string) {
	m.lenient.WithLabelValues(m.known(m.tools, tool)).Inc()
}

func (m *Metrics) known(names map[string]bool, name string) string {
	if names[name] {
		return name
	}
	return unknown
}

func set(names []string) map[string]bool {
	s := make(map[string]bool, len(names))
	for _, n := range names {
		s[n] = true
	}
	return s
}

// Decided implements session.Observer.
func (m *Metrics) Decided(*session.Decision) {}

// DoomLoop implements session.Observer.
func (m *Metrics) DoomLoop(string, int, policy.Action) {}

// ApprovalAsked implements session.Observer.
func (m *Metrics) ApprovalAsked(*client.Approval) {}

// ApprovalReplied implements session.Observer.
func (m *Metrics) ApprovalReplied(*client.Approval, string, time.Duration) {}

// Hooked implements session.Observer.
func (m *Metrics) Hooked(string, string, time.Duration) {}
