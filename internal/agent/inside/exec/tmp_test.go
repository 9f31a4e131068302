package exec

import "testing"

// TestInMemory: what lies on a disk frees no memory, so that it is not removed for that.
func TestInMemory(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]bool{"": false, "/none": false, "/proc": false, "/dev/shm": true} {
		if got := InMemory(dir); got != want {
			t.Errorf("%q: %v", dir, got)
		}
	}
}
