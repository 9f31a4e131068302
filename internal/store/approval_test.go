package store

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/toold/toold/client"
)

func testApproval(s *Store, c *Call) *Approval {
	return &Approval{
		Approval: client.Approval{
			ID: s.NewID("apr_"), Tenant: "t", SessionID: c.SessionID, CallID: c.ID, Profile: "build", Tool: c.Tool,
			Requests: []client.ApprovalRequest{{Permission: "bash", Pattern: "ls"}}, Metadata: map[string]any{"command": "ls"},
			Created: testTime(), Expires: testTime().Add(time.Minute),
		},
		UID: 7, Token: c.SessionID, State: []byte("state"), TimeoutMillis: 3, Env: []string{"A"},
	}
}

func addApproval(t *testing.T, s *Store, a *Approval) {
	t.Helper()
	if err := s.Write(func(tx *Tx) error { return tx.InsertApproval(a) }); err != nil {
		t.Fatal(err)
	}
}

func answerApproval(s *Store, a *Approval, reply string) error {
	b := *a
	b.Reply, b.By, b.Answered = reply, "uid 0", new(testTime())
	return s.Write(func(tx *Tx) error { return tx.AnswerApproval(&b) })
}

func approvalIDs(all []*Approval) []string {
	var list []string
	for _, a := range all {
		list = append(list, a.ID)
	}
	return list
}

func TestApprovals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toold.db")
	s := openTest(t, path)
	session := s.NewID("ses_")
	waits, ended, answered := testCall(s, session, ""), testCall(s, session, ""), testCall(s, session, "")
	for _, c := range []*Call{waits, ended, answered} {
		insert(t, s, c)
	}
	old, a, b, c := testApproval(s, waits), testApproval(s, waits), testApproval(s, ended), testApproval(s, answered)
	for _, v := range []*Approval{old, a, b, c} {
		addApproval(t, s, v)
	}
	if got, err := s.Approval(t.Context(), a.ID); err != nil || !reflect.DeepEqual(got, a) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, a)
	}
	if _, err := s.Approval(t.Context(), "x"); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown: %v", err)
	}
	for _, v := range []*Approval{old, c} {
		if err := answerApproval(s, v, "once"); err != nil {
			t.Fatal(err)
		}
	}
	if err := answerApproval(s, c, "reject"); !errors.Is(err, ErrExists) {
		t.Errorf("a second answer: %v", err)
	}
	if err := answerApproval(s, &Approval{}, "once"); !errors.Is(err, ErrExists) {
		t.Errorf("an answer to nothing: %v", err)
	}
	if got, err := s.Approval(t.Context(), c.ID); err != nil || got.Reply != "once" || got.By != "uid 0" || got.Answered == nil {
		t.Errorf("answered: %+v, %v", got, err)
	}
	ended.Status, ended.Time.Ended = client.CallError, new(testTime())
	if err := s.Append(finished(ended)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, path)
	// The last of each call that has not ended, answered or not.
	if got, err := s.OpenApprovals(t.Context(), session); err != nil || !slices.Equal(approvalIDs(got), []string{a.ID, c.ID}) {
		t.Errorf("open %v, %v", approvalIDs(got), err)
	}
	if got, err := s.OpenApprovals(t.Context(), "other"); err != nil || len(got) != 0 {
		t.Errorf("open elsewhere %v, %v", approvalIDs(got), err)
	}
	// What nobody can answer any more.
	if got, err := s.PendingApprovals(t.Context()); err != nil || !slices.Equal(approvalIDs(got), []string{b.ID}) {
		t.Errorf("pending %v, %v", approvalIDs(got), err)
	}
	if n, err := s.SweepApprovals(t.Context(), testTime().Add(-time.Hour), testTime()); err != nil || n != 0 {
		t.Errorf("swept %d, %v", n, err)
	}
	if n, err := s.SweepApprovals(t.Context(), testTime().Add(time.Hour), testTime()); err != nil || n != 2 {
		t.Errorf("swept %d, %v", n, err)
	}
	if _, err := s.Approval(t.Context(), a.ID); err != nil {
		t.Errorf("a pending one was swept: %v", err)
	}
}

