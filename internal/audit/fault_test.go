package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/store"
)

// faulty is a file whose disk is full while room is there for fewer bytes.
type faulty struct {
	file
	room     int // bytes that still fit; -1 = any number
	stuck    bool
	truncate int
}

func (f *faulty) Write(p []byte) (int, error) {
	if f.room < 0 || len(p) <= f.room {
		return f.file.Write(p)
	}
	n, err := f.file.Write(p[:f.room])
	f.room -= n
	return n, errors.Join(err, unix.ENOSPC)
}

func (f *faulty) Truncate(size int64) error {
	f.truncate++
	if f.stuck {
		return unix.EIO
	}
	return f.file.Truncate(size)
}

func TestFullDisk(t *testing.T) {
	for _, strict := range []bool{true, false} {
		t.Run(fmt.Sprintf("strict=%t", strict), func(t *testing.T) {
			l := open(t, Config{Strict: strict})
			if err := l.Decided(decision(1)); err != nil {
				t.Fatal(err)
			}
			f := &faulty{file: l.f, room: 100}
			l.f = f
			err := l.Decided(decision(2))
			var fe *fault.Error
			if strict && (!errors.As(err, &fe) || fe.Kind != fault.Overloaded || fe.Hint == "") || !strict && err != nil {
				t.Fatalf("decision on a full disk: %v", err)
			}
			if err := l.Finished(auth.Principal{}, finished(1), [32]byte{}); (err != nil) != strict {
				t.Fatalf("end of a call on a full disk: %v", err)
			}
			if l.Errors() != 2 {
				t.Errorf("%d errors, want 2", l.Errors())
			}
			f.room = -1
			if err := l.Decided(decision(3)); err != nil {
				t.Fatal(err)
			}
			want, refused := "decision gap decision finished decision", uint64(0)
			if strict {
				want, refused = "decision gap finished decision", 1
			}
			all := records(t, l.cfg.Path)
			if kinds(all) != want {
				t.Fatalf("got %s, want %s", kinds(all), want)
			}
			if g := all[1].Gap; g.Refused != refused || g.Lost != 0 || !strings.Contains(g.Error, "no space") || g.Since.IsZero() {
				t.Errorf("gap: %+v", g)
			}
			if err := l.Decided(decision(4)); err != nil || len(records(t, l.cfg.Path)) != len(all)+1 {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// TestRetry: what waits is written when there is room, although nobody calls.
func TestRetry(t *testing.T) {
	l := open(t, Config{})
	l.every = time.Millisecond
	real := l.f
	l.mu.Lock()
	l.f = &faulty{file: real}
	l.mu.Unlock()
	_ = l.Decided(decision(1))
	l.mu.Lock()
	l.f = real
	l.mu.Unlock()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		waits := len(l.waiting)
		l.mu.Unlock()
		if waits == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d records still wait", waits)
		}
	}
	if got := kinds(records(t, l.cfg.Path)); l.Errors() != 1 || got != "gap decision" {
		t.Errorf("got %s, %d errors", got, l.Errors())
	}
}

// TestRetryInVain: it is not counted, and a closed log is left alone.
func TestRetryInVain(t *testing.T) {
	l := open(t, Config{})
	f := &faulty{file: l.f}
	l.f = f
	_ = l.Decided(decision(1))
	l.retry()
	if l.Errors() != 1 || len(records(t, l.cfg.Path)) != 0 {
		t.Fatalf("%d errors", l.Errors())
	}
	f.room = -1
	l.retry()
	if got := kinds(records(t, l.cfg.Path)); got != "gap decision" {
		t.Errorf("got %s", got)
	}
	_ = l.Close()
	l.retry()
}

func TestPieceThatStays(t *testing.T) {
	l := open(t, Config{Strict: true})
	f := &faulty{file: l.f, room: 10, stuck: true}
	l.f = f
	for range 3 {
		if err := l.Decided(decision(1)); err == nil {
			t.Fatal("no error")
		}
		f.room = -1
	}
	if f.truncate != 2 {
		t.Errorf("tried to cut the piece off %d times, want 2", f.truncate)
	}
	f.stuck = false
	if err := l.Decided(decision(2)); err != nil {
		t.Fatal(err)
	}
	if got := kinds(records(t, l.cfg.Path)); got != "gap decision" {
		t.Errorf("got %s", got)
	}
}

func TestWaitingIsBounded(t *testing.T) {
	l := open(t, Config{})
	real := l.f
	l.f = &faulty{file: real}
	c := finished(1)
	c.Extra = json.RawMessage(`"` + strings.Repeat("x", 60<<10) + `"`)
	n := maxWaiting/(60<<10) + 5
	for range n {
		_ = l.Finished(auth.Principal{}, c, [32]byte{})
	}
	if l.held > maxWaiting {
		t.Errorf("%d bytes wait", l.held)
	}
	l.f = real
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	all := records(t, l.cfg.Path)
	if g := all[0].Gap; g == nil || g.Lost == 0 || int(g.Lost)+len(all)-1 != n {
		t.Errorf("gap %+v and %d records of %d", g, len(all)-1, n)
	}
}

func TestCloseOnAFullDisk(t *testing.T) {
	var said bytes.Buffer
	l := open(t, Config{Log: slog.New(slog.NewTextHandler(&said, nil))})
	l.f = &faulty{file: l.f}
	_ = l.Decided(decision(1))
	if err := l.Close(); err == nil || !strings.Contains(said.String(), "without all of its records") {
		t.Errorf("got %v, %s", err, &said)
	}
}

func TestRotationThatFails(t *testing.T) {
	l := open(t, Config{Strict: true, Rotate: 500})
	if err := os.WriteFile(record.OldName(l.cfg.Path, 1), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := l.Decided(decision(i)); err != nil {
			t.Fatal(err)
		}
	}
	if l.Errors() == 0 {
		t.Error("nothing was counted")
	}
	if err := os.Remove(record.OldName(l.cfg.Path, 1)); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if err := l.Decided(decision(i)); err != nil {
			t.Fatal(err)
		}
	}
	if all := records(t, l.cfg.Path); len(all) != 7 {
		t.Errorf("%d records", len(all))
	}
	if files, _ := record.Files(l.cfg.Path); len(files) < 2 {
		t.Errorf("files: %q", files)
	}
}

// child writes to the log at path until it is killed or may not, and says after
// each record that it is written.
func child(path string) {
	if limit := os.Getenv(childEnv + "_FSIZE"); limit != "" {
		var n uint64
		if _, err := fmt.Sscan(limit, &n); err != nil {
			os.Exit(3)
		}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			os.Exit(3)
		}
	}
	c := Config{Path: path, Strict: os.Getenv(childEnv+"_LENIENT") == "", Log: slog.New(slog.DiscardHandler)}
	if os.Getenv(childEnv+"_FSIZE") == "" { // which would bound the store too
		var err error
		if _, c, err = noted(c); err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
	}
	l, err := Open(c)
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	for i := 0; ; i++ {
		if err := l.Decided(decision(i)); err != nil {
			fmt.Println("refused", l.Errors(), err)
			os.Exit(0)
		}
		if l.Errors() > 0 {
			fmt.Println("went on", l.Errors())
			os.Exit(0)
		}
		fmt.Println(i)
	}
}

// noted keeps how a log ends in a store beside it, as the daemon does.
func noted(c Config) (*store.Store, Config, error) {
	st, err := store.Open(store.Config{Path: c.Path + ".db"})
	if err != nil {
		return nil, c, err
	}
	end, err := st.AuditEnd(context.Background(), "log")
	c.Last = End{end.First, end.Seq, end.Hash, end.Boot}
	c.Note = func(e End) error {
		var note store.Entry
		note.AuditEnd(&store.AuditEnd{Log: "log", First: e.First, Seq: e.Seq, Hash: e.Hash, Boot: e.Boot})
		return st.Append(&note)
	}
	return st, c, err
}

func startChild(t *testing.T, path string, env ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), childEnv+"="+path), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, bufio.NewScanner(out)
}

