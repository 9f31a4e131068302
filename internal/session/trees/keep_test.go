package trees

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/worktree/apply"
)

// TestNotesWithoutHandles: an overlay marks what it copies from a source whose file system has no
// handles with an empty attribute. The session has not made such a file, and nobody knows whether
// it has moved it.
func TestNotesWithoutHandles(t *testing.T) {
	t.Parallel()
	needs.OpenAt2(t)
	dir := t.TempDir()
	for _, name := range []string{"made", "copied", "odd"} {
		testrig.Must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	for name, origin := range map[string]string{"copied": "", "odd": "of another kernel"} {
		err := unix.Lsetxattr(filepath.Join(dir, name), "trusted.overlay.origin", []byte(origin), 0)
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) {
			t.Skip("needs root and extended attributes: ", err)
		}
		testrig.Must(t, err)
	}
	upper, err := os.Open(dir)
	testrig.Must(t, err)
	defer upper.Close()
	got := notesOf(upper, upper, []string{"made", "copied", "odd", "not there"}, false)
	if want := map[string]apply.Noted{"made": {Is: apply.Nothing}}; !maps.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
}
