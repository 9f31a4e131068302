package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
)

// view is all that readers see.
type view struct {
	pages  [][]*Call
	calls  []*Call
	events []client.Event
}

func viewOf(t *testing.T, s *Store, ids []string) (v view) {
	t.Helper()
	for _, f := range []CallFilter{
		{Session: "ses_1", Limit: 1000},
		{Session: "ses_1", Limit: 3, Status: client.CallCompleted},
		{Session: "ses_2", Limit: 7, Tool: "bash"},
		{Session: "ses_1", Limit: 5, Status: client.CallPending, Tool: "read"},
		{Session: "ses_1", Limit: 1000, MaxBytes: 2000},
	} {
		for more := true; more; {
			var page []*Call
			var err error
			if page, more, err = s.Calls(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			if v.pages = append(v.pages, page); more {
				f.After = page[len(page)-1].ID
			}
		}
	}
	for _, id := range ids {
		c, err := s.Call(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		v.calls = append(v.calls, c)
	}
	for _, f := range []EventFilter{{Limit: 10000}, {Session: "ses_2", Type: "call.*", Limit: 10}, {Tenant: "t", Type: "call.one", Limit: 1000}} {
		events, err := s.Events(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		v.events = append(v.events, events...)
	}
	return v
}

// TestReadersOnAFullDisk: while what was appended cannot be moved into the
// database, readers see what they see when it has been.
func TestReadersOnAFullDisk(t *testing.T) {
	for seed := range uint64(4) {
		s := newTest(t)
		rnd := rand.New(rand.NewPCG(seed, 1))
		var ids []string
		open := map[string]*Call{}
		step := func() {
			e := &Entry{}
			for range 1 + rnd.IntN(3) {
				if rnd.IntN(2) == 0 || len(open) == 0 {
					c := testCall(s, fmt.Sprintf("ses_%d", 1+rnd.IntN(2)), "")
					c.Tool = []string{"bash", "read"}[rnd.IntN(2)]
					c.Input = fmt.Appendf(nil, "%q", strings.Repeat("x", rnd.IntN(2*Small)))
					e.InsertCall(c)
					ids, open[c.ID] = append(ids, c.ID), c
				} else {
					c := open[ids[rnd.IntN(len(ids))]]
					if c == nil {
						continue
					}
					now := testTime()
					if c.Time.Started == nil && rnd.IntN(2) == 0 {
						c.Time.Started = &now
						e.StartCall(c.ID, now)
						continue
					}
					c.Status, c.Time.Ended, c.Call.Output = client.CallCompleted, &now, "done"
					if c.DropInput(); c.InputNotKept != nil {
						e.DropInput(c)
					}
					e.FinishCall(c)
					e.AddEvent(client.Event{Type: []string{"call.one", "call.two", "other"}[rnd.IntN(3)], Time: now, Tenant: "t", Session: c.SessionID, Call: c.ID})
					delete(open, c.ID)
				}
			}
			if err := s.Append(e); err != nil {
				t.Fatal(err)
			}
		}
		for range rnd.IntN(20) {
			step()
		}
		if err := s.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.w.conn.ExecContext(t.Context(), "PRAGMA max_page_count = 1"); err != nil {
			t.Fatal(err)
		}
		for range 60 {
			step()
		}
		if err := s.flush(t.Context()); !errors.Is(err, ErrFull) {
			t.Fatalf("the disk is not full: %v", err)
		}
		full := viewOf(t, s, ids)
		if _, err := s.w.conn.ExecContext(t.Context(), "PRAGMA max_page_count = 100000"); err != nil {
			t.Fatal(err)
		}
		if err := s.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if moved := viewOf(t, s, ids); !reflect.DeepEqual(full, moved) {
			t.Fatalf("seed %d: on a full disk readers see\n%+v\nand afterwards\n%+v", seed, full, moved)
		}
	}
}

// large is a finished call with an input of n bytes and a result of as many.
func large(t *testing.T, s *Store, tenant, session string, n int) *Call {
	t.Helper()
	c := testCall(s, session, "")
	c.Tenant = tenant
	c.Input = fmt.Appendf(nil, "%q", strings.Repeat("i", n-2))
	insert(t, s, c)
	now := testTime()
	c.Status, c.Time.Started, c.Time.Ended = client.CallCompleted, &now, &now
	c.Call.Output, c.Output = strings.Repeat("ü", n/2), Output{Total: int64(n), Inline: int64(n)}
	c.Metadata = map[string]any{"exit_code": 3.0, "diff": strings.Repeat("d", n/2)}
	c.Attachments = []client.Attachment{{MIME: "image/png", URL: strings.Repeat("a", n/2)}}
	if err := s.Append(finished(c)); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestShortenRecords(t *testing.T) {
	s := newTest(t)
	over := testSession(s, "t", "")
	over.State = client.SessionEnded
	if err := put(t, s, over); err != nil {
		t.Fatal(err)
	}
	var calls []*Call
	for i := range 6 {
		session := "ses_live"
		if i == 4 {
			session = over.ID
		}
		calls = append(calls, large(t, s, "t", session, 100_000))
	}
	small, other := large(t, s, "t", "ses_live", 1000), large(t, s, "u", "ses_live", 100_000)
	openCall := testCall(s, "ses_live", "k")
	openCall.Input = fmt.Appendf(nil, "%q", strings.Repeat("o", 50_000))
	insert(t, s, openCall)
	size := func(tenant string) int64 {
		all, err := s.RecordBytes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all[tenant]
	}
	shortened := func() (list []int) {
		for i, c := range calls {
			got, err := s.Call(t.Context(), c.ID)
			if err != nil {
				t.Fatal(err)
			}
			if got.InputNotKept == nil {
				continue
			}
			sum := sha256.Sum256(c.Input)
			if got.Input != nil || got.InputNotKept.SHA256 != hex.EncodeToString(sum[:]) || got.InputNotKept.Bytes != 100_000 {
				t.Errorf("call %d: %+v", i, got.InputNotKept)
			}
			if !strings.HasPrefix(c.Call.Output, got.Call.Output) || len(got.Call.Output) < Small-4 || len(got.Call.Output) > Small ||
				got.Metadata["exit_code"] != 3.0 || got.Metadata["not_kept_bytes"] != float64(200_000-len(got.Call.Output)+2) || got.Attachments != nil || got.Output.Inline != 0 || got.Output.Total != 100_000 {
				t.Errorf("call %d: %d bytes of output, %v", i, len(got.Call.Output), got.Metadata)
			}
			list = append(list, i)
		}
		return list
	}
	// Of sessions that are over alone, about as much as was said.
	said, err := s.Shortenable(t.Context())
	if err != nil || len(said) != 1 || said["t"] < 200_000 || said["t"] > 310_000 {
		t.Fatalf("shortenable: %v, %v", said, err)
	}
	before := size("t")
	freed, err := s.ShortenRecords(t.Context(), "t", true, 1<<40)
	if got := shortened(); err != nil || freed != before-size("t") || freed < 200_000 || !slices.Equal(got, []int{4}) {
		t.Fatalf("freed %d of %d, %v; shortened %v", freed, before, err, got)
	}
	// The oldest first, and no more than is wanted.
	before = size("t")
	freed, err = s.ShortenRecords(t.Context(), "t", false, 300_000)
	if got := shortened(); err != nil || freed != before-size("t") || !slices.Equal(got, []int{0, 1, 4}) {
		t.Fatalf("freed %d of %d, %v; shortened %v", freed, before, err, got)
	}
	// All that can be, and no call that has not ended, is small or another's.
	if _, err = s.ShortenRecords(t.Context(), "t", false, 1<<40); err != nil || len(shortened()) != 6 {
		t.Fatalf("%v; shortened %v", err, shortened())
	}
	for _, c := range []*Call{small, other, openCall} {
		if got, err := s.Call(t.Context(), c.ID); err != nil || !bytes.Equal(got.Input, c.Input) || len(got.Call.Output) != len(c.Call.Output) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if freed, err = s.ShortenRecords(t.Context(), "t", false, 1<<40); freed != 0 || err != nil {
		t.Errorf("again: %d, %v", freed, err)
	}
	// Removal takes what has ended, and the key of what has not stays taken.
	before = size("t")
	gone, err := s.RemoveRecords("t")
	for _, r := range gone {
		before -= r.Bytes
	}
	if err != nil || len(gone) != 7 || before != size("t") || gone[0].Output.Call != calls[0].ID || gone[0].Tenant != "t" {
		t.Errorf("%d removed, %v, %d bytes are left of %d", len(gone), err, size("t"), before)
	}
	if c, err := s.CallByKey(t.Context(), "ses_live", "k"); err != nil || c.ID != openCall.ID {
		t.Error(err)
	}
}

// TestDropInput: what stays of an input survives a kill, whether or not its call
// is in the database already.
func TestDropInput(t *testing.T) {
	path := t.TempDir() + "/toold.db"
	s := openTest(t, path)
	var ids []string
	for _, early := range []bool{true, false} {
		c := testCall(s, "ses_1", "")
		c.Input = fmt.Appendf(nil, "%q", strings.Repeat("x", 100_000))
		insert(t, s, c)
		if early {
			if err := s.flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		c.DropInput()
		e := finished(c)
		if n := e.DropInput(c); n > 100 {
			t.Errorf("it takes %d bytes", n)
		}
		if err := s.Append(e); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, c.ID)
	}
	killed := t.TempDir() + "/toold.db"
	for _, suffix := range []string{"", "-wal", ".journal"} {
		b, err := os.ReadFile(path + suffix)
		if err == nil {
			err = os.WriteFile(killed+suffix, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	next := openTest(t, killed)
	for _, id := range ids {
		c, err := next.Call(t.Context(), id)
		if err != nil || c.Input != nil || c.InputNotKept == nil || c.InputNotKept.Bytes != 100_002 {
			t.Errorf("%+v, %v", c, err)
		}
	}
	all, err := next.RecordBytes(t.Context())
	if err != nil || all["t"] > 2000+2*besideBytes {
		t.Errorf("%v, %v", all, err)
	}
}

// TestRoomIsUsedAgain: the database does not shrink, and does not grow either
// while what is stored takes the place of what was shortened.
func TestRoomIsUsedAgain(t *testing.T) {
	s := newTest(t)
	// Each call is moved to the database alone and whole. A batch that ends between the
	// two records of a call takes room for its input twice, and where batches end is
	// a matter of time.
	s.w.delay = time.Hour
	fill := func() (size int64) {
		for range 8 {
			large(t, s, "t", "ses_1", 100_000)
			if err := s.flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		s.checkpoints.checkpoint()
		fi, err := os.Stat(s.path)
		if err != nil {
			t.Fatal(err)
		}
		return fi.Size()
	}
	first := fill()
	for range 2 {
		freed, err := s.ShortenRecords(t.Context(), "t", false, 1<<40)
		room, ferr := s.FreeBytes(t.Context())
		if err != nil || ferr != nil || freed < 1_600_000 || room < freed {
			t.Fatalf("freed %d, of which %d can be used again: %v, %v", freed, room, err, ferr)
		}
		if size := fill(); size > first+first/20 {
			t.Errorf("%d bytes after %d", size, first)
		}
	}
}

// TestRecordsAreMeasuredByAnIndex: what the records of all tenants take, and which
// are worth shortening, is known without reading them.
func TestRecordsAreMeasuredByAnIndex(t *testing.T) {
	s := newTest(t)
	for query, args := range map[string][]any{
		"SELECT tenant, sum(" + recordBytes + ") FROM calls GROUP BY tenant":                    nil,
		"SELECT id FROM calls WHERE tenant = ? AND id > ? AND " + ownBytes + " > ? ORDER BY id": {"t", "", 1},
	} {
		var id, parent, unused int
		var plan string
		if err := s.read.QueryRowContext(context.Background(), "EXPLAIN QUERY PLAN "+query, args...).Scan(&id, &parent, &unused, &plan); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(plan, "COVERING INDEX calls_tenant") {
			t.Errorf("%s: %s", query, plan)
		}
	}
}

// TestSweepTellsRecords: what a sweep removes is known by its tenant and size.
func TestSweepTellsRecords(t *testing.T) {
	s := newTest(t)
	large(t, s, "t", "ses_1", 1000)
	large(t, s, "u", "ses_1", 2000)
	want, err := s.RecordBytes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond) // the precision of times
	got := map[string]int64{}
	if _, err := s.Sweep(t.Context(), time.Now(), func(gone []Removed) {
		for _, r := range gone {
			got[r.Tenant] += r.Bytes
		}
	}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

// TestReady: a store says that it cannot store, and that it can again, also where
// nobody else tries.
func TestReady(t *testing.T) {
	s := newTest(t)
	if err := s.Ready(); err != nil {
		t.Fatal(err)
	}
	pages := func(n int) {
		if _, err := s.w.conn.ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", n)); err != nil {
			t.Fatal(err)
		}
	}
	for range 30 {
		insert(t, s, testCall(s, "ses_1", ""))
	}
	if err := s.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	pages(1)
	c := testCall(s, "ses_1", "")
	c.Input = fmt.Appendf(nil, "%q", strings.Repeat("x", 100_000))
	insert(t, s, c)
	if err := s.flush(t.Context()); !errors.Is(err, ErrFull) || !errors.Is(s.Ready(), ErrFull) {
		t.Errorf("the database: %v, and ready says %v", err, s.Ready())
	}
	pages(100_000)
	if err := s.flush(t.Context()); err != nil || s.Ready() != nil {
		t.Errorf("afterwards: %v, and ready says %v", err, s.Ready())
	}
	s.w.journal.mu.Lock()
	s.w.journal.failed = true // as a write on a full disk has left it
	s.w.journal.mu.Unlock()
	if err := s.Ready(); err != nil || s.w.journal.failed {
		t.Errorf("the journal: %v", err)
	}
	if n, err := s.CountCalls(t.Context(), "ses_1"); err != nil || n != 31 {
		t.Errorf("%d calls, %v", n, err)
	}
}

// TestWhatIsBesideRecords: approvals are counted with their calls, and go with them, as
// do the events. What belongs to others stays.
func TestWhatIsBesideRecords(t *testing.T) {
	s := newTest(t)
	size := func() int64 {
		all, err := s.RecordBytes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all["t"]
	}
	var approvals []*Approval
	for i := range 3 {
		c := testCall(s, "ses_1", "")
		if i == 1 {
			c.Tenant = "u"
		}
		insert(t, s, c)
		a, before := testApproval(s, c), size()
		a.Metadata["diff"] = strings.Repeat("d", 10_000)
		addApproval(t, s, a)
		if grown := size() - before; i != 1 && (grown != a.Takes() || grown < 20_000) {
			t.Errorf("an approval of %d bytes counts as %d", a.Takes(), grown)
		}
		approvals = append(approvals, a)
		e := &Entry{}
		e.AddEvent(client.Event{Type: client.EventCallPending, Time: testTime(), Tenant: c.Tenant, Session: c.SessionID, Call: c.ID})
		if i == 0 {
			e.AddEvent(client.Event{Type: client.EventSessionUpdated, Time: testTime(), Tenant: c.Tenant, Session: c.SessionID})
		}
		if i < 2 {
			c.Status, c.Time.Ended = client.CallCompleted, new(testTime())
			e.FinishCall(c)
		}
		if err := s.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	before := size()
	gone, err := s.RemoveRecords("t")
	if err != nil || len(gone) != 1 || gone[0].Output.Call != approvals[0].CallID || before-gone[0].Bytes != size() {
		t.Errorf("%+v, %v; %d bytes are left of %d", gone, err, size(), before)
	}
	for i, a := range approvals {
		if _, err := s.Approval(t.Context(), a.ID); errors.Is(err, ErrNotFound) != (i == 0) {
			t.Errorf("approval %d: %v", i, err)
		}
	}
	if err := s.RemoveOrphans(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	all, err := s.Events(t.Context(), EventFilter{Limit: 10})
	var left []string
	for _, e := range all {
		left = append(left, e.Tenant+" "+e.Type)
	}
	if want := []string{"t session.updated", "u call.pending", "t call.pending"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("%v, %v; want %v", left, err, want)
	}
}
