package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDamageWhereNothingWasClosed: a database of any size is checked whole when the last
// daemon has not closed it.
func TestDamageWhereNothingWasClosed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "toold.db")
	s, err := Open(Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		c := testCall(s, "ses_1", "")
		c.Input = []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
		insert(t, s, c)
	}
	if _, err := s.w.conn.ExecContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	killed := filepath.Join(t.TempDir(), "toold.db") // as it is while a daemon runs
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// The pages of one input: nobody reads them at start.
	at := strings.LastIndex(string(b), strings.Repeat("x", 4000))
	page := at - at%4096
	clear(b[page : page+4096])
	closed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clear(closed[page : page+4096])
	if err := errors.Join(os.WriteFile(killed, b, 0o600), os.WriteFile(path, closed, 0o600)); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(Config{Path: killed}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("after a kill: %v", err)
		if err == nil {
			_ = s.Close()
		}
	}
	s, err = Open(Config{Path: path})
	if err != nil {
		t.Fatalf("after a stop: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
