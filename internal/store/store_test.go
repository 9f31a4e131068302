package store

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/toold/toold/client"
)

func openTest(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func newTest(t testing.TB) *Store { return openTest(t, filepath.Join(t.TempDir(), "toold.db")) }

// testTime has the store's precision.
func testTime() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

func testCall(s *Store, session, key string) *Call {
	return &Call{
		Call: client.Call{
			ID: s.NewID("call_"), Key: key, SessionID: session, Tool: "bash", MessageID: "m1",
			Input: json.RawMessage(`{"command":"true"}`), Status: client.CallPending,
			Extra: json.RawMessage(`{"a":1}`), Time: client.CallTime{Queued: testTime()},
		},
		Tenant: "t", Hash: []byte("hash"),
	}
}

func insert(t testing.TB, s *Store, c *Call) {
	t.Helper()
	if err := s.Append(inserted(c)); err != nil {
		t.Fatal(err)
	}
}

// inserted, started and finished are entries of one record.
func inserted(c *Call) *Entry {
	e := &Entry{}
	e.InsertCall(c)
	return e
}

func started(id string, at time.Time) *Entry {
	e := &Entry{}
	e.StartCall(id, at)
	return e
}

func finished(c *Call) *Entry {
	e := &Entry{}
	e.FinishCall(c)
	return e
}

// happened is an entry of events.
func happened(events ...client.Event) *Entry {
	e := &Entry{}
	for _, v := range events {
		e.AddEvent(v)
	}
	return e
}

func TestCallLife(t *testing.T) {
	s := newTest(t)
	c := testCall(s, "ses_1", "k")
	insert(t, s, c)
	got, err := s.Call(t.Context(), c.ID)
	if err != nil || !reflect.DeepEqual(got, c) {
		t.Fatalf("pending: got %+v, %v\nwant %+v", got, err, c)
	}
	start, end := testTime(), testTime()
	c.Status, c.Time.Started, c.Time.Ended = client.CallCompleted, &start, &end
	c.Title, c.Call.Output, c.IsError = "t", "out", true
	c.Metadata = map[string]any{"exit_code": 1.0}
	c.Error = &client.Error{Code: client.CodeAborted, Message: "m"}
	c.Usage.CPUMillis = 3
	c.Permission = &client.CallPermission{Verdict: "allow", Rule: "default"}
	c.Output = Output{File: true, Total: 9, Inline: 3}
	if err := s.Append(started(c.ID, start), nil, finished(c)); err != nil {
		t.Fatal(err)
	}
	if got, err = s.Call(t.Context(), c.ID); err != nil || !reflect.DeepEqual(got, c) {
		t.Fatalf("finished: got %+v, %v\nwant %+v", got, err, c)
	}
	if got, err = s.CallByKey(t.Context(), "ses_1", "k"); err != nil || got.ID != c.ID {
		t.Fatalf("by key: %v, %v", got, err)
	}
	// A call that has ended stays as it is.
	again := *c
	again.Call.Output = "other"
	if err := s.Append(finished(&again), started(c.ID, end.Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	if got, _ = s.Call(t.Context(), c.ID); !reflect.DeepEqual(got, c) {
		t.Errorf("a finished call was changed to %+v", got)
	}
}

func TestFilesAreOursAlone(t *testing.T) {
	s := newTest(t)
	insert(t, s, testCall(s, "s", ""))
	files, err := filepath.Glob(s.path + "*")
	if err != nil || len(files) < 3 {
		t.Fatalf("files %v, %v", files, err)
	}
	for _, f := range files {
		if fi, err := os.Stat(f); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v, want 0600", f, fi.Mode(), err)
		}
	}
}

func BenchmarkInsertAlone(b *testing.B) {
	s := newTest(b)
	for b.Loop() {
		insert(b, s, testCall(s, "ses_1", ""))
	}
}

func BenchmarkInsertParallel(b *testing.B) {
	s := newTest(b)
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			insert(b, s, testCall(s, "ses_1", ""))
		}
	})
}
