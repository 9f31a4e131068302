package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// job is the input of a tool that plays a script.
type job struct {
	play func(ctx context.Context, out *Out) (*run.Result, error)
	path *string // where its path leads; nil: it names none
}

func (*job) Access(*tool.Reader) tool.Access { return tool.Access{} }

// other is the input of no tool.
type other struct{ job }

// listener keeps what a call sends.
type listener struct {
	text  string
	metas []map[string]any
	fails error
}

func (l *listener) Output(offset int64, _ bool, p []byte) error {
	if offset != int64(len(l.text)) {
		return fmt.Errorf("offset %d", offset)
	}
	l.text += string(p)
	return l.fails
}
func (l *listener) Metadata(m map[string]any) { l.metas = append(l.metas, m) }
func (l *listener) Offset() int64             { return int64(len(l.text)) }
func (l *listener) Safe() int64               { return -1 }

func TestRunner(t *testing.T) {
	done := &run.Result{Output: "done"}
	waits := func(ctx context.Context, _ *Out) (*run.Result, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	here, gone := "/w/a", errors.New("the session is over")
	for _, tt := range []struct {
		name    string
		in      any
		request agent.Request
		fails   error // of who takes the output
		during  func(r *Runner, over context.CancelCauseFunc)
		want    string // result, error of the call, paths, or error
		text    string
	}{
		{name: "a result", in: &job{play: func(_ context.Context, out *Out) (*run.Result, error) {
			fmt.Fprint(out, "one ")
			out.Progress(map[string]any{"at": 1})
			fmt.Fprint(out, "two")
			return done, nil
		}}, want: "done", text: "one two"},
		{name: "no such tool", in: &other{}, want: "the daemon has no tool of input *local.other"},
		{name: "an error for the log", in: &job{play: func(context.Context, *Out) (*run.Result, error) { return nil, gone }}, want: gone.Error()},
		{name: "an error of the call", in: &job{play: func(context.Context, *Out) (*run.Result, error) {
			return nil, run.Errorf(run.CodeInvalidPath, "bad")
		}}, want: "invalid_path: bad"},
		{name: "aborted", in: &job{play: waits}, during: func(r *Runner, _ context.CancelCauseFunc) { r.Abort("c", run.ReasonSessionEnded) }, want: "aborted: t was stopped before it was done: the session ended"},
		{name: "aborted, but done", in: &job{play: func(ctx context.Context, _ *Out) (*run.Result, error) {
			<-ctx.Done()
			return done, nil
		}}, during: func(r *Runner, _ context.CancelCauseFunc) { r.Abort("c", run.ReasonAborted) }, want: "done"},
		{name: "out of time", in: &job{play: waits}, request: agent.Request{TimeoutMillis: 1}, want: "aborted: t was stopped before it was done: its time was over"},
		{name: "too much output", in: &job{play: func(ctx context.Context, out *Out) (*run.Result, error) {
			if _, err := out.Write([]byte("12345")); err == nil {
				return nil, errors.New("it was taken")
			}
			return waits(ctx, out)
		}}, request: agent.Request{MaxOutput: 4}, want: "aborted: t was stopped before it was done: it wrote more than the output limit"},
		{name: "output that nobody takes", in: &job{play: func(_ context.Context, out *Out) (*run.Result, error) {
			_, err := out.Write([]byte("x"))
			return nil, err
		}}, fails: gone, want: gone.Error(), text: "x"},
		{name: "the session ends", in: &job{play: waits}, during: func(_ *Runner, over context.CancelCauseFunc) { over(gone) }, want: gone.Error()},
		{name: "the path leads where it should", in: &job{play: plays(done), path: &here}, request: agent.Request{Expect: []string{"/w/a"}}, want: "done"},
		{name: "the path leads elsewhere", in: &job{play: plays(done), path: &here}, request: agent.Request{Expect: []string{"/w/b"}}, want: "[/w/a]"},
		{name: "what was approved leads elsewhere", in: &job{play: plays(done), path: &here}, request: agent.Request{Prepared: &run.Prepared{Targets: []run.Target{{Path: "/w/b"}}}}, want: "stale: a path leads elsewhere now"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			begun := make(chan struct{})
			r := New(Of(prepareJob, func(ctx context.Context, in *job, out *Out) (*run.Result, error) {
				close(begun)
				return in.play(ctx, out)
			}))
			ctx, over := context.WithCancelCause(t.Context())
			defer over(nil)
			r.Abort("c", run.ReasonAborted) // it has not begun
			if tt.during != nil {
				go func() {
					<-begun
					tt.during(r, over)
				}()
			}
			l, q := &listener{fails: tt.fails}, tt.request
			q.CallID, q.Tool, q.Typed = "c", "t", tt.in
			out, err := r.Run(ctx, q, l)
			if got := said(out, err); got != tt.want || l.text != tt.text {
				t.Errorf("%q, output %q; want %q, %q", got, l.text, tt.want, tt.text)
			}
			if len(r.ends) != 0 {
				t.Error("the call is still there")
			}
		})
	}
}

func plays(r *run.Result) func(context.Context, *Out) (*run.Result, error) {
	return func(context.Context, *Out) (*run.Result, error) { return r, nil }
}

func prepareJob(_ context.Context, in *job) (*run.Prepared, error) {
	if in.path == nil {
		return nil, nil
	}
	return &run.Prepared{Targets: []run.Target{{Path: *in.path}}}, nil
}

func said(out *agent.Outcome, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case out.Err != nil:
		return out.Err.Error()
	case out.Prepared != nil:
		return fmt.Sprint(slices.Sorted(slices.Values(out.Prepared.Paths())))
	}
	return out.Result.Output
}
