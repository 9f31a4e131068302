package store

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDatabaseCannotBeWritten: the journal takes what it may have, then says why
// it takes no more, and loses nothing of it.
func TestDatabaseCannotBeWritten(t *testing.T) {
	s := newTest(t)
	first := testCall(s, "ses_1", "")
	insert(t, s, first)
	if err := s.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.w.conn.ExecContext(t.Context(), "PRAGMA max_page_count = 20"); err != nil {
		t.Fatal(err)
	}
	var kept []string
	for {
		c := testCall(s, "ses_1", "")
		c.Input = []byte(`"` + strings.Repeat("x", 500_000) + `"`)
		err := s.Append(inserted(c))
		if errors.Is(err, ErrFull) {
			break
		}
		if kept = append(kept, c.ID); err != nil || len(kept) > maxJournal/500_000 {
			t.Fatalf("after %d: %v", len(kept), err)
		}
	}
	if len(kept) < 10 {
		t.Errorf("only %d calls were taken", len(kept))
	}
	for _, id := range []string{first.ID, kept[0], kept[len(kept)-1]} {
		if _, err := s.Call(t.Context(), id); err != nil {
			t.Errorf("a reader gets %v", err)
		}
	}
	if err := s.Write(func(*Tx) error { return nil }); !errors.Is(err, ErrFull) {
		t.Errorf("a write gets %v, and would come too early", err)
	}
	if _, err := s.w.conn.ExecContext(t.Context(), "PRAGMA max_page_count = 100000"); err != nil {
		t.Fatal(err)
	}
	for _, id := range kept {
		if _, err := s.Call(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	insert(t, s, testCall(s, "ses_1", ""))
}

// TestJournalCannotBeCut: a journal that is full and cannot be emptied is an error
// of who appends, also when all that is in it has been applied.
func TestJournalCannotBeCut(t *testing.T) {
	s := newTest(t)
	insert(t, s, testCall(s, "ses_1", ""))
	if err := s.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	j := s.w.journal
	readOnly, err := os.Open(j.path)
	if err != nil {
		t.Fatal(err)
	}
	j.mu.Lock()
	good, size := j.file, j.size
	j.file, j.size = readOnly, maxJournal
	j.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- s.Append(inserted(testCall(s, "ses_1", ""))) }()
	select {
	case err := <-done:
		if !errors.Is(err, ErrFull) {
			t.Errorf("%v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("still at it")
	}
	j.mu.Lock()
	j.file, j.size = good, size
	j.mu.Unlock()
	if err := readOnly.Close(); err != nil {
		t.Error(err)
	}
	insert(t, s, testCall(s, "ses_1", ""))
}

// childFills appends to a journal that may not grow, and goes on when it may.
func childFills(path string) {
	fail := func(v ...any) {
		fmt.Println(v...)
		os.Exit(1)
	}
	s, err := Open(Config{Path: path, delay: time.Hour})
	if err != nil {
		fail("open", err)
	}
	add := func(n int) error {
		c := testCall(s, "ses_1", "")
		c.Input = []byte(`"` + strings.Repeat("x", n) + `"`)
		return s.Append(inserted(c))
	}
	var limit unix.Rlimit
	if err := errors.Join(add(100_000), unix.Getrlimit(unix.RLIMIT_FSIZE, &limit)); err != nil {
		fail(err)
	}
	size := s.w.journal.size
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(size) + 500, Max: limit.Max}); err != nil {
		fail(err)
	}
	if err := add(10_000); !errors.Is(err, ErrFull) {
		fail("append to a full disk", err)
	}
	if fi, err := os.Stat(path + ".journal"); err != nil || fi.Size() != size {
		fail("half a record is left", fi.Size(), size, err)
	}
	if err := add(10); err != nil {
		fail("what there is room for", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		fail(err)
	}
	if err := add(20_000); err != nil {
		fail("when there is room again", err)
	}
	fmt.Println("ok")
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
}

func TestJournalOnFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toold.db")
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), fillEnv+"="+path)
	if out, _ := cmd.Output(); string(out) != "ok\n" {
		t.Fatalf("child: %s", out)
	}
	s := openTest(t, path)
	calls, _, err := s.Calls(t.Context(), CallFilter{Session: "ses_1", Limit: 10})
	var sizes []int
	for _, c := range calls {
		sizes = append(sizes, len(c.Input)-2)
	}
	if err != nil || !slices.Equal(sizes, []int{100_000, 10, 20_000}) {
		t.Errorf("the calls have %v, %v", sizes, err)
	}
}

// TestJournalThatCannotBeMended: what cannot be cut off must not be followed, and is cut off
// when that can be done.
func TestJournalThatCannotBeMended(t *testing.T) {
	s := newTest(t)
	insert(t, s, testCall(s, "ses_1", ""))
	if err := s.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.w.journal.mu.Lock()
	broken, err := os.Open("/dev/null") // neither to be written nor cut
	good := s.w.journal.file
	s.w.journal.file = broken
	s.w.journal.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Append(inserted(testCall(s, "ses_1", ""))); !errors.Is(err, ErrFull) {
			t.Errorf("got %v", err)
		}
		if err := s.Ready(); !errors.Is(err, ErrFull) {
			t.Errorf("ready: %v", err)
		}
	}
	s.w.journal.mu.Lock()
	s.w.journal.file = good
	_, err = good.Write([]byte("half a frame"))
	s.w.journal.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	_ = broken.Close()
	if err := s.Ready(); err != nil {
		t.Errorf("ready when it can be written again: %v", err)
	}
	insert(t, s, testCall(s, "ses_1", ""))
	if n, err := s.CountCalls(t.Context(), "ses_1"); err != nil || n != 2 {
		t.Errorf("%d calls, %v", n, err)
	}
	b, err := os.ReadFile(good.Name())
	if err != nil {
		t.Fatal(err)
	}
	if whole, err := checkFrames(b[journalHeader:]); err != nil || journalHeader+whole != len(b) {
		t.Errorf("%d of %d bytes are frames, %v", whole, len(b)-journalHeader, err)
	}
}

// TestBadEntry: what cannot be encoded is refused as a whole.
func TestBadEntry(t *testing.T) {
	s := newTest(t)
	c := testCall(s, "ses_1", "")
	c.Metadata = map[string]any{"x": func() {}}
	if err := s.Append(inserted(c), finished(c)); err == nil {
		t.Error("appended")
	}
	if err := s.Write(func(tx *Tx) error { return errors.Join(tx.Put(inserted(c)), tx.Put(finished(c))) }); err == nil {
		t.Error("written")
	}
	if _, err := s.Call(t.Context(), c.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("half of it is there: %v", err)
	}
}
