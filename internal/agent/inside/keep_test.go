package inside

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
)

// The memory of a result is counted until the daemon has forgotten the call,
// and no longer; the session's limit for files reaches the tools.
func TestResultKeepsMemory(t *testing.T) {
	const all = 1 << 40 // more than there is
	size := int64(0)
	keep := fakeTool{name: "keep", run: func(ctx context.Context, env *run.Env, _ json.RawMessage, _ *run.Prepared) (*run.Result, error) {
		size = env.MaxFileSize
		v, err := env.Root.Reserve(ctx, all)
		if err != nil {
			return nil, err
		}
		env.Keep(v)
		return &run.Result{Output: "x"}, nil
	}}
	free := fakeTool{name: "free", run: func(ctx context.Context, env *run.Env, _ json.RawMessage, _ *run.Prepared) (*run.Result, error) {
		v, err := env.Root.Reserve(ctx, all)
		if err != nil {
			return nil, err
		}
		v.Release()
		return &run.Result{}, nil
	}}
	r := newRig(t, keep, free)
	h := r.hello()
	h.FileSize = 12345
	c, _ := r.connect(h)
	for range 2 {
		if o, err := c.Run(t.Context(), ask("keep", "keep"), nil); err != nil || o.Err != nil {
			t.Fatalf("%+v, %v", o, err)
		}
		q := ask("early", "free")
		q.TimeoutMillis = 50
		if o, err := c.Run(t.Context(), q, nil); err != nil || o.Err == nil || o.Err.Code != run.CodeAborted {
			t.Fatalf("while a result is held: %+v, %v", o, err)
		}
		for _, id := range []string{"keep", "early"} {
			if err := c.Forget(id); err != nil {
				t.Fatal(err)
			}
		}
		if o, err := c.Run(t.Context(), ask("late", "free"), nil); err != nil || o.Err != nil {
			t.Fatalf("after the result was forgotten: %+v, %v", o, err)
		}
		if err := c.Forget("late"); err != nil {
			t.Fatal(err)
		}
	}
	if size != 12345 {
		t.Errorf("the limit for files is %d", size)
	}
}

// A call that the daemon gives up is not kept for ever because it has not ended
// yet when it is forgotten.
func TestForgottenBeforeItsEnd(t *testing.T) {
	began := make(chan struct{})
	slow := fakeTool{name: "slow", run: func(ctx context.Context, _ *run.Env, _ json.RawMessage, _ *run.Prepared) (*run.Result, error) {
		close(began)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}}
	r := newRig(t, slow)
	c, _ := r.connect(r.hello())
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := c.Run(ctx, ask("a", "slow"), nil)
		gone <- err
	}()
	<-began
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := c.Forget("a"); err != nil {
		t.Fatal(err)
	}
	if err := c.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.server.call("a") == nil {
		t.Error("a call that goes on is not known any more")
	}
	if err := c.Abort("a", run.ReasonAborted); err != nil {
		t.Fatal(err)
	}
	testrig.Eventually(t, "no call is held", func() bool { return r.server.call("a") == nil })
	if _, w := r.connect(r.hello()); len(w.Calls) != 0 {
		t.Errorf("held are %+v", w.Calls)
	}
}
