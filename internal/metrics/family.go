package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// label is one with a closed set of values.
type label struct {
	name   string
	values []string
	other  string // stands for all that are not among them; "" is for those that do not count
}

// key are the values of a series' labels, in their order.
type key [3]string

// family is a metric with one series for each combination of its labels' values. It does
// not change once made.
type family[T any] struct {
	labels []label
	series map[key]T
	make   func(values ...string) T
}

type (
	counters = family[prometheus.Counter]
	gauges   = family[prometheus.Gauge]
	timers   = family[timer]
)

// newFamily makes a family and all of its series.
func newFamily[T any](labels []label, make func(values ...string) T) family[T] {
	f := family[T]{labels: labels, series: map[key]T{}, make: make}
	f.add(nil)
	return f
}

// add makes the series whose values begin with these.
func (f *family[T]) add(values []string) {
	if len(values) == len(f.labels) {
		var k key
		copy(k[:], values)
		f.series[k] = f.make(values...)
		return
	}
	l := f.labels[len(values)]
	for _, v := range l.values {
		f.add(append(slices.Clip(values), v))
	}
	if l.other != "" && !slices.Contains(l.values, l.other) {
		f.add(append(slices.Clip(values), l.other))
	}
}

// of gives the series of these values, the zero T where one of them does not count. It
// takes no lock and no memory.
func (f *family[T]) of(values ...string) T {
	var k key
	copy(k[:], values)
	if v, ok := f.series[k]; ok {
		return v
	}
	for i, l := range f.labels {
		if !slices.Contains(l.values, k[i]) {
			k[i] = l.other
		}
	}
	return f.series[k]
}

// timer is a histogram of seconds.
type timer struct{ prometheus.Observer }

// took observes a duration; one below zero, which a clock that was set back makes, is zero.
func (t timer) took(d time.Duration) { t.Observe(max(d, 0).Seconds()) }

// names are label values of one type.
func names[T ~string](values ...T) []string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = string(v)
	}
	return all
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

func namesOf(labels []label) (names []string) {
	for _, l := range labels {
		names = append(names, l.name)
	}
	return names
}

func (r *registrar) counter(name, help string, labels ...label) counters {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, namesOf(labels))
	r.add(v)
	return newFamily(labels, v.WithLabelValues)
}

func (r *registrar) gauge(name, help string, labels ...label) gauges {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, namesOf(labels))
	r.add(v)
	return newFamily(labels, v.WithLabelValues)
}

// asked is a gauge whose value is worked out at each scrape.
func (r *registrar) asked(name, help string, labels prometheus.Labels, value func() float64) {
	r.add(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value))
}

// histogram makes one that is native and, for scrapers that ask for no native
// ones, has classic buckets.
func (r *registrar) histogram(name, help string, buckets []float64, labels ...label) timers {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}, namesOf(labels))
	r.add(v)
	return newFamily(labels, func(values ...string) timer { return timer{v.WithLabelValues(values...)} })
}
