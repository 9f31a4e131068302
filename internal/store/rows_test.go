package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
)

func testSession(s *Store, tenant, name string) *Session {
	return &Session{
		Session: client.Session{
			ID: s.NewID("ses_"), Tenant: tenant, Name: name, State: client.SessionReady, Created: testTime(),
			Labels: map[string]string{"a": "b"}, Limits: client.Limits{Memory: 5}, TTL: client.Duration(time.Minute),
		},
		Request: client.SessionCreate{Env: map[string]string{"A": ""}}, OwnerUID: 7, Incarnation: "i", Nonce: []byte("nonce"),
		UIDBase: 9, Record: json.RawMessage(`{"x":1}`), TokenHash: []byte("hash"),
	}
}

func put(t testing.TB, s *Store, v *Session) error {
	t.Helper()
	return s.Write(func(tx *Tx) error { return tx.PutSession(v) })
}

func TestSessions(t *testing.T) {
	s := newTest(t)
	a, b, c := testSession(s, "t", "n"), testSession(s, "t", ""), testSession(s, "u", "n")
	for _, v := range []*Session{a, b, c} {
		if err := put(t, s, v); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.Session(t.Context(), a.ID); err != nil || !reflect.DeepEqual(got, a) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, a)
	}
	if _, err := s.Session(t.Context(), "x"); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown: %v", err)
	}
	twin := testSession(s, "t", "n")
	if err := put(t, s, twin); !errors.Is(err, ErrExists) {
		t.Errorf("name that is taken: %v", err)
	}
	now := testTime()
	a.State, a.Ended, a.Usage, a.Token = client.SessionEnded, &now, client.Usage{PIDs: 3}, "secret"
	if err := put(t, s, a); err != nil {
		t.Fatal(err)
	}
	if err := put(t, s, twin); err != nil {
		t.Errorf("name of a session that is over: %v", err)
	}
	if got, err := s.Session(t.Context(), a.ID); err != nil || got.Token != "" || got.Usage.PIDs != 0 || got.Live() {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, tt := range []struct {
		f    SessionFilter
		want []*Session
	}{
		{SessionFilter{}, []*Session{a, b, c, twin}},
		{SessionFilter{Tenant: "t"}, []*Session{a, b, twin}},
		{SessionFilter{Tenant: "t", Live: true}, []*Session{b, twin}},
		{SessionFilter{State: client.SessionEnded}, []*Session{a}},
		{SessionFilter{After: b.ID}, []*Session{c, twin}},
		{SessionFilter{Limit: 2}, []*Session{a, b}},
	} {
		got, err := s.Sessions(t.Context(), tt.f)
		if err != nil || len(got) != len(tt.want) {
			t.Errorf("%+v: %d sessions, %v, want %d", tt.f, len(got), err, len(tt.want))
			continue
		}
		for i := range got {
			if got[i].ID != tt.want[i].ID {
				t.Errorf("%+v: session %d is %s, want %s", tt.f, i, got[i].ID, tt.want[i].ID)
			}
		}
	}
	if err := s.Write(func(tx *Tx) error {
		_, err := tx.st.exec("DELETE FROM sessions WHERE id = ?", b.ID)
		return err
	}); err != nil {
		t.Error(err)
	}
	if _, err := s.Session(t.Context(), b.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("dropped: %v", err)
	}
}

func TestKeysAreUniqueInASession(t *testing.T) {
	s := newTest(t)
	insert(t, s, testCall(s, "a", "k"))
	insert(t, s, testCall(s, "b", "k"))
	insert(t, s, testCall(s, "a", ""))
	insert(t, s, testCall(s, "a", ""))
	if err := s.Write(func(tx *Tx) error { return tx.Put(inserted(testCall(s, "a", "k"))) }); !errors.Is(err, ErrExists) {
		t.Errorf("got %v, want ErrExists", err)
	}
	if _, err := s.CallByKey(t.Context(), "a", ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("no key: %v", err)
	}
	if n, err := s.CountCalls(t.Context(), "a"); err != nil || n != 3 {
		t.Errorf("%d calls, %v", n, err)
	}
}

