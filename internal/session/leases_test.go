package session

import (
	"fmt"
	"testing"
)

// A process whose first thread has ended is shown as a zombie and lives on.
func TestEnded(t *testing.T) {
	for _, tt := range []struct {
		state   string
		threads int
		want    bool
	}{
		{"S (sleeping)", 1, false},
		{"Z (zombie)", 1, true},
		{"Z (zombie)", 2, false},
		{"X (dead)", 1, true},
	} {
		status := fmt.Sprintf("Name:\tState:\tS\nState:\t%s\nUid:\t1\t1\t1\t1\nThreads:\t%d\n", tt.state, tt.threads)
		if got := ended(status); got != tt.want {
			t.Errorf("%s with %d threads: %t, want %t", tt.state, tt.threads, got, tt.want)
		}
	}
}
