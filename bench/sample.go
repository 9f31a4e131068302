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
	Pause string `json:"pause,omitempty"` // before each operation
	Unit  string `json:"unit"`            // of the figures: µs, MiB, ops/s …
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
	s := fmt.Sprintf("%-9s %-38s %-5s min %9.1f  p50 %9.1f  p99 %9.1f %-6s n %-5d", r.Group, r.Name, r.Pause, r.Min, r.P50, r.P99, r.Unit, r.N)
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

// subject is one thing to time.
type subject struct {
	name string
	op   func() error
	// every is for slow subjects: take only one for each so many of the others.
	every int
}

// runLength is how many operations of one subject follow each other before it is the
// next one's turn: enough to be back to back, few enough that all subjects see
// the same moods of the machine.
const runLength = 25

// inTurns times the subjects in turns, n operations of each, and gives each one's
// microseconds: without a pause back to back in short runs, with one an operation
// of each at a time and the pause before it.
func inTurns(n int, pause time.Duration, subjects []subject) (map[string]stats, error) {
	took := map[string][]float64{}
	length := runLength
	if pause > 0 {
		length = 1
	}
	for done := 0; done < n; done += length {
		for _, s := range subjects {
			times := min(length, n-done)
			if s.every > 1 {
				times = (done+times+s.every-1)/s.every - (done+s.every-1)/s.every
			}
			for range times {
				if pause > 0 {
					time.Sleep(pause)
				}
				start := time.Now()
				if err := s.op(); err != nil {
					return nil, fmt.Errorf("%s: %w", s.name, err)
				}
				took[s.name] = append(took[s.name], float64(time.Since(start).Nanoseconds())/1e3)
			}
		}
	}
	out := map[string]stats{}
	for name, v := range took {
		out[name] = summarise(v)
	}
	return out, nil
}
