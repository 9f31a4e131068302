package testrig

import (
	"testing"
	"time"
)

// Patience is how long Eventually waits for what takes no time on a machine that does
// nothing else: for liveness, not for speed.
const Patience = 2 * time.Minute

// Eventually waits until ok is true of what another goroutine or process does, and fails
// the test when that takes more than Patience.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !Soon(ok) {
		t.Fatalf("not within %s: %s", Patience, what)
	}
}

// Soon is Eventually for who can do without, or has more to say.
func Soon(ok func() bool) bool {
	for end := time.Now().Add(Patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
