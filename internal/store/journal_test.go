package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
)

// still opens a store that leaves in the journal what is appended, until somebody
// reads or writes.
func still(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(Config{Path: path, delay: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// abandon ends a store as the death of its process would: nothing more gets from
// the journal into the database.
func abandon(t testing.TB, s *Store) {
	t.Helper()
	j := s.w.journal
	j.mu.Lock()
	j.waiting, j.applied, j.size = nil, j.seq, int64(journalHeader)
	j.mu.Unlock()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// stored counts the rows of a table, without a flush.
func stored(t testing.TB, s *Store, table string) (n int) {
	t.Helper()
	if err := s.read.QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func journalSize(t testing.TB, s *Store) int64 {
	t.Helper()
	fi, err := os.Stat(s.path + ".journal")
	if err != nil {
		t.Fatal(err)
	}
	return fi.Size()
}

func done(s *Store, session string) *Call {
	c, now := testCall(s, session, ""), testTime()
	c.Status, c.Time.Started, c.Time.Ended = client.CallCompleted, &now, &now
	c.Call.Output, c.Output = "out", Output{File: true, Total: 7}
	return c
}

// pendingForm is a call as it was before it began.
func pendingForm(c *Call) *Call {
	v := *c
	v.Status, v.Time.Started, v.Time.Ended, v.Call.Output, v.Output = client.CallPending, nil, nil, "", Output{}
	return &v
}

func TestJournalIsReplayed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toold.db")
	s := still(t, path)
	var calls []*Call
	var heard []client.Event
	s.OnEvents(func(e []client.Event) { heard = append(heard, e...) })
	for i := range 20 {
		c := done(s, "ses_1")
		err := s.Append(inserted(pendingForm(c)), happened(client.Event{Type: "a", Time: testTime(), Call: c.ID}))
		if err == nil && i%3 > 0 {
			err = s.Append(started(c.ID, *c.Time.Started), happened(client.Event{Type: "b", Time: testTime(), Data: []byte(`{}`)}))
		}
		if err == nil && i%3 > 1 {
			err = s.Append(finished(c))
		}
		if err != nil {
			t.Fatal(err)
		}
		switch i % 3 {
		case 0:
			c = pendingForm(c)
		case 1:
			at := c.Time.Started
			c = pendingForm(c)
			c.Status, c.Time.Started = client.CallRunning, at
		}
		calls = append(calls, c)
	}
	if n := stored(t, s, "calls") + stored(t, s, "events"); n != 0 {
		t.Fatalf("%d rows are in the database before anybody looks", n)
	}
	left, err := os.ReadFile(path + ".journal")
	if err != nil {
		t.Fatal(err)
	}
	abandon(t, s)

	check := func(s *Store) {
		t.Helper()
		if n := journalSize(t, s); n != int64(journalHeader) {
			t.Errorf("the journal has %d bytes", n)
		}
		for i, c := range calls {
			if got, err := s.Call(t.Context(), c.ID); err != nil || !reflect.DeepEqual(got, c) {
				t.Errorf("call %d: got %+v, %v\nwant %+v", i, got, err, c)
			}
		}
		events, err := s.Events(t.Context(), EventFilter{Limit: 1000})
		if err != nil || !reflect.DeepEqual(ids(events), ids(heard)) {
			t.Errorf("events %v, %v, want %v", ids(events), err, ids(heard))
		}
		if id := s.NewID("evt_"); id <= heard[len(heard)-1].ID {
			t.Errorf("new id %s after %s", id, heard[len(heard)-1].ID)
		}
	}
	s = openTest(t, path)
	check(s)
	if err := s.Write(func(tx *Tx) error { return tx.DropOutput(calls[2].ID) }); err != nil {
		t.Fatal(err)
	}
	calls[2].Output.File = false
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// Killed after the commit and before the journal was emptied: all that is in
	// it is in the database too.
	if err := os.WriteFile(path+".journal", left, 0o600); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, path)
	check(s)
	insert(t, s, testCall(s, "ses_1", ""))
	if n, err := s.CountCalls(t.Context(), "ses_1"); err != nil || n != 21 {
		t.Errorf("%d calls, %v", n, err)
	}
}

func ids(events []client.Event) (all []string) {
	for _, e := range events {
		all = append(all, e.ID)
	}
	return all
}

// testJournal is a journal of some frames and where each ends.
func testJournal(t testing.TB, payloads ...[]byte) (file []byte, ends []int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "j")
	j, _, err := openJournal(path, 7)
	if err != nil {
		t.Fatal(err)
	}
	defer j.file.Close()
	ends = []int{journalHeader}
	for _, p := range payloads {
		if _, err := j.appendLocked([]*Entry{{buf: p}}, len(p), nil); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, int(j.size))
	}
	file, err = os.ReadFile(path)
	if err != nil || len(file) != ends[len(ends)-1] {
		t.Fatal(len(file), ends, err)
	}
	return file, ends
}

func testPayloads() (all [][]byte) {
	for i := range 3 {
		now := time.UnixMilli(1e12)
		c := &Call{Call: client.Call{ID: fmt.Sprintf("call_%d", i), SessionID: "ses_1", Tool: "bash", Input: []byte(`{}`), Time: client.CallTime{Queued: now}}, Hash: []byte("h")}
		e := inserted(c)
		e.StartCall(c.ID, now)
		e.AddEvent(client.Event{Type: "call.pending", Time: now, Call: c.ID})
		e.FinishCall(c)
		all = append(all, e.buf)
	}
	return all
}

// TestTornJournal: wherever a kill cuts the file, what was whole is there, the
// rest is gone, and it goes on behind what was whole.
func TestTornJournal(t *testing.T) {
	file, ends := testJournal(t, testPayloads()...)
	path := filepath.Join(t.TempDir(), "j")
	for _, tail := range []string{"", strings.Repeat("\x00", 100)} {
		for n := range len(file) {
			if tail != "" && !slices.Contains(ends, n) {
				continue // what a loss of power leaves begins where a write did
			}
			if err := os.WriteFile(path, append(slices.Clone(file[:n]), tail...), 0o600); err != nil {
				t.Fatal(err)
			}
			j, frames, err := openJournal(path, 7)
			if err != nil {
				t.Fatalf("cut at %d, then %q: %v", n, tail, err)
			}
			whole := journalHeader
			for _, end := range ends {
				if end <= n {
					whole = end
				}
			}
			if len(frames) != whole-journalHeader || !bytes.Equal(frames, file[journalHeader:whole]) {
				t.Fatalf("cut at %d: %d bytes of frames, want %d", n, len(frames), whole-journalHeader)
			}
			if torn := max(0, n+len(tail)-whole); j.torn != torn {
				t.Fatalf("cut at %d: %d bytes were dropped, want %d", n, j.torn, torn)
			}
			j.seq = lastSeq(frames)
			if _, err := j.appendLocked([]*Entry{{buf: testPayloads()[0]}}, len(testPayloads()[0]), nil); err != nil {
				t.Fatal(err)
			}
			if err := j.file.Close(); err != nil {
				t.Fatal(err)
			}
			j, again, err := openJournal(path, 7)
			if err != nil || len(again) <= len(frames) || !bytes.Equal(again[:len(frames)], frames) {
				t.Fatalf("cut at %d, after one more: %d bytes, %v", n, len(again), err)
			}
			_ = j.file.Close()
		}
	}
}

// TestDamagedJournal: no byte of a frame that others follow can be changed
// without an error that says where.
func TestDamagedJournal(t *testing.T) {
	file, ends := testJournal(t, testPayloads()...)
	path := filepath.Join(t.TempDir(), "j")
	for n := range len(file) {
		bad := slices.Clone(file)
		bad[n] ^= 0x40
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		j, frames, err := openJournal(path, 7)
		if err == nil {
			_ = j.file.Close()
			if n < ends[2] || !bytes.Equal(frames, file[journalHeader:ends[2]]) {
				t.Fatalf("byte %d was changed: %d bytes of frames", n, len(frames))
			}
			continue
		}
		at := 0
		for _, end := range ends {
			if end <= n {
				at = end
			}
		}
		if at == ends[0] && n < ends[0] {
			at = 0
		}
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), path) || n >= ends[0] && !strings.Contains(err.Error(), fmt.Sprintf("byte %d:", at)) {
			t.Fatalf("byte %d was changed: %v", n, err)
		}
	}
}

