package store

import (
	"os"
	"path/filepath"
	"testing"
)

// TestBackupIsWhole: a copy that is made while the store is at work has what was written before, and
// opens as a store; a file that is there is not written over.
func TestBackupIsWhole(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Config{Path: filepath.Join(dir, "toold.db")})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(func(tx *Tx) error { return tx.TakeLease(7, "ses_1") }); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "copy.db")
	if err := s.Backup(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(func(tx *Tx) error { return tx.TakeLease(8, "ses_2") }); err != nil {
		t.Fatal(err)
	}
	if err := s.Backup(t.Context(), copied); err == nil {
		t.Error("a file was written over")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(copied); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	c, err := Open(Config{Path: copied})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if held, _, err := c.Leases(t.Context()); err != nil || len(held) != 1 || held[0].Base != 7 {
		t.Errorf("%+v, %v", held, err)
	}
}
