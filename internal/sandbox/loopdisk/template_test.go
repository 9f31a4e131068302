package loopdisk

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// The oldest templates make room for one more; what is none stays.
func TestPruneTemplates(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"own-1", "disk-3", "disk-1", "disk-4", "disk-2", "disk-5"} {
		path, at := filepath.Join(dir, name), time.Unix(int64(1_600_000_000+i), 0)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := pruneTemplates(dir); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(dir + "/*")
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	if want := []string{"disk-2", "disk-4", "disk-5", "own-1"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left %q, %v, want %q", left, err, want)
	}
}
