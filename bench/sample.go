package main

import (
	"fmt"
	"slices"
	"time"
)

// row is one figure beside its yardstick.
type row struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	// Manner is how it was taken: "" in turns, "runs" in runs of each, or the
	// pause before each operation.
	Manner string `json:"manner,omitempty"`
	Unit   string `json:"unit"` // of the figures: µs, MiB, ops/s …
	stats
	Yardstick string  `json:"yardstick,omitempty"`
	Base      stats   `json:"base,omitzero"`
	Ratio     float64 `json:"ratio,omitempty"`     // p50 to the yardstick's p50
	RatioP99  float64 `json:"ratio_p99,omitempty"` // p99 to the yardstick's p99
	Target    string  `json:"target,omitempty"`
}

// stats are of one sample.
type stats struct {
	Min float64 `json:"min"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	N   int     `json:"n"`
}

// String is the row of the printed table.
func (r row) String() string {
	s := fmt.Sprintf("%-9s %-38s %-5s min %9.1f  p50 %9.1f  p99 %9.1f %-6s n %-5d", r.Group, r.Name, r.Manner, r.Min, r.P50, r.P99, r.Unit, r.N)
	if r.Yardstick != "" {
		s += fmt.Sprintf("  %5.2f × %s (p50 %.1f; p99 %.2f ×)", r.Ratio, r.Yardstick, r.Base.P50, r.RatioP99)
	}
	if r.Target != "" {
		s += "  target " + r.Target
	}
	return s
}

func summarise(v []float64) stats {
	if len(v) == 0 {
		return stats{}
	}
	slices.Sort(v)
	return stats{Min: v[0], P50: v[len(v)/2], P99: v[min(len(v)-1, len(v)*99/100)], N: len(v)}
}

// against sets the yardstick.
func (r row) against(name string, base stats) row {
	r.Yardstick, r.Base = name, base
	if base.P50 > 0 {
		r.Ratio = r.P50 / base.P50
	}
	if base.P99 > 0 {
		r.RatioP99 = r.P99 / base.P99
	}
	return r
}

// subject is one thing to time. It says itself how long it took, because what it
// does before and after does not always count.
type subject struct {
	name string
	op   func() (time.Duration, error)
	// every is for slow subjects: take only one for each so many of the others.
	every int
}

// timed is an operation of which everything counts.
func timed(op func() error) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		start := time.Now()
		err := op()
		return time.Since(start), err
	}
}

// runLength is how many operations of one subject follow each other in a run:
// enough to be back to back, few enough that all subjects see the same moods of
// the machine.
const runLength = 25

// manner is how subjects are timed: n operations of each, so many in a run before
// it is the next one's turn, each after a pause.
type manner struct {
	name   string
	n, run int
	pause  time.Duration
}

// inTurns times the subjects in turns and gives each one's microseconds.
func inTurns(m manner, subjects []subject) (map[string]stats, error) {
	took := map[string][]float64{}
	for done := 0; done < m.n; done += m.run {
		for _, s := range subjects {
			times := min(m.run, m.n-done)
			if s.every > 1 {
				times = (done+times+s.every-1)/s.every - (done+s.every-1)/s.every
			}
			for range times {
				if m.pause > 0 {
					time.Sleep(m.pause)
				}
				d, err := s.op()
				if err != nil {
					return nil, fmt.Errorf("%s: %w", s.name, err)
				}
				took[s.name] = append(took[s.name], float64(d.Nanoseconds())/1e3)
			}
		}
	}
	out := map[string]stats{}
	for name, v := range took {
		out[name] = summarise(v)
	}
	return out, nil
}