func TestCallLists(t *testing.T) {
	s := newTest(t)
	var ids []string
	for i := range 6 {
		c := testCall(s, "a", "")
		c.Input = json.RawMessage(fmt.Sprintf(`{"command":%q}`, strings.Repeat("x", 1000)))
		if i%2 == 1 {
			c.Tool = "read"
		}
		insert(t, s, c)
		ids = append(ids, c.ID)
		if i < 3 {
			c.Status = client.CallError
			if err := s.Append(finished(c)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		f    CallFilter
		want []int
		more bool
	}{
		{CallFilter{Limit: 10}, []int{0, 1, 2, 3, 4, 5}, false},
		{CallFilter{Limit: 2}, []int{0, 1}, true},
		{CallFilter{Limit: 6}, []int{0, 1, 2, 3, 4, 5}, false},
		{CallFilter{Limit: 10, After: ids[3]}, []int{4, 5}, false},
		{CallFilter{Limit: 10, Status: client.CallError}, []int{0, 1, 2}, false},
		{CallFilter{Limit: 10, Tool: "read"}, []int{1, 3, 5}, false},
		{CallFilter{Limit: 10, MaxBytes: 1500}, []int{0, 1}, true},
	} {
		tt.f.Session = "a"
		got, more, err := s.Calls(t.Context(), tt.f)
		var have []int
		for _, c := range got {
			for i, id := range ids {
				if id == c.ID {
					have = append(have, i)
				}
			}
		}
		if err != nil || more != tt.more || !reflect.DeepEqual(have, tt.want) {
			t.Errorf("%+v: %v, more %v, %v, want %v, %v", tt.f, have, more, err, tt.want, tt.more)
		}
	}
	open, err := s.OpenCalls(t.Context(), "a")
	if err != nil || len(open) != 3 || open[0].ID != ids[3] {
		t.Errorf("open: %d, %v", len(open), err)
	}
}

func TestEventFilters(t *testing.T) {
	s := newTest(t)
	now := testTime()
	err := s.Append(happened(
		client.Event{Time: now, Type: "call.pending", Tenant: "t", Session: "a", Call: "c", Data: json.RawMessage(`{"x":1}`)},
		client.Event{Time: now, Type: "call.completed", Tenant: "t", Session: "b"},
		client.Event{Time: now, Type: "session.ended", Tenant: "t", Session: "a"},
		client.Event{Time: now, Type: "call.pending", Tenant: "u", Session: "z"},
	))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		f    EventFilter
		want string
	}{
		{EventFilter{}, "call.pending call.completed session.ended call.pending"},
		{EventFilter{Tenant: "t"}, "call.pending call.completed session.ended"},
		{EventFilter{Session: "a"}, "call.pending session.ended"},
		{EventFilter{Type: "call.pending"}, "call.pending call.pending"},
		{EventFilter{Type: "call.*", Tenant: "t"}, "call.pending call.completed"},
		{EventFilter{Type: "call"}, ""},
		{EventFilter{Type: "*"}, "call.pending call.completed session.ended call.pending"},
	} {
		tt.f.Limit = 10
		got, err := s.Events(t.Context(), tt.f)
		var types []string
		for _, e := range got {
			types = append(types, e.Type)
		}
		if err != nil || strings.Join(types, " ") != tt.want {
			t.Errorf("%+v: %v, %v, want %s", tt.f, types, err, tt.want)
		}
	}
}

func TestLeases(t *testing.T) {
	s := newTest(t)
	if all, last, err := s.Leases(t.Context()); err != nil || len(all) != 0 || last != 0 {
		t.Errorf("at first: %v, %d, %v", all, last, err)
	}
	err := s.Write(func(tx *Tx) error {
		return errors.Join(tx.TakeLease(1<<31, "a"), tx.TakeLease(1<<16, "b"), tx.TakeLease(1<<17, "c"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(func(tx *Tx) error { return tx.TakeLease(1<<16, "d") }); !errors.Is(err, ErrExists) {
		t.Errorf("taken twice: %v", err)
	}
	err = s.Write(func(tx *Tx) error { return errors.Join(tx.DropLease(1<<16), tx.QuarantineLease(1<<31, "why")) })
	if err != nil {
		t.Fatal(err)
	}
	all, last, err := s.Leases(t.Context())
	want := []Lease{{1 << 17, "c", false, ""}, {1 << 31, "a", true, "why"}}
	if err != nil || last != 1<<17 || !reflect.DeepEqual(all, want) {
		t.Errorf("got %+v, %d, %v", all, last, err)
	}
}

func TestSweep(t *testing.T) {
	s := newTest(t)
	live, over, recent := testSession(s, "t", ""), testSession(s, "t", ""), testSession(s, "t", "")
	long := testTime().Add(-time.Hour)
	now := testTime()
	over.State, over.Ended = client.SessionEnded, &long
	recent.State, recent.Ended = client.SessionEnded, &now
	for _, v := range []*Session{live, over, recent} {
		if err := put(t, s, v); err != nil {
			t.Fatal(err)
		}
	}
	running, done := testCall(s, live.ID, ""), testCall(s, over.ID, "")
	insert(t, s, running)
	insert(t, s, done)
	done.Status, done.Time.Ended, done.Output.File = client.CallCompleted, &long, true
	err := s.Write(func(tx *Tx) error {
		for range sweepRows + 10 {
			tx.AddEvent(client.Event{Type: "x", Time: now})
		}
		return tx.Put(finished(done))
	})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond)
	if n, err := s.Sweep(t.Context(), time.Now().Add(-30*time.Minute), func([]Removed) {}); err != nil || n != 0 {
		t.Errorf("too early: %d rows, %v", n, err) // by its id, the call is of now
	}
	old, err := s.OldOutputs(t.Context(), time.Now(), 10)
	if err != nil || len(old) != 1 || old[0] != (OutputRef{over.ID, done.ID}) {
		t.Errorf("old outputs %v, %v", old, err)
	}
	if err := s.Write(func(tx *Tx) error { return tx.DropOutput(done.ID) }); err != nil {
		t.Error(err)
	}
	if old, err := s.OldOutputs(t.Context(), time.Now(), 10); err != nil || len(old) != 0 {
		t.Errorf("old outputs after they were dropped: %v, %v", old, err)
	}
	if n, err := s.Sweep(t.Context(), time.Now(), func([]Removed) {}); err != nil || n != sweepRows+10+1 {
		t.Errorf("%d rows went, %v", n, err)
	}
	if ids, err := s.OldSessions(t.Context(), long.Add(-time.Minute), ""); err != nil || len(ids) != 0 {
		t.Errorf("too early: sessions %v, %v", ids, err)
	}
	ids, err := s.OldSessions(t.Context(), time.Now(), "")
	if err != nil || !slices.Equal(ids, []string{over.ID, recent.ID}) {
		t.Errorf("old sessions %v, %v", ids, err)
	}
	if again, err := s.OldSessions(t.Context(), time.Now(), recent.ID); err != nil || len(again) != 0 {
		t.Errorf("behind the last: %v, %v", again, err)
	}
	if err := s.RemoveSessions(append(ids, live.ID)); err != nil {
		t.Error(err)
	}
	if _, err := s.Call(t.Context(), running.ID); err != nil {
		t.Errorf("a running call: %v", err)
	}
	if _, err := s.Session(t.Context(), live.ID); err != nil {
		t.Errorf("a live session: %v", err)
	}
	if _, err := s.Session(t.Context(), over.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("a session that was over: %v", err)
	}
}

func TestIDs(t *testing.T) {
	g := NewIDs("")
	seen := make(map[string]bool)
	last := ""
	for range 10000 {
		id := g.New("call_")
		if id <= last || seen[id] || !ValidID("call_", id) || len(id) != len("call_")+28 {
			t.Fatalf("id %q after %q", id, last)
		}
		last = id
		seen[id] = true
	}
	// A clock that was set back does not make ids go back.
	ahead := appendTicks([]byte("call_"), uint64(time.Now().Add(24*time.Hour).UnixNano())>>4)
	future := string(ahead) + strings.Repeat("v", idRandom)
	if id := NewIDs(future).New("evt_"); id[4:] <= future[5:] {
		t.Errorf("%q sorts before %q", id, future)
	}
	for _, bad := range []string{"", "call_", last + "x", last[:len(last)-1], "ses_" + last[5:], strings.ToUpper(last), "call_../../../../etc/passwd....", strings.Replace(last, "0", "\x00", 1) + "\x00"} {
		if ValidID("call_", bad) {
			t.Errorf("%q was taken for an id", bad)
		}
	}
}

// TestRefusalBesideOthers: a write that is refused takes back what it did, events too, and
// the others of its batch are done once.
func TestRefusalBesideOthers(t *testing.T) {
	s := newTest(t)
	held, begun := make(chan struct{}), make(chan struct{})
	first := s.enqueue(&job{done: make(chan error, 1), fn: func(*Tx) error { close(begun); <-held; return nil }})
	<-begun // what comes now is one batch
	refusal := errors.New("no")
	runs := make([]int, 5)
	var done []<-chan error
	for i := range runs {
		done = append(done, s.enqueue(&job{done: make(chan error, 1), fn: func(tx *Tx) error {
			runs[i]++
			tx.AddEvent(client.Event{Type: "x", Time: testTime(), Session: fmt.Sprint(i)})
			err := tx.TakeLease(uint32(i+1)<<16, fmt.Sprint(i))
			if i%2 == 1 {
				err = refusal
			}
			return err
		}}))
	}
	close(held)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	for i, c := range done {
		if err := <-c; (i%2 == 1) != errors.Is(err, refusal) || runs[i] != 1 {
			t.Errorf("write %d: %v, and it ran %d times", i, err, runs[i])
		}
	}
	leased, _, err := s.Leases(t.Context())
	if err != nil || len(leased) != 3 {
		t.Errorf("leases %v, %v", leased, err)
	}
	n, err := one(t.Context(), &s.rd, "SELECT count(*) FROM events WHERE session IN ('1', '3')", column[int64])
	if err != nil || n != 0 {
		t.Errorf("%d events of what was refused, %v", n, err)
	}
}
