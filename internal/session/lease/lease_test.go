package lease

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/hostlock"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/store"
)

func openStore(t *testing.T) *store.Store {
	t.Helper()
	st, err := store.Open(store.Config{Path: filepath.Join(t.TempDir(), "db"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st
}

// openRanges is what a daemon has; busy are the ranges in use.
func openRanges(t *testing.T, claims string, base uint32, st *store.Store, busy map[uint32]bool) *Ranges {
	t.Helper()
	l, err := Open(claims, base, st)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	l.InUse = func(b uint32) (string, error) {
		if busy[b] {
			return "process 7", nil
		}
		return "", nil
	}
	if _, err := l.Restore(t.Context(), func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestRanges(t *testing.T) {
	busy := map[uint32]bool{}
	st := openStore(t)
	err := st.Write(func(tx *store.Tx) error {
		return errors.Join(tx.TakeLease(1000+sandbox.RangeSize, "ses_1"), tx.TakeLease(1000, "ses_0"), tx.DropLease(1000))
	})
	if err != nil {
		t.Fatal(err)
	}
	l := openRanges(t, filepath.Join(t.TempDir(), "uids"), 1000, st, busy)
	first, err := l.Take()
	if err != nil || first != 1000+2*sandbox.RangeSize {
		t.Fatalf("after a restart: %d, %v", first, err)
	}
	l.Drop(first)
	if again, _ := l.Take(); again == first {
		t.Error("a range was used again at once")
	}
	l.next = maxRanges
	busy[1000] = true
	if got, err := l.Take(); err != nil || got != first {
		t.Errorf("after the end: %d, %v, want %d: the first is busy, the second held", got, err, first)
	}
	for i := range maxRanges {
		l.used[1000+uint32(i)*sandbox.RangeSize] = true
	}
	if _, err := l.Take(); !errors.Is(err, ErrNone) {
		t.Errorf("without a free range: %v", err)
	}
}

// A range that one daemon gave back, or that it died with and nothing is alive in,
// another one takes; it leaves alone what is in use.
func TestTwoDaemons(t *testing.T) {
	claims, busy := filepath.Join(t.TempDir(), "uids"), map[uint32]bool{}
	one, two := openRanges(t, claims, sandbox.RangeSize, openStore(t), busy), openRanges(t, claims, sandbox.RangeSize, openStore(t), busy)
	var given []uint32
	for range 3 {
		for _, l := range []*Ranges{one, two} {
			base, err := l.Take()
			if err != nil {
				t.Fatal(err)
			}
			given = append(given, base)
		}
	}
	one.Drop(given[2])
	two.next = 0
	if got, err := two.Take(); err != nil || got != given[2] {
		t.Errorf("got range %d, %v, want %d, which the other gave back", got, err, given[2])
	}
	_ = one.Close() // as when its daemon is killed
	busy[given[0]] = true
	two.next = 0
	if got, err := two.Take(); err != nil || got != given[4] {
		t.Errorf("got range %d, %v, want %d, the only one of which nothing is alive", got, err, given[4])
	}
}

// Ranges cannot be claimed in a file that others may have their hands in.
func TestClaimsFailClosed(t *testing.T) {
	dir := t.TempDir()
	for name, make := range map[string]func(path string) error{
		"a link":          func(p string) error { return os.Symlink(dir+"/elsewhere", p) },
		"open to others":  func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o600), os.Chmod(p, 0o666)) },
		"a directory":     func(p string) error { return os.Mkdir(p, 0o700) },
		"a pipe":          func(p string) error { return unix.Mkfifo(p, 0o600) },
		"nowhere/missing": func(string) error { return nil },
	} {
		path := filepath.Join(dir, name)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		c, err := hostlock.Open(path)
		if _, ok := errors.AsType[*fs.PathError](err); !ok {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
}

// A range that was left has a mark until somebody has it again.
func TestClaimsLook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "uids")
	open := func() claims {
		t.Helper()
		c, err := hostlock.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return claims{c}
	}
	want := func(c claims, base uint32, taken, left bool) {
		t.Helper()
		if gotTaken, gotLeft, err := c.look(base); gotTaken != taken || gotLeft != left || err != nil {
			t.Errorf("range %d: taken %v, left %v, %v; want %v, %v", base, gotTaken, gotLeft, err, taken, left)
		}
	}
	a, b := open(), open()
	defer b.Close()
	const last = 65535 * sandbox.RangeSize // of all that there can be
	for _, base := range []uint32{0, 7 * sandbox.RangeSize, last} {
		want(b, base, false, false)
		if ok, err := a.take(base); !ok || err != nil {
			t.Fatal(ok, err)
		}
		want(b, base, true, false)
		if ok, err := b.take(base); ok || err != nil {
			t.Errorf("range %d was claimed twice: %v", base, err)
		}
	}
	want(b, 6*sandbox.RangeSize, false, false)
	a.drop(0)
	want(b, 0, false, false)
	a.Close() // as when its daemon is killed
	want(b, last, false, true)
	if ok, err := b.take(last); !ok || err != nil {
		t.Error(ok, err)
	}
}
