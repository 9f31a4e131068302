package root

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// LstatEach says of each path what Lstat says, in order, errors included.
func TestLstatEach(t *testing.T) {
	dir := t.TempDir()
	r, err := New(Config{Dir: dir, UID: -1, GID: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("123"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	paths := []string{"/a", "/missing", "/link", "", "/a"}
	i := 0
	r.LstatEach(t.Context(), paths, func(path string, info Info, err error) {
		want, werr := lstatAlone(t, dir, paths[i])
		if path != paths[i] || info != want || (err == nil) != (werr == nil) {
			t.Errorf("%d: got %q %+v %v, want %q %+v %v", i, path, info, err, paths[i], want, werr)
		}
		i++
	})
	if i != len(paths) {
		t.Errorf("%d of %d paths were answered", i, len(paths))
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	i = 0
	r.LstatEach(ctx, paths, func(_ string, _ Info, err error) {
		i++
		if err == nil {
			t.Error("answered although there was no time")
		}
	})
	if i != len(paths) {
		t.Errorf("without time %d of %d paths were answered", i, len(paths))
	}
}

// lstatAlone asks a Root of its own: the callback must not use the one that runs it.
func lstatAlone(t *testing.T, dir, path string) (Info, error) {
	t.Helper()
	r, err := New(Config{Dir: dir, UID: -1, GID: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	return r.Lstat(t.Context(), path)
}
