package budget

import (
	"math"
	"testing"
)

// TestSizes: both budgets together, and what a daemon needs beside them, fit into the memory that it
// may have; they are bounded where it may have much, and never nothing.
func TestSizes(t *testing.T) {
	for _, limit := range []int64{0, 1 << 20, 64 << 20, 200 << 20, 1 << 30, 64 << 30, math.MaxInt64 / 4} {
		results, requests := Sizes(limit)
		if results < 1<<20 || requests < 1<<20 || results > Total || requests > 4*Total {
			t.Errorf("of %d: %d for results, %d for requests", limit, results, requests)
		}
		if limit >= 100<<20 && results+requests > limit-40<<20 {
			t.Errorf("of %d results and requests take %d", limit, results+requests)
		}
		// The largest request is weighed as all that there is at most, or it would wait for ever.
		if m := New(requests); m.WeighRequest(math.MaxInt64/inputCopies) > requests {
			t.Errorf("of %d: a request weighs more than there is", limit)
		}
	}
}
