package main

import (
	"os"
	"runtime/debug"
)

const (
	// collectAt lets the heap grow to four times what is in use before it is
	// collected: a call is nearly all garbage when it has ended, and a collector
	// that runs every few dozen calls costs them a tenth of their time.
	collectAt = 300
	// collectAlways is the size, in bytes, from which on that does not hold: memory
	// that large results take is looked after more often.
	collectAlways = 256 << 20
)

// tuneCollector sets the garbage collector for a daemon, as far as GOGC and
// GOMEMLIMIT say nothing else.
func tuneCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(collectAlways)
	}
}
