package call

import (
	"time"

	"github.com/toold/toold/client"
)

// clock has the times of a call as this daemon has seen them. Those of its row are
// in milliseconds, of which a small tool takes less than one, and may be set back.
// It belongs to the call's own goroutine; zero is what it has not seen.
type clock struct{ came, ran, ended time.Time }

// durations says how long a call waited and how long it ran, 0 where it never did.
// What the clock has not seen, of a call that an earlier daemon began, is as
// stored.
func (k *clock) durations(stored *client.CallTime) (queued, ran time.Duration) {
	came := k.came
	if came.IsZero() {
		came = stored.Queued
	}
	if stored.Started == nil {
		return k.ended.Sub(came), 0
	}
	began := k.ran
	if began.IsZero() {
		began = *stored.Started
	}
	return began.Sub(came), k.ended.Sub(began)
}
