// Package metrics counts what the daemon does, in the Prometheus format. It
// observes the session manager and is the only importer of the Prometheus
// client, so that nothing else depends on how counts are kept.
//
// Every label has a closed set of values, fixed when the daemon starts: what a
// client or a sandbox says never makes a new series. Names of tools, runtimes and
// tenants outside their set are counted as "unknown", permissions as "other". The
// series of a closed set are all there from the start, at zero: a rate over the
// first event of a kind is right, and an alert on a kind that never happened does
// not ask for a series that is missing.
//
// Observers are on the path of every call, so what a call needs is looked up when
// the daemon starts: counting one takes no lock and no memory.
package metrics

import (
	"context"
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/toold/toold/client"
)

// Config is what New needs.
type Config struct {
	Version client.Version
	// Tools, Runtimes and Permissions are the values that the labels of these
	// names may have. The permissions that are no tool's need not be given.
	Tools, Runtimes, Permissions []string
	// Aliases are the names of other systems that calls of each tool may be made with.
	Aliases map[string][]string
	// Tenants are those that there are at the start; see AddTenants.
	Tenants []string
	// Usage says what each tenant uses; it is asked at every scrape and must not
	// take long.
	Usage func(context.Context) ([]client.TenantUsage, error)
	// Space says how much room there is; it is asked at every scrape and must not take
	// long.
	Space func() Space
	// StoreErrors and AuditErrors count failed writes since the start.
	StoreErrors, AuditErrors func() uint64
}

const (
	// unknown stands for every name that is not in its label's set.
	unknown = "unknown"
	// scrapesAtOnce bounds the scrapes that are answered at a time. More than one
	// Prometheus and a curious admin are no reason for as many copies of the text.
	scrapesAtOnce = 8
)

// Classic buckets of the histograms, in seconds, for scrapers without native
// histograms. latency: a read takes 0.3 ms, a build its minutes. waiting: a person
// who answers takes seconds at best.
var (
	latency = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600}
	waiting = []float64{.1, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
)

// Metrics implements session.Observer. Its methods may be called from any
// goroutine and do not block.
type Metrics struct {
	registry *prometheus.Registry

	calls     callCounters
	sessions  *sessionCounters
	policy    policyCounters
	approvals *approvalCounters
	worktrees works
	network   networkCounters
	reloaded  gauges
	usage     *usageCollector
}

// New makes a Metrics with a registry of its own.
func New(cfg Config) (*Metrics, error) {
	m := &Metrics{registry: prometheus.NewRegistry()}
	r := &registrar{to: m.registry}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "toold_build_info", Help: "Always 1; the labels have the version that is running.",
		ConstLabels: prometheus.Labels{"version": cfg.Version.Version, "commit": cfg.Version.Commit, "go_version": cfg.Version.GoVersion},
	})
	build.Set(1)
	r.add(build)
	tool := label{"tool", cfg.Tools, unknown}
	m.calls = newCallCounters(r, tool, cfg.Aliases)
	m.sessions = newSessionCounters(r, label{"runtime", cfg.Runtimes, unknown})
	m.policy = newPolicyCounters(r, tool, cfg.Permissions)
	m.approvals = newApprovalCounters(r)
	m.worktrees = worktreeWorks(r)
	m.network = newNetworkCounters(r)
	m.reloaded = r.gauge("toold_config_last_reload_successful",
		"1 if the last reload of the configuration succeeded; 0 if it was refused and the previous one is in use.")
	m.Reloaded(nil) // the one that the daemon has started with
	m.usage = &usageCollector{ask: cfg.Usage, tenants: map[string]bool{}}
	m.AddTenants(cfg.Tenants)
	r.add(m.usage, spaceCollector{cfg.Space},
		failures("toold_store_errors_total", "Failed writes to the daemon's store, such as on a full disk.", cfg.StoreErrors),
		failures("toold_audit_errors_total", "Failed writes to the audit log.", cfg.AuditErrors),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m, errors.Join(r.errs...)
}

// Handler answers scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapesAtOnce})
}

// Reloaded tells how the last reload of the configuration ended.
func (m *Metrics) Reloaded(err error) {
	if err != nil {
		m.reloaded.of().Set(0)
		return
	}
	m.reloaded.of().Set(1)
}

func failures(name, help string, count func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 {
		return float64(count())
	})
}
