package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAuditEnd: what was noted last is read, also from the journal that a killed daemon left
// and while the database cannot be written, for each log by itself.
func TestAuditEnd(t *testing.T) {
	s := newTest(t)
	note := func(s *Store, log string, seq uint64) {
		t.Helper()
		e := &Entry{}
		e.AuditEnd(&AuditEnd{Log: log, First: 1, Seq: seq, Hash: "h" + log, Boot: 7})
		if err := s.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	want := func(s *Store, log string, seq uint64) {
		t.Helper()
		w := AuditEnd{Log: log}
		if seq > 0 {
			w = AuditEnd{Log: log, First: 1, Seq: seq, Hash: "h" + log, Boot: 7}
		}
		if got, err := s.AuditEnd(t.Context(), log); err != nil || got != w {
			t.Errorf("%+v, %v; want %+v", got, err, w)
		}
	}
	want(s, "a", 0)
	for _, l := range []string{"a", "b", "a", "a", "b"} {
		note(s, l, 3)
	}
	note(s, "a", 4)
	want(s, "a", 4)
	want(s, "b", 3)

	// The database takes no more: what waits in the journal counts.
	if _, err := s.w.conn.ExecContext(t.Context(), "PRAGMA max_page_count = 20"); err != nil {
		t.Fatal(err)
	}
	c := testCall(s, "ses_1", "")
	c.Input = []byte(`"` + strings.Repeat("x", 500_000) + `"`)
	insert(t, s, c)
	note(s, "a", 5)
	want(s, "a", 5)
	want(s, "b", 3)
	want(s, "c", 0)
	if err := s.flush(t.Context()); !errors.Is(err, ErrFull) {
		t.Fatalf("the database takes it: %v", err)
	}
	if _, err := s.w.conn.ExecContext(t.Context(), "PRAGMA max_page_count = 100000"); err != nil {
		t.Fatal(err)
	}
	want(s, "a", 5)

	path := filepath.Join(t.TempDir(), "toold.db")
	killed := still(t, path)
	note(killed, "a", 8)
	note(killed, "b", 2)
	left, err := os.ReadFile(path + ".journal")
	if err != nil {
		t.Fatal(err)
	}
	abandon(t, killed)
	if err := os.WriteFile(path+".journal", left, 0o600); err != nil {
		t.Fatal(err)
	}
	next := openTest(t, path)
	want(next, "a", 8)
	want(next, "b", 2)
}