func TestSavedApprovals(t *testing.T) {
	s := newTest(t)
	past := testTime().Add(-time.Minute)
	all := []*SavedApproval{
		{SavedApproval: client.SavedApproval{ID: "apr_1.1", Tenant: "t", Scope: client.ScopeTenant, Permission: "bash", Pattern: "a *", Created: testTime()}},
		{SavedApproval: client.SavedApproval{ID: "apr_1.2", Tenant: "t", Scope: client.ScopeSession, SessionID: "ses_1", Created: testTime()}},
		{SavedApproval: client.SavedApproval{ID: "apr_2.1", Tenant: "u", Scope: client.ScopeProfile, Profile: "p", Created: testTime(), Expires: &past}},
	}
	for _, v := range all {
		if err := s.Write(func(tx *Tx) error { return tx.InsertSaved(v) }); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.Saved(t.Context()); err != nil || !reflect.DeepEqual(got, all) {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := s.Write(func(tx *Tx) error { return tx.InsertSaved(all[0]) }); !errors.Is(err, ErrExists) {
		t.Errorf("twice: %v", err)
	}
	if n, err := s.SweepApprovals(t.Context(), testTime().Add(-time.Hour), testTime()); err != nil || n != 1 {
		t.Errorf("swept %d, %v", n, err)
	}
	err := s.Write(func(tx *Tx) error { return errors.Join(tx.DropSavedOf("ses_1"), tx.DropSavedOf("")) })
	if got, e := s.Saved(t.Context()); err != nil || e != nil || len(got) != 1 || got[0].ID != "apr_1.1" {
		t.Errorf("after the end of a session: %+v, %v, %v", got, err, e)
	}
	err = s.Write(func(tx *Tx) error { return tx.DropSaved("apr_1.1") })
	if got, e := s.Saved(t.Context()); err != nil || e != nil || len(got) != 0 {
		t.Errorf("revoked: %+v, %v, %v", got, err, e)
	}
}

func TestRecent(t *testing.T) {
	s := newTest(t)
	one, two := s.NewID("ses_"), s.NewID("ses_")
	a, b, c := testCall(s, one, ""), testCall(s, two, ""), testCall(s, one, "")
	for _, v := range []*Call{a, b, c} {
		insert(t, s, v)
	}
	stop := errors.New("enough")
	for _, tt := range []struct {
		name string
		f    RecentFilter
		stop bool
		want []string
	}{
		{"all, newest first", RecentFilter{Limit: 10}, false, []string{c.ID, b.ID, a.ID}},
		{"some", RecentFilter{Limit: 2}, false, []string{c.ID, b.ID}},
		{"of a session", RecentFilter{Session: one, Limit: 10}, false, []string{c.ID, a.ID}},
		{"of a tenant", RecentFilter{Tenant: a.Tenant, Limit: 10}, false, []string{c.ID, b.ID, a.ID}},
		{"of another tenant", RecentFilter{Session: one, Tenant: "x", Limit: 10}, false, nil},
		{"since", RecentFilter{Since: time.Now().Add(time.Minute), Limit: 10}, false, nil},
		{"stopped", RecentFilter{Limit: 10}, true, []string{c.ID}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			err := s.Recent(t.Context(), tt.f, func(c *Call) error {
				got = append(got, c.ID)
				if tt.stop {
					return stop
				}
				return nil
			})
			if tt.stop != errors.Is(err, stop) || err != nil && !tt.stop || !slices.Equal(got, tt.want) {
				t.Errorf("got %v, %v, want %v", got, err, tt.want)
			}
		})
	}
	if err := s.Write(func(tx *Tx) error { return tx.ReplaceInput(a.ID, json.RawMessage(`{"new":1}`)) }); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Call(t.Context(), a.ID); err != nil || string(got.Input) != `{"new":1}` {
		t.Errorf("%s, %v", got.Input, err)
	}
}
