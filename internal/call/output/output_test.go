package output

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestOutputIsNeverPutBehindALink(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(dir, "call")); err != nil {
		t.Fatal(err)
	}
	sp := &file{Config: Config{Path: filepath.Join(dir, "call"), Used: new(atomic.Int64)}}
	sp.open()
	sp.write([]byte("evil"), false)
	sp.close()
	if b, _ := os.ReadFile(victim); string(b) != "x" || sp.stopped == "" {
		t.Errorf("victim %q, stopped %q", b, sp.stopped)
	}
}

// TestOutputMemory is the bound that keeps `yes` from filling the daemon: what
// is held of an output does not depend on its length.
func TestOutputMemory(t *testing.T) {
	var used atomic.Int64
	o := New(Config{
		Limits: Limits{MaxLines: 2000, MaxBytes: 51200, Direction: Both, SpillFile: 1 << 20},
		Path:   filepath.Join(t.TempDir(), "out"), Used: &used, Screen: true,
	})
	chunk := bytes.Repeat([]byte("y\n"), 32<<10)
	for range 4096 { // 256 MiB
		o.Write(chunk, false)
	}
	if n := cap(o.head) + cap(o.shown.head) + cap(o.shown.tail); n > 8*51200 {
		t.Errorf("%d bytes are held", n)
	}
	if c := o.Finish(); c.Bytes+int64(len(c.Head)+len(c.Tail)) != 256<<20 || o.Kept() != 1<<20 || used.Load() != 1<<20 {
		t.Errorf("left out %d, kept %d, counted %d", c.Bytes, o.Kept(), used.Load())
	}
}

// TestScreen: the result shows what a terminal would, cut by that; the file has what was printed, also
// where another daemon goes on with it.
func TestScreen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	printed := bytes.Repeat([]byte("\rget 10%\x1b[K\rget 99%\x1b[K"), 2000)
	printed = append(printed, "\n\x1b[32mok\x1b[0m\n"...)
	for _, screen := range []bool{true, false} {
		var used atomic.Int64
		c := Config{Limits: Limits{MaxLines: 9, MaxBytes: 1000, Direction: Both}, Path: path, Used: &used, Screen: screen}
		o := New(c)
		o.Write(printed[:20000], false)
		o.Release()
		o = New(c)
		if err := o.Restore(); err != nil {
			t.Fatal(err)
		}
		o.Write(printed[20000:], false)
		cut := o.Finish()
		if screen && (cut.Head != "get 99%\nok\n" || cut.Truncated || cut.Redraws != 4000 || cut.Controls != 4002) || !screen && !cut.Truncated {
			t.Errorf("a screen %v: %.200q, cut %v, %d redraws, %d controls", screen, cut.Head, cut.Truncated, cut.Redraws, cut.Controls)
		}
		if kept, err := os.ReadFile(path); err != nil || !bytes.Equal(kept, printed) {
			t.Errorf("the file has %d bytes, want %d, %v", len(kept), len(printed), err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestScreenIsNotCut: a sequence behind the last line that fits is no line.
func TestScreenIsNotCut(t *testing.T) {
	t.Parallel()
	var used atomic.Int64
	o := New(Config{Limits: Limits{MaxLines: 3, MaxBytes: 1000, Direction: Both}, Path: filepath.Join(t.TempDir(), "out"), Used: &used, Screen: true})
	o.Write([]byte("a\nb\nc\n\x1b[0m"), false)
	if c := o.Finish(); c.Truncated || c.Head != "a\nb\nc\n" || c.Controls != 1 {
		t.Errorf("%+v", c)
	}
}

func TestSpillReopen(t *testing.T) {
	dir := t.TempDir()
	var used atomic.Int64
	fresh := func() *file { return &file{Config: Config{Path: filepath.Join(dir, "c"), Used: &used, Split: true}} }
	a := fresh()
	a.open()
	a.write([]byte("out"), false)
	a.write([]byte("err"), true)
	a.close()
	// A daemon died after it wrote bytes and before it wrote of which stream
	// they were, and in the middle of a record.
	appendTo(t, filepath.Join(dir, "c"), "torn")
	appendTo(t, filepath.Join(dir, "c")+indexSuffix, "\x80\x00")
	b := fresh()
	f, err := b.reopen()
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(f)
	if err != nil || string(got) != "outerr" || b.kept.Load() != 6 {
		t.Errorf("read %q, %v, kept %d", got, err, b.kept.Load())
	}
	f.Close()
	b.write([]byte("again"), false)
	b.close()
	r, err := OpenStream(filepath.Join(dir, "c"), false, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || string(got) != "outagain" {
		t.Errorf("stdout %q, %v", got, err)
	}
	// An index that says more than there is would show bytes that never were.
	if err := os.Truncate(filepath.Join(dir, "c"), 2); err != nil {
		t.Fatal(err)
	}
	c := fresh()
	if _, err := c.reopen(); err == nil {
		t.Error("an index beyond its data was accepted")
	}
	c.close()
}

func appendTo(t *testing.T, file, s string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(s)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestSavedOutputIsInUse: what a tool can do to the file of an output, a lease
// of its own on it or a FIFO in its place, keeps nobody waiting.
func TestSavedOutputIsInUse(t *testing.T) {
	dir := t.TempDir()
	leased, fifo := filepath.Join(dir, "leased"), filepath.Join(dir, "fifo")
	if err := errors.Join(os.WriteFile(leased, []byte("x"), 0o644), unix.Mkfifo(fifo, 0o644)); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(leased)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	signal.Ignore(unix.SIGIO)
	defer signal.Reset(unix.SIGIO)
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		t.Skipf("no leases here: %v", err)
	}
	start := time.Now()
	for _, path := range []string{leased, fifo} {
		sp := &file{Config: Config{Path: path, Used: new(atomic.Int64)}}
		if f, err := sp.reopen(); err == nil {
			t.Errorf("%s was opened", path)
			f.Close()
		}
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("it took %s", d)
	}
}

func TestParsePosition(t *testing.T) {
	for id, want := range map[string]bool{"0": true, "12": true, "1,0": true, "": false, "-1": false, "01": false, "1,": false, "1,2,3": false, "evt_1": false, "+1": false, "99999999999999999999": false} {
		p, split, err := ParsePosition(id)
		if err == nil != want || err == nil && p.ID(split) != id {
			t.Errorf("ParsePosition(%q) = %v, %v, %v", id, p, split, err)
		}
	}
}
