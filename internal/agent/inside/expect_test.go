package inside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/tool/run"
)

// Run with Expect runs only what leads where the daemon expects it.
func TestRunExpects(t *testing.T) {
	prep := run.Prepared{Targets: []run.Target{{Asked: "a", Path: "/w/a"}, {Asked: "b", Path: "/w/b", Kind: "file"}}, Diff: "d", State: []byte(`{"x":1}`)}
	early := prep
	early.Result = &run.Result{Output: "early"}
	runs := 0
	tool := fakeTool{
		name: "x",
		prepare: func(_ context.Context, env *run.Env, in json.RawMessage) (*run.Prepared, error) {
			switch string(in) {
			case `"fails"`:
				return nil, run.Errorf(run.CodeInvalidPath, "no")
			case `"early"`:
				return &early, nil
			case `"nothing"`:
				return nil, nil
			}
			return &prep, nil
		},
		run: func(_ context.Context, _ *run.Env, _ json.RawMessage, p *run.Prepared) (*run.Result, error) {
			runs++
			return &run.Result{Output: fmt.Sprint(len(p.Targets), p.Diff, string(p.State))}, nil
		},
	}
	r := newRig(t, tool)
	c, _ := r.connect(r.hello())
	both := []string{"/w/a", "/w/b"}
	for i, tc := range []struct {
		in     string
		expect []string
		want   agent.Outcome
		runs   int
	}{
		{`1`, both, agent.Outcome{Result: &run.Result{Output: `2d{"x":1}`}}, 1},
		{`1`, []string{"/w/b", "/w/a"}, agent.Outcome{Prepared: &prep}, 0},
		{`1`, both[:1], agent.Outcome{Prepared: &prep}, 0},
		{`1`, []string{"/w/a", "/w/b", "/w/c"}, agent.Outcome{Prepared: &prep}, 0},
		{`1`, []string{}, agent.Outcome{Prepared: &prep}, 0},
		{`"nothing"`, []string{}, agent.Outcome{Result: &run.Result{Output: "0"}}, 1},
		{`"nothing"`, both, agent.Outcome{Prepared: &run.Prepared{}}, 0},
		{`"early"`, both, agent.Outcome{Result: early.Result}, 0},
		{`"early"`, nil, agent.Outcome{Err: run.Errorf(run.CodeInternal, "x: panic")}, 1}, // Run without Prepare
		{`"early"`, both[1:], agent.Outcome{Prepared: &early}, 0},
		{`"fails"`, both, agent.Outcome{Err: run.Errorf(run.CodeInvalidPath, "no")}, 0},
	} {
		runs = 0
		q := ask(fmt.Sprint(i), "x")
		q.Input, q.Expect = json.RawMessage(tc.in), tc.expect
		o, err := c.Run(t.Context(), q, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tc.want.Err != nil {
			if o.Err == nil || o.Err.Code != tc.want.Err.Code || o.Prepared != nil || o.Result != nil {
				t.Errorf("%s %q: %+v", tc.in, tc.expect, o)
			}
		} else if !reflect.DeepEqual(*o, tc.want) {
			t.Errorf("%s %q: %+v %+v, want %+v", tc.in, tc.expect, o, o.Prepared, tc.want)
		}
		if runs != tc.runs {
			t.Errorf("%s %q: ran %d times", tc.in, tc.expect, runs)
		}
		// Whoever comes later gets the same.
		again, err := c.Resume(t.Context(), q.CallID, 0, nil)
		if err != nil || !reflect.DeepEqual(again, o) {
			t.Errorf("%s %q again: %+v, %v", tc.in, tc.expect, again, err)
		}
	}
	// A call that has not run may be run, once: it need not have been forgotten.
	runs = 0
	for i, expect := range [][]string{{"/elsewhere"}, {"/elsewhere"}, both, both} {
		q := ask("later", "x")
		q.Input, q.Expect = json.RawMessage(`1`), expect
		o, err := c.Run(t.Context(), q, nil)
		if (o != nil) != (i < 3) || errors.Is(err, agent.ErrDuplicateCall) != (i == 3) || o != nil && (o.Result != nil) != (i == 2) {
			t.Errorf("%d: %+v, %v", i, o, err)
		}
	}
	if runs != 1 {
		t.Errorf("ran %d times", runs)
	}
	q := ask("both", "x")
	q.Expect, q.Prepared = both, &prep
	if o, err := c.Run(t.Context(), q, nil); err != nil || o.Err == nil || o.Err.Code != run.CodeInternal {
		t.Errorf("prepared and to be prepared: %+v %v", o, err)
	}
}

// Paths reach the tool; too many do not leave the daemon.
func TestRequestPaths(t *testing.T) {
	var got []string
	tool := fakeTool{name: "x", prepare: func(_ context.Context, env *run.Env, _ json.RawMessage) (*run.Prepared, error) {
		got = env.Paths
		return nil, nil
	}}
	r := newRig(t, tool)
	c, _ := r.connect(r.hello())
	q := ask("1", "x")
	q.Paths = []string{"a", "", "/\xff"}
	if _, err := c.Prepare(t.Context(), q); err != nil || !reflect.DeepEqual(got, q.Paths) {
		t.Errorf("%q, %v", got, err)
	}
	q.Paths = make([]string, run.MaxPaths+1)
	_, err := c.Prepare(t.Context(), q)
	if known, ok := errors.AsType[*run.Error](err); !ok || known.Code != run.CodeInvalidInput {
		t.Errorf("%d paths: %v", len(q.Paths), err)
	}
}

// directTool is a tool that goes by the files as they are.
type directTool struct {
	fakeTool
	resolve func(ctx context.Context, env *run.Env, input json.RawMessage) (*run.Prepared, error)
}

func (t directTool) Resolve(ctx context.Context, env *run.Env, input json.RawMessage) (*run.Prepared, error) {
	return t.resolve(ctx, env, input)
}

// A direct tool has its targets resolved, and is run again when a file changed under
// it. What leads elsewhere is prepared in full, for a person may be shown it.
func TestDirectTools(t *testing.T) {
	only := run.Prepared{Targets: []run.Target{{Asked: "a", Path: "/w/a"}}}
	full := run.Prepared{Targets: only.Targets, Diff: "d", State: []byte(`{}`)}
	resolved, stale, runs := 0, 0, 0
	tool := directTool{
		fakeTool: fakeTool{
			name:    "x",
			prepare: func(context.Context, *run.Env, json.RawMessage) (*run.Prepared, error) { return &full, nil },
			run: func(_ context.Context, _ *run.Env, _ json.RawMessage, p *run.Prepared) (*run.Result, error) {
				if runs++; runs <= stale {
					return nil, run.Errorf(run.CodeStale, "changed")
				}
				return &run.Result{Output: "done " + p.Diff}, nil
			},
		},
		resolve: func(context.Context, *run.Env, json.RawMessage) (*run.Prepared, error) {
			resolved++
			return &only, nil
		},
	}
	r := newRig(t, tool)
	c, _ := r.connect(r.hello())
	for i, tc := range []struct {
		expect   []string // nil: it was prepared
		stale    int
		want     agent.Outcome
		resolved int
	}{
		{[]string{"/w/a"}, 0, agent.Outcome{Result: &run.Result{Output: "done "}}, 1},
		{[]string{"/w/a"}, maxRuns - 1, agent.Outcome{Result: &run.Result{Output: "done "}}, maxRuns},
		{[]string{"/w/a"}, maxRuns, agent.Outcome{Err: run.Errorf(run.CodeStale, "changed")}, maxRuns},
		{[]string{"/w/b"}, 0, agent.Outcome{Prepared: &full}, 1},
		{nil, 0, agent.Outcome{Result: &run.Result{Output: "done d"}}, 0},
		{nil, 1, agent.Outcome{Err: run.Errorf(run.CodeStale, "changed")}, 0},
	} {
		resolved, runs, stale = 0, 0, tc.stale
		q := ask(fmt.Sprint(i), "x")
		if q.Expect = tc.expect; q.Expect == nil {
			q.Prepared = &full
		}
		o, err := c.Run(t.Context(), q, nil)
		if err != nil || !reflect.DeepEqual(*o, tc.want) || resolved != tc.resolved {
			t.Errorf("%d: %+v, %v, resolved %d times; want %+v", i, o, err, resolved, tc.want)
		}
	}
}
