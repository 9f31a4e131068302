// Package local runs calls in the daemon itself: its tools are Go functions of their typed
// inputs. Such a call ends with its daemon; the next one ends its record and does not run it
// again.
package local

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// Tool is the work of one tool, found by the type of its input.
type Tool struct {
	input reflect.Type
	// prepare resolves the paths that the input names; nil: it names none.
	prepare func(ctx context.Context, in any) (*run.Prepared, error)
	work    func(ctx context.Context, in any, out *Out) (*run.Result, error)
}

// Of makes a Tool of two functions of an input. prepare has no effect and resolves, in their
// order, the paths that Access names; it is nil for a tool that names none. work does the work
// until ctx ends. An error of either means that the call could not be run: a *run.Error, or one
// that only the daemon's log is for.
func Of[I tool.Input](prepare func(context.Context, I) (*run.Prepared, error), work func(context.Context, I, *Out) (*run.Result, error)) Tool {
	t := Tool{
		input: reflect.TypeFor[I](),
		work:  func(ctx context.Context, in any, out *Out) (*run.Result, error) { return work(ctx, in.(I), out) },
	}
	if prepare != nil {
		t.prepare = func(ctx context.Context, in any) (*run.Prepared, error) { return prepare(ctx, in.(I)) }
	}
	return t
}

// Out takes what a tool sends while it runs. It belongs to the goroutine of the work.
type Out struct {
	Call string // its id
	to   agent.Follower
	most int64 // bytes; 0 = any number
	end  context.CancelCauseFunc
}

// Write implements io.Writer. At the bound of the call it ends the call.
func (o *Out) Write(p []byte) (int, error) {
	at := o.to.Offset()
	if o.most > 0 && at+int64(len(p)) > o.most {
		o.end(endedError(run.ReasonOutputLimit))
		return 0, endedError(run.ReasonOutputLimit)
	}
	if err := o.to.Output(at, false, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Progress tells metadata.
func (o *Out) Progress(m map[string]any) { o.to.Metadata(m) }

// endedError is why a call was ended before it was done.
type endedError run.Reason

// Error implements error.
func (e endedError) Error() string { return "ended: " + string(e) }

// Runner runs calls of these tools. It is a call.Runner.
type Runner struct {
	tools []Tool

	mu   sync.Mutex // guards ends
	ends map[string]context.CancelCauseFunc
}

// New makes a Runner.
func New(tools ...Tool) *Runner {
	return &Runner{tools: tools, ends: make(map[string]context.CancelCauseFunc)}
}

func (r *Runner) find(q agent.Request) (*Tool, error) {
	i := slices.IndexFunc(r.tools, func(t Tool) bool { return t.input == reflect.TypeOf(q.Typed) })
	if i < 0 {
		return nil, fmt.Errorf("the daemon has no tool of input %T", q.Typed)
	}
	return &r.tools[i], nil
}

// Prepare implements call.Runner.
func (r *Runner) Prepare(ctx context.Context, q agent.Request) (*run.Prepared, error) {
	t, err := r.find(q)
	if err != nil || t.prepare == nil {
		return nil, err
	}
	return t.prepare(ctx, q.Typed)
}

// Run implements call.Runner.
func (r *Runner) Run(ctx context.Context, q agent.Request, to agent.Follower) (*agent.Outcome, error) {
	t, err := r.find(q)
	if err != nil {
		return nil, err
	}
	call := ctx
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	r.begin(q.CallID, end)
	defer r.begin(q.CallID, nil)
	if q.TimeoutMillis > 0 {
		timer := time.AfterFunc(time.Duration(q.TimeoutMillis)*time.Millisecond, func() { end(endedError(run.ReasonTimeout)) })
		defer timer.Stop()
	}
	out, err := t.run(ctx, q, &Out{q.CallID, to, q.MaxOutput, end})
	if cause := context.Cause(call); cause != nil {
		return nil, cause
	}
	if why, ok := errors.AsType[endedError](context.Cause(ctx)); ok && err != nil {
		err = run.Errorf(run.CodeAborted, "%s was stopped before it was done: %s", q.Tool, run.Reason(why).Words())
	}
	if re, ok := errors.AsType[*run.Error](err); ok {
		return &agent.Outcome{Err: re, OutputEnd: to.Offset()}, nil
	}
	return out, err
}

// run looks whether the paths still lead where the call was judged by, and does the work.
func (t *Tool) run(ctx context.Context, q agent.Request, out *Out) (*agent.Outcome, error) {
	if t.prepare != nil {
		now, err := t.prepare(ctx, q.Typed)
		switch {
		case err != nil:
			return nil, err
		case q.Expect != nil && !slices.Equal(now.Paths(), q.Expect):
			return &agent.Outcome{Prepared: now}, nil
		case q.Prepared != nil && !slices.Equal(now.Paths(), q.Prepared.Paths()):
			return nil, run.Errorf(run.CodeStale, "a path leads elsewhere now")
		}
	}
	res, err := t.work(ctx, q.Typed, out)
	if err != nil {
		return nil, err
	}
	return &agent.Outcome{Result: res, OutputEnd: out.to.Offset()}, nil
}

// begin notes how a call is ended; nil: it has ended.
func (r *Runner) begin(call string, end context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if end == nil {
		delete(r.ends, call)
	} else {
		r.ends[call] = end
	}
}

// Abort implements call.Runner.
func (r *Runner) Abort(call string, why run.Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if end, ok := r.ends[call]; ok {
		end(endedError(why))
	}
}