func TestJournalThatIsNotOurs(t *testing.T) {
	file, ends := testJournal(t, testPayloads()...)
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	frameOf := func(seq uint64, payload []byte) []byte {
		h := binary.LittleEndian.AppendUint32(nil, uint32(len(payload)))
		h = binary.LittleEndian.AppendUint64(h, seq)
		h = binary.LittleEndian.AppendUint32(h, crc32.Checksum(h, castagnoli))
		h = binary.LittleEndian.AppendUint32(h, crc32.Checksum(payload, castagnoli))
		return append(h, payload...)
	}
	with := func(frames ...[]byte) []byte {
		return slices.Concat(append([][]byte{file[:journalHeader]}, frames...)...)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(write("target", file), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	large := write("large", file)
	if err := os.Truncate(large, maxJournal+1); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, path, says string
		corrupt          bool
	}{
		{"another file", write("text", []byte(strings.Repeat("text\n", 100))), "does not begin like a journal", true},
		{"a link", filepath.Join(dir, "link"), "symbolic links", false},
		{"a FIFO", fifo, "not a regular file", true},
		{"too long", large, "never has more than", true},
		{"a hole", write("hole", with(file[ends[0]:ends[1]], file[ends[2]:ends[3]])), fmt.Sprintf("byte %d: record 3 follows record 1", ends[1]), true},
		{"a later version", write("later", with(frameOf(1, []byte{99}))), fmt.Sprintf("byte %d: not a record of this version", ends[0]), true},
		{"no number", write("zero", with(frameOf(0, []byte{99}))), "record 0", true},
		{"a huge record", write("huge", with(frameOf(1, make([]byte, maxFrame+1)))), "allowed are", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := openJournal(tt.path, 7)
			if err == nil || errors.Is(err, ErrCorrupt) != tt.corrupt || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), tt.path) {
				t.Errorf("got %v, want %q", err, tt.says)
			}
		})
	}
	mine := write("mine", file)
	if _, _, err := openJournal(mine, 8); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "another database") {
		t.Errorf("of another database: %v", err)
	}
	j, _, err := openJournal(mine, 7)
	if err != nil {
		t.Fatal(err)
	}
	defer j.file.Close()
	if fi, err := os.Stat(mine); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
}

