package session

import (
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/session/trees"
	"github.com/toold/toold/internal/worktree/layers"
)

// otherMethods are asked while a daemon starts too: they tell what is on record of a session, or
// are about the call or the cache of that name.
var otherMethods = map[string]bool{
	"Get": true, "SessionID": true, "Network": true, "ListCalls": true,
	"GetCall": true, "AbortCall": true, "Output": true, "RemoveCache": true,
}

// sessionMethods are all methods of those that serve the API whose first argument behind the
// principal is a session.
func sessionMethods(m *Manager) map[string]reflect.Value {
	all := map[string]reflect.Value{}
	for _, x := range []any{m.AllTrees(), m, m.Files, m.Caches, m.Policy, m.AllCalls()} {
		v := reflect.ValueOf(x)
		for i := range v.NumMethod() {
			f, name := v.Method(i).Type(), v.Type().Method(i).Name
			if f.NumIn() >= 3 && f.In(0) == reflect.TypeFor[context.Context]() && f.In(1) == reflect.TypeFor[auth.Principal]() &&
				f.In(2).Kind() == reflect.String && f.Out(f.NumOut()-1) == reflect.TypeFor[error]() && !otherMethods[name] {
				all[v.Type().String()+"."+name] = v.Method(i)
			}
		}
	}
	return all
}

// TestUnknownSession: while a daemon has not taken a session over yet, and where a session is
// neither alive nor over on record, whatever is asked for it is refused for now. In particular its
// worktree is nobody's to compare, apply, discard or remove.
func TestUnknownSession(t *testing.T) {
	h := newHouse(t)
	h.open()
	live := h.create(alice, client.SessionCreate{Name: "mine", Token: true})
	h.kill()
	m := h.build()
	ask := func(when, session string) {
		t.Helper()
		methods := sessionMethods(m)
		for _, must := range []string{"*trees.Service.Apply", "*trees.Service.Diff", "*session.Manager.End", "*session.Manager.Patch", "*session.Caches.PromoteCache", "*session.Files.Upload"} {
			if _, ok := methods[must]; !ok {
				t.Fatalf("no method %s among %d", must, len(methods))
			}
		}
		for name, f := range methods {
			in := []reflect.Value{reflect.ValueOf(t.Context()), reflect.ValueOf(alice), reflect.ValueOf(session)}
			for i := 3; i < f.Type().NumIn(); i++ {
				in = append(in, argument(f.Type().In(i)))
			}
			var out []reflect.Value
			if f.Type().IsVariadic() {
				out = f.CallSlice(in)
			} else {
				out = f.Call(in)
			}
			if err, _ := reflect.TypeAssert[error](out[len(out)-1]); codeOfErr(err) != client.CodeOverloaded {
				t.Errorf("%s: %s of %q: %v", when, name, session, err)
			}
		}
	}
	ask("while it starts", live.ID)
	ask("while it starts", "mine")
	if _, err := m.TokenSession(t.Context(), live.Token); codeOfErr(err) != client.CodeOverloaded {
		t.Errorf("a token while it starts: %v", err)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Get(t.Context(), alice, "mine"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	// The end of one could not be stored.
	s := m.liveByID(live.ID)
	m.forget(s)
	ask("without an end on record", live.ID)
	m.adopted(s)
}

// TestJobsOnUnknownSession: what runs in the background leaves the worktree of such a session alone too,
// however short a time changes are kept; those of one that is over go.
func TestJobsOnUnknownSession(t *testing.T) {
	needs.OpenAt2(t)
	h, dir := newOverlaid(t)
	live := h.changed(dir, client.SessionCreate{})
	over := h.changed(dir, client.SessionCreate{})
	h.finish(over.ID)
	h.kill()
	h.set.Worktrees.Keep = time.Nanosecond
	m := h.build()
	before, err := m.cfg.Trees.Get(live.ID)
	if err != nil {
		t.Fatal(err)
	}
	jobs := func(when string) {
		t.Helper()
		m.Collector.sweep(t.Context())
		m.trees.RecoverAll(t.Context())
		m.Usage.countTrees(t.Context())
		if now, err := m.cfg.Trees.Get(live.ID); err != nil || !reflect.DeepEqual(now, before) || m.cfg.Trees.Bytes(now, now.Upper) < changedBytes {
			t.Errorf("%s: the tree was %+v and is %+v, %v", when, before, now, err)
		}
	}
	if _, err := m.Collector.GC(t.Context(), root, client.GCRequest{}); codeOfErr(err) != client.CodeOverloaded {
		t.Errorf("a collection while it starts: %v", err)
	}
	jobs("while it starts")
	if _, err := m.cfg.Trees.Get(over.ID); !errors.Is(err, layers.ErrNone) {
		t.Errorf("the changes of a session that is over: %v", err)
	}
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-m.Collector.swept
	s := m.liveByID(live.ID)
	if s == nil {
		t.Fatal("the session was not taken over")
	}
	m.forget(s)
	jobs("without an end on record")
	m.adopted(s)
}

// TestHelpersEndWithTheirDaemon: a session of the daemon's own, in which it worked on the changes of
// another one, is over for the next daemon, which has nobody who waits for it; what it wrote is nobody's.
func TestHelpersEndWithTheirDaemon(t *testing.T) {
	needs.OpenAt2(t)
	h, dir := newOverlaid(t)
	s := h.changed(dir, client.SessionCreate{})
	tree, err := h.trees.Get(s.ID)
	if err != nil {
		t.Fatal(err)
	}
	var helpers []string
	for _, look := range []bool{true, false} {
		r := client.SessionCreate{Worktree: client.Worktree{Source: dir, Mode: client.WorktreeOverlay}}
		v, _, err := overlaid{h.m}.Begin(t.Context(), mounter, r, trees.Seed{From: tree, Look: look, Internal: true})
		if err != nil {
			t.Fatal(err)
		}
		if helpers = append(helpers, v.ID); h.host.box(v.ID) == nil {
			t.Fatal("it has no sandbox")
		}
	}
	h.kill()
	<-h.open().Collector.swept
	for _, id := range helpers {
		v, err := h.m.Get(t.Context(), mounter, id)
		if err != nil || v.State != client.SessionEnded || h.host.box(id) != nil || h.has(id) {
			t.Errorf("of %s there is a sandbox: %t, a tree: %t; it is %+v, %v", id, h.host.box(id) != nil, h.has(id), v, err)
		}
	}
	if v, err := h.m.Get(t.Context(), mounter, s.ID); err != nil || v.State != client.SessionReady || !h.has(s.ID) {
		t.Errorf("the session that they were for is %+v, %v", v, err)
	}
	if left, err := h.m.Collector.GC(t.Context(), root, client.GCRequest{DryRun: true}); err != nil || len(left) > 0 {
		t.Errorf("left is %+v, %v", left, err)
	}
}

// argument is a value with which a request is well formed.
func argument(t reflect.Type) reflect.Value {
	switch t {
	case reflect.TypeFor[client.RestoreRequest]():
		return reflect.ValueOf(client.RestoreRequest{Undo: 1})
	case reflect.TypeFor[client.CallCreate]():
		return reflect.ValueOf(bashCall("true"))
	case reflect.TypeFor[io.Reader](), reflect.TypeFor[io.ReadCloser]():
		return reflect.ValueOf(io.NopCloser(strings.NewReader("")))
	}
	return reflect.Zero(t)
}