// TestKilled: what a daemon said it had written is there after kill -9, and the
// next one goes on with the chain. Whenever it was killed, what is noted of the log is no
// reason to call it changed.
func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), record.DefaultName)
	total := 0
	for round := range 12 {
		cmd, lines := startChild(t, path)
		said := 0
		for said < 17*round && lines.Scan() {
			said++
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			said++
		}
		_ = cmd.Wait()
		total += said
		st, c, err := noted(Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if round > 0 && c.Last.Seq < uint64(total) {
			t.Errorf("round %d: record %d is noted, and %d were said to be written", round, c.Last.Seq, total)
		}
		l := open(t, c)
		l.checking.Wait()
		if what := l.Noticed(); what != "" {
			t.Errorf("round %d: %s", round, what)
		}
		if err := errors.Join(l.Close(), st.Close()); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, r := range records(t, path) {
			if r.Kind == record.KindDecision {
				n++
			}
		}
		if n < total {
			t.Fatalf("%d records, and %d were said to be written", n, total)
		}
		total = n
	}
}

// TestFileSizeLimit: a file that may not grow is what a full disk is, and comes
// with the kernel's own errors and partial writes.
func TestFileSizeLimit(t *testing.T) {
	for _, tt := range []struct{ env, want string }{{childEnv + "_LENIENT=", "refused 1"}, {childEnv + "_LENIENT=1", "went on 1"}} {
		path := filepath.Join(t.TempDir(), record.DefaultName)
		cmd, lines := startChild(t, path, childEnv+"_FSIZE=5000", tt.env)
		last := ""
		for lines.Scan() {
			last = lines.Text()
		}
		if !strings.HasPrefix(last, tt.want) {
			t.Fatalf("it ended with %q, want %q", last, tt.want)
		}
		_ = cmd.Wait() // its output ends before it lets go of the log
		l := open(t, Config{Path: path})
		if err := l.Decided(decision(1)); err != nil {
			t.Fatal(err)
		}
		all := records(t, path)
		if len(all) < 5 || all[len(all)-2].Kind != record.KindTorn && all[len(all)-2].Kind != record.KindDecision {
			t.Errorf("got %s", kinds(all))
		}
	}
}
