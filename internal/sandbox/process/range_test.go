package process

import (
	"fmt"
	"os"
	"testing"
)

func TestIn(t *testing.T) {
	uid := uint32(os.Getuid())
	if who, err := In(uid); err != nil || who == "" {
		t.Errorf("nobody has our own uid: %q, %v", who, err)
	}
	if who, err := In(0xf000_0000); err != nil || who != "" {
		t.Errorf("%q has a uid that nobody has, %v", who, err)
	}
}

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
