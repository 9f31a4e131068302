package mount

import (
	"os"
	"testing"
)

// TestProbeOverlay: it says yes where the other tests mount theirs and leaves nothing there,
// and says no where nothing can lie.
func TestProbeOverlay(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	if err := ProbeOverlay(dir); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("there are %v, %v", left, err)
	}
	if ProbeOverlay("/proc") == nil {
		t.Error("layers can lie in /proc")
	}
}
