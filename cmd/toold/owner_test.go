package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A daemon keeps its name; no other has it, whatever its state directory is called
// and wherever that was copied from.
func TestOwner(t *testing.T) {
	owner := func(dir string) string {
		t.Helper()
		name, err := ownerOf(dir)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	here := owner(dir)
	if again := owner(dir); again != here {
		t.Errorf("got %s, then %s", here, again)
	}
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if got := owner(copied); got == here {
		t.Error("a copy of the directory has the same name")
	}
	// The same path on another host.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := owner(dir); got == here {
		t.Error("another directory of that path has the same name")
	}
	if err := os.WriteFile(filepath.Join(dir, ownerFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if name, err := ownerOf(dir); err == nil {
		t.Errorf("a damaged file gives %s", name)
	}
}
