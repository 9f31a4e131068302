package session

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
)

// TestSessionKey: the same key and body give the same session, while it lives, in
// a later daemon and when it is over; anything else is a conflict.
func TestSessionKey(t *testing.T) {
	h := newHouse(t)
	h.open()
	r := client.SessionCreate{Key: "k", Name: "n", Env: map[string]string{"A": "1", "B": "2"}}
	s := h.create(alice, r)
	if s.Key != "k" {
		t.Errorf("key %q", s.Key)
	}
	same := func(when string, state client.SessionState) {
		t.Helper()
		if v, err := h.m.Create(t.Context(), alice, r); err != nil || v.ID != s.ID || v.State != state {
			t.Errorf("%s: %+v, %v; want %s, %s", when, v, err, s.ID, state)
		}
		for name, change := range map[string]func(p *auth.Principal, r *client.SessionCreate){
			"another value":   func(_ *auth.Principal, r *client.SessionCreate) { r.Env = map[string]string{"A": "1", "B": "3"} },
			"another user":    func(p *auth.Principal, _ *client.SessionCreate) { *p = carol },
			"another name":    func(_ *auth.Principal, r *client.SessionCreate) { r.Name = "m" },
			"another profile": func(_ *auth.Principal, r *client.SessionCreate) { r.Profile = "explore" },
		} {
			p, other := alice, r
			change(&p, &other)
			if v, err := h.m.Create(t.Context(), p, other); codeOfErr(err) != client.CodeConflict {
				t.Errorf("%s, %s: %+v, %v; want conflict", when, name, v, err)
			}
		}
	}
	same("live", client.SessionReady)
	if v := h.create(bob, r); v.ID == s.ID {
		t.Error("another tenant got the session")
	} else if _, err := h.m.End(t.Context(), bob, v.ID, client.EndOptions{}); err != nil {
		t.Error(err)
	}
	h.stop()
	h.open()
	same("after a restart", client.SessionReady)
	if _, err := h.m.End(t.Context(), alice, s.ID, client.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	same("over", client.SessionEnded)
	h.stop()
	h.open()
	same("over, after a restart", client.SessionEnded)
	if _, err := h.m.Create(t.Context(), alice, client.SessionCreate{Key: "a\nb"}); codeOfErr(err) != client.CodeInvalidRequest {
		t.Errorf("a key with a control character: %v", err)
	}
}

// TestSessionKeyAtOnce: of many requests at once one makes the session, and all
// get it.
func TestSessionKeyAtOnce(t *testing.T) {
	h := newHouse(t)
	h.open()
	var made atomic.Int32
	h.host.onCreate = func() { made.Add(1) }
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			v, err := h.m.Create(t.Context(), alice, client.SessionCreate{Key: "k"})
			if err != nil || v.State != client.SessionReady {
				t.Errorf("%+v, %v", v, err)
				return
			}
			ids[i] = v.ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] || made.Load() != 1 {
			t.Fatalf("sessions %v, %d sandboxes", ids, made.Load())
		}
	}
}

// TestSessionKeyFree: a request that failed leaves its key free, also where the
// daemon died over it.
func TestSessionKeyFree(t *testing.T) {
	h := newHouse(t)
	h.open()
	r := client.SessionCreate{Key: "k"}
	h.host.fail("create", errors.New("no sandbox"))
	if _, err := h.m.Create(t.Context(), alice, r); codeOfErr(err) != client.CodeSandboxFailed {
		t.Fatal(err)
	}
	h.host.fail("create", nil)
	s := h.create(alice, r)
	if s.State != client.SessionReady {
		t.Errorf("%+v", s)
	}
	h.set.Tenants = map[string]Tenant{"a": {MaxSessions: 1}}
	h.m.Reload(h.set)
	if _, err := h.m.Create(t.Context(), alice, client.SessionCreate{Key: "other"}); codeOfErr(err) != client.CodeQuotaExceeded {
		t.Error(err)
	}
	if v := h.create(alice, r); v.ID != s.ID { // it takes no place
		t.Errorf("%+v", v)
	}
}

// TestSessionKeyToken: the answer again has a token that works; the one before
// does not.
func TestSessionKeyToken(t *testing.T) {
	h := newHouse(t)
	h.open()
	r := client.SessionCreate{Key: "k", Token: true}
	first, second := h.create(alice, r), h.create(alice, r)
	for token, want := range map[string]bool{first.Token: false, second.Token: true} {
		if p, err := h.m.TokenSession(t.Context(), token); (err == nil) != want || want && p.Session != first.ID {
			t.Errorf("token %q: %v, want %v", token, err, want)
		}
	}
}

// TestTokenOfOver: who has the token of a session that is over hears that it is, for as long as
// there is a record of it; for others nothing tells it from one that never was.
func TestTokenOfOver(t *testing.T) {
	h := newHouse(t)
	h.open()
	s := h.create(alice, client.SessionCreate{Token: true})
	if _, err := h.m.End(t.Context(), alice, s.ID, client.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	p, err := h.m.TokenSession(t.Context(), s.Token)
	if codeOfErr(err) != client.CodeSessionLost || !strings.Contains(err.Error(), s.ID+" is over") || p.Session != "" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := h.m.TokenSession(t.Context(), s.Token[:len(s.Token)-1]+"~"); codeOfErr(err) != client.CodeForbidden {
		t.Errorf("a wrong token: %v", err)
	}
}
