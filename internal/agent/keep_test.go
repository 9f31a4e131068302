package agent

import (
	"context"
	"encoding/json"
	"testing"

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
