package session

import (
	"context"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
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
