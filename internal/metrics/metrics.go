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
	"time"

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
	// Tenants are those that there are at the start; see AddTenants.
	Tenants []string
	// Usage says what each tenant uses; it is asked at every scrape and must not
	// take long. Nil leaves the tenants at zero.
	Usage func(context.Context) ([]client.TenantUsage, error)
	// Space says how much room there is; it is asked at every scrape and must not take
	// long. Nil is none.
	Space func() Space
	// StoreErrors and AuditErrors count failed writes since the start; nil is
	// none.
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
	hooks     hookCounters
	worktrees worktreeCounters
	reloaded  prometheus.Gauge
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
	m.calls = newCallCounters(r, cfg.Tools)
	m.sessions = newSessionCounters(r, cfg.Runtimes)
	m.policy = newPolicyCounters(r, cfg.Tools, cfg.Permissions)
	m.approvals = newApprovalCounters(r)
	m.hooks = newHookCounters(r)
	m.worktrees = newWorktreeCounters(r)
	m.reloaded = r.gauge("toold_config_last_reload_successful",
		"1 if the last reload of the configuration succeeded; 0 if it was refused and the previous one is in use.").WithLabelValues()
	m.Reloaded(nil) // the one that the daemon has started with
	m.usage = newUsageCollector(cfg.Usage)
	m.AddTenants(cfg.Tenants)
	r.add(m.usage, &waitsCollector{m}, spaceCollector{cfg.Space},
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
		m.reloaded.Set(0)
		return
	}
	m.reloaded.Set(1)
}

// registrar makes collectors and keeps the errors of registering them.
type registrar struct {
	to   prometheus.Registerer
	errs []error
}

func (r *registrar) add(all ...prometheus.Collector) {
	for _, c := range all {
		r.errs = append(r.errs, r.to.Register(c))
	}
}

func (r *registrar) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	r.add(v)
	return v
}

func (r *registrar) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	r.add(v)
	return v
}

// histogram makes one that is native and, for scrapers that ask for no native
// ones, has classic buckets.
func (r *registrar) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}, labels)
	r.add(v)
	return v
}

func failures(name, help string, count func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 {
		if count == nil {
			return 0
		}
		return float64(count())
	})
}

// byName makes one value for each name of a closed set and one for all others.
func byName[T any](names []string, other string, make func(name string) T) closed[T] {
	c := closed[T]{named: map[string]T{}, other: make(other)}
	for _, n := range names {
		if _, ok := c.named[n]; !ok && n != other {
			c.named[n] = make(n)
		}
	}
	return c
}

// closed are the values of a label's closed set. It does not change once made.
type closed[T any] struct {
	named map[string]T
	other T
}

func (c closed[T]) get(name string) T {
	if v, ok := c.named[name]; ok {
		return v
	}
	return c.other
}