// TestOpenRefusesDamagedJournal: the daemon says which file it is and what to do.
func TestOpenRefusesDamagedJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toold.db")
	s := still(t, path)
	insert(t, s, testCall(s, "ses_1", ""))
	insert(t, s, testCall(s, "ses_1", ""))
	b, err := os.ReadFile(path + ".journal")
	if err != nil {
		t.Fatal(err)
	}
	abandon(t, s)
	b[journalHeader+frameHeader+5] ^= 1
	if err := os.WriteFile(path+".journal", b, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err = Open(Config{Path: path})
	if err == nil {
		s.Close()
		t.Fatal("it was opened")
	}
	for _, want := range []string{path + ".journal", fmt.Sprintf("byte %d", journalHeader), "checksum of record 1", "move the journal away"} {
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if err := os.Rename(path+".journal", path+".damaged"); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, path)
	insert(t, s, testCall(s, "ses_1", ""))
}

// TestJournalNewerThanDatabase is what a loss of power leaves, or the copy of an
// old database: what is there is taken, and somebody is told.
func TestJournalNewerThanDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toold.db")
	s := still(t, path)
	insert(t, s, testCall(s, "ses_1", ""))
	if err := s.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := testCall(s, "ses_1", "")
	insert(t, s, c)
	if _, err := s.w.conn.ExecContext(t.Context(), "UPDATE meta SET value = 0 WHERE key = ?", metaApplied); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path + ".journal")
	if err != nil {
		t.Fatal(err)
	}
	f, err := parseFrame(b[journalHeader:])
	if err != nil {
		t.Fatal(err)
	}
	b = append(b[:journalHeader], b[journalHeader+f.size:]...)
	abandon(t, s)
	if err := os.WriteFile(path+".journal", b, 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s, err = Open(Config{Path: path, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Call(t.Context(), c.ID); err != nil || !strings.Contains(log.String(), "journal_begins=2") {
		t.Errorf("got %v, log %s", err, &log)
	}
}

// TestJournalOrder: events of both ways to write have one order, in which they
// are heard, and nobody who reads sees one without all that are older.
func TestJournalOrder(t *testing.T) {
	s := newTest(t)
	var mu sync.Mutex
	var heard []string
	s.OnEvents(func(events []client.Event) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, ids(events)...)
	})
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for {
				mu.Lock()
				want := slices.Clone(heard)
				mu.Unlock()
				got, err := s.Events(t.Context(), EventFilter{Limit: 1 << 20})
				if err != nil || len(got) < len(want) || !reflect.DeepEqual(ids(got[:len(want)]), want) {
					t.Errorf("%d events were heard, %d are stored, %v", len(want), len(got), err)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for g := range 4 {
		writers.Go(func() {
			for i := range 200 {
				c := testCall(s, "ses_1", "")
				e := client.Event{Type: "x", Time: testTime(), Call: c.ID}
				err := s.Append(inserted(c), happened(e, e))
				if err == nil && i%10 == g {
					err = s.Write(func(tx *Tx) error {
						tx.AddEvent(e)
						return tx.Put(started(c.ID, testTime()))
					})
				}
				if err != nil {
					t.Error(err)
				}
				if i%50 == g {
					if got, err := s.Call(t.Context(), c.ID); err != nil || i%10 == g && got.Status != client.CallRunning {
						t.Errorf("call %d: %+v, %v", i, got, err)
					}
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	if !slices.IsSorted(heard) || len(heard) != 4*(2*200+20) {
		t.Errorf("%d events were heard", len(heard))
	}
}

// TestBatchesAreLikeSteps: a call whose whole life is in one batch gets the row
// that it would have got step by step.
func TestBatchesAreLikeSteps(t *testing.T) {
	one, steps := newTest(t), newTest(t)
	c := done(one, "ses_1")
	later := *c
	later.Call.Output, later.Status = "other", client.CallError
	for name, entries := range map[string][]*Entry{
		"all":            {inserted(pendingForm(c)), started(c.ID, *c.Time.Started), finished(c)},
		"not started":    {inserted(pendingForm(c)), finished(c)},
		"ended twice":    {inserted(pendingForm(c)), finished(c), finished(&later)},
		"started late":   {inserted(pendingForm(c)), finished(c), started(c.ID, testTime().Add(time.Hour))},
		"started twice":  {inserted(pendingForm(c)), started(c.ID, *c.Time.Started), started(c.ID, testTime().Add(time.Hour))},
		"pending":        {inserted(pendingForm(c))},
		"nobody's":       {started("call_x", testTime()), finished(&later), inserted(pendingForm(c))},
		"inserted twice": {inserted(pendingForm(c)), started(c.ID, *c.Time.Started), inserted(pendingForm(c))},
	} {
		t.Run(name, func(t *testing.T) {
			for _, s := range []*Store{one, steps} {
				if _, err := s.w.conn.ExecContext(t.Context(), "DELETE FROM calls"); err != nil {
					t.Fatal(err)
				}
			}
			if err := one.Append(entries...); err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if err := steps.Append(e); err != nil {
					t.Fatal(err)
				}
				if err := steps.flush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			got, err := one.Call(t.Context(), c.ID)
			want, werr := steps.Call(t.Context(), c.ID)
			if err != nil || werr != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("in one batch %+v, %v\nstep by step %+v, %v", got, err, want, werr)
			}
		})
	}
}

// TestRecordThatDoesNotFit: what the database cannot take holds up nothing else.
func TestRecordThatDoesNotFit(t *testing.T) {
	s := still(t, filepath.Join(t.TempDir(), "toold.db"))
	defer s.Close()
	var log bytes.Buffer
	s.w.log = slog.New(slog.NewTextHandler(&log, nil))
	first, second, third := testCall(s, "ses_1", "k"), testCall(s, "ses_1", "k"), testCall(s, "ses_1", "")
	insert(t, s, first)
	insert(t, s, second)
	insert(t, s, third)
	if _, err := s.Call(t.Context(), third.ID); err != nil {
		t.Error(err)
	}
	if _, err := s.Call(t.Context(), second.ID); !errors.Is(err, ErrNotFound) || !strings.Contains(log.String(), "does not fit") {
		t.Errorf("got %v, log %s", err, &log)
	}
}

// TestJournalIsCut: the file does not grow for ever, and nothing is lost on the way.
func TestJournalIsCut(t *testing.T) {
	s := newTest(t)
	most := int64(0)
	n := 2*cutJournal/50000 + 1
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range n / 4 {
				c := testCall(s, "ses_1", "")
				c.Input = []byte(`"` + strings.Repeat("x", 50000) + `"`)
				if err := s.Append(inserted(c)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	most = max(most, journalSize(t, s))
	if got, err := s.CountCalls(t.Context(), "ses_1"); err != nil || got != int64(n/4*4) {
		t.Errorf("%d calls, %v, want %d", got, err, n/4*4)
	}
	if most > maxJournal {
		t.Errorf("the journal has %d bytes", most)
	}
	// One more write makes the writer look at the size.
	if err := s.Write(func(*Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if size := journalSize(t, s); size >= cutJournal {
		t.Errorf("the journal still has %d bytes", size)
	}
}

func BenchmarkAppendCall(b *testing.B) {
	s := newTest(b)
	s.OnEvents(func([]client.Event) {})
	b.ReportAllocs()
	for b.Loop() {
		c := done(s, "ses_1")
		e := client.Event{Type: "call.pending", Time: testTime(), Tenant: "t", Session: "ses_1", Call: c.ID, Data: []byte(`{"tool":"bash"}`)}
		err := s.Append(inserted(pendingForm(c)), happened(e), started(c.ID, *c.Time.Started), happened(e))
		if err = errors.Join(err, s.Append(finished(c), happened(e))); err != nil {
			b.Fatal(err)
		}
	}
}
