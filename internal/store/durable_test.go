package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toold/toold/client"
)

var testRuns atomic.Int64

const (
	childEnv = "TOOLD_STORE_TEST_CHILD"
	fillEnv  = "TOOLD_STORE_TEST_FILL"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		childWrites(path)
	}
	if path := os.Getenv(fillEnv); path != "" {
		childFills(path)
	}
	code := m.Run()
	if code == 0 {
		if err := left(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// left says which goroutines the tests have left. What is about to end, as those
// of a closed sql.DB are, may take its time.
func left() error {
	for deadline := time.Now().Add(time.Minute); ; {
		err := goleak.Find()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// childWrites writes calls from several goroutines and prints the id of each
// one that the store says is kept, until it is killed.
func childWrites(path string) {
	s, err := Open(Config{Path: path})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	var mu sync.Mutex // guards standard output
	for range 8 {
		go func() {
			for {
				c := testCall(s, "ses_1", "")
				now := testTime()
				c.Status, c.Time.Started, c.Time.Ended = client.CallCompleted, &now, &now
				c.Call.Output = strings.Repeat("x", 3000)
				end := finished(c)
				end.AddEvent(client.Event{Type: "x", Time: now, Call: c.ID})
				err := s.Append(inserted(c))
				if n := testRuns.Add(1); n%50 == 0 { // some by way of the database alone
					err = errors.Join(err, s.Write(func(tx *Tx) error { return errors.Join(tx.Put(started(c.ID, now)), tx.Put(end)) }))
				} else {
					err = errors.Join(err, s.Append(started(c.ID, now), end))
				}
				mu.Lock()
				fmt.Println(c.ID, err)
				mu.Unlock()
			}
		}()
	}
	select {}
}

// TestKilledWhileWriting: what was acknowledged is there, and whole, whenever
// the process is killed.
func TestKilledWhileWriting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toold.db")
	var acked []string
	for round := range 5 {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), childEnv+"="+path)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		n := 0
		for lines.Scan() {
			id, verdict, _ := strings.Cut(lines.Text(), " ")
			if verdict != "<nil>" {
				t.Errorf("child: %s", lines.Text())
			} else {
				acked = append(acked, id)
			}
			if n++; n == 200+50*round {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait()
	}
	s := openTest(t, path)
	events := make(map[string]bool)
	for after := ""; ; {
		page, err := s.Events(t.Context(), EventFilter{After: after, Limit: 500})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			if e.ID <= after {
				t.Fatalf("event %s after %s", e.ID, after)
			}
			events[e.Call], after = true, e.ID
		}
	}
	for _, id := range acked {
		c, err := s.Call(t.Context(), id)
		if err != nil || c.Status != client.CallCompleted || len(c.Call.Output) != 3000 || !events[id] {
			t.Fatalf("call %s was acknowledged: %+v, %v, event %v", id, c, err, events[id])
		}
	}
	var verdict string
	if err := s.read.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("integrity: %s, %v", verdict, err)
	}
	if id := s.NewID("call_"); id <= acked[len(acked)-1] {
		t.Errorf("new id %s sorts before %s", id, acked[len(acked)-1])
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	made := func(name string, statements ...string) string {
		path := filepath.Join(dir, name)
		s, err := Open(Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range statements {
			if _, err := s.w.conn.ExecContext(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return path
	}
	damaged := made("damaged")
	b, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(b); i++ {
		b[i] ^= 0x5a
	}
	if err := os.WriteFile(damaged, b, 0o600); err != nil {
		t.Fatal(err)
	}
	held := filepath.Join(dir, "held")
	openTest(t, held)
	if err := os.Symlink(held, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, path string
		want       error
		says       string
	}{
		{"no database", write("text", strings.Repeat("this is a text\n", 500)), ErrCorrupt, "move the file away"},
		{"damaged", damaged, ErrCorrupt, "move the file away"},
		{
			"newer", made("newer", "PRAGMA user_version = 99; UPDATE meta SET value = 12003004 WHERE key = 'release'"), ErrNewer,
			fmt.Sprintf("toold 12.3.4 wrote it, in format 99; this is toold %s, which knows formats up to %d: run that version or a later one, restore a backup", client.Release, Format),
		},
		{"newer, without a release", made("unnamed", "PRAGMA user_version = 99; DROP TABLE meta"), ErrNewer, "a later toold wrote it, in format 99"},
		{"another program's", made("other", "PRAGMA application_id = 7"), ErrCorrupt, "application id"},
		{"in use", held, ErrLocked, "stop it"},
		{"behind a link", filepath.Join(dir, "link"), nil, "symbolic links"},
		{"no directory", filepath.Join(dir, "no", "such"), os.ErrNotExist, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Open(Config{Path: tt.path})
			if err == nil {
				s.Close()
				t.Fatal("it was opened")
			}
			if tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), tt.path) {
				t.Errorf("got %v, want %v and %q", err, tt.want, tt.says)
			}
		})
	}
}

func TestFullDisk(t *testing.T) {
	s := newTest(t)
	c := testCall(s, "ses_1", "")
	insert(t, s, c)
	if _, err := s.w.conn.ExecContext(t.Context(), "PRAGMA max_page_count = 20"); err != nil {
		t.Fatal(err)
	}
	big := testCall(s, "ses_1", "")
	big.Input = []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
	if err := s.Append(inserted(big)); !errors.Is(err, ErrFull) {
		t.Fatalf("got %v, want ErrFull", err)
	}
	if _, err := s.Call(t.Context(), big.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("half of it is there: %v", err)
	}
	if _, err := s.Call(t.Context(), c.ID); err != nil {
		t.Error(err)
	}
	// It goes on when there is room again.
	if _, err := s.w.conn.ExecContext(t.Context(), "PRAGMA max_page_count = 100000"); err != nil {
		t.Fatal(err)
	}
	insert(t, s, big)
}

func TestGroupCommit(t *testing.T) {
	s := newTest(t)
	var mu sync.Mutex
	var heard []string
	s.OnEvents(func(events []client.Event) {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range events {
			heard = append(heard, e.ID)
		}
	})
	boom := errors.New("boom")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 100 {
				c := testCall(s, fmt.Sprintf("ses_%d", g), "")
				fails := i%10 == 3
				err := s.Write(func(tx *Tx) error {
					tx.AddEvent(client.Event{Type: "x", Time: time.Now(), Call: c.ID})
					if err := tx.Put(inserted(c)); err != nil || !fails {
						return err
					}
					return boom
				})
				if fails != errors.Is(err, boom) || !fails && err != nil {
					t.Errorf("write %d: %v", i, err)
				}
				// What one that failed has done is undone, and nothing else.
				if _, err := s.Call(context.Background(), c.ID); fails != errors.Is(err, ErrNotFound) || !fails && err != nil {
					t.Errorf("call %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	stored, err := s.Events(t.Context(), EventFilter{Limit: 10000})
	if err != nil || len(stored) != 720 || len(heard) != 720 {
		t.Fatalf("%d events are stored, %d were heard, %v", len(stored), len(heard), err)
	}
	for i, e := range stored {
		if heard[i] != e.ID {
			t.Fatalf("event %d: heard %s, stored %s", i, heard[i], e.ID)
		}
	}
}

func TestWritesAfterClose(t *testing.T) {
	s := newTest(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(func(*Tx) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("write: %v", err)
	}
	if err := s.Append(happened(client.Event{Type: "x"})); !errors.Is(err, ErrClosed) {
		t.Errorf("append: %v", err)
	}
}

func TestCheckpoints(t *testing.T) {
	s := newTest(t)
	for range 50 {
		c := testCall(s, "ses_1", "")
		c.Input = []byte(`"` + strings.Repeat("x", 100000) + `"`)
		insert(t, s, c)
	}
	if err := s.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.checkpoints.checkpoint()
	fi, err := os.Stat(s.path)
	if err != nil || fi.Size() < 5_000_000 {
		t.Errorf("after a checkpoint the database has %d bytes, %v", fi.Size(), err)
	}
	s.checkpoints.truncate.Store(true)
	insert(t, s, testCall(s, "ses_1", ""))
	deadline := time.Now().Add(20 * time.Second)
	for {
		if fi, err := os.Stat(s.path + "-wal"); err == nil && fi.Size() < 100000 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the log was not cut")
		}
		time.Sleep(time.Millisecond)
	}
	insert(t, s, testCall(s, "ses_1", ""))
}
