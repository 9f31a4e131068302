package session

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/tool/run"
)

// instantConn is an agent that has done everything already: what remains of a
// call is the daemon's own part.
type instantConn struct{ done chan struct{} }

var instantExit = run.Exit{Reason: run.ReasonExit, DurationMillis: 1, CPUMillis: 1, MaxMemoryBytes: 1 << 20}

func (c instantConn) Prepare(_ context.Context, r agent.Request) (*run.Prepared, error) {
	return &run.Prepared{Targets: []run.Target{{Asked: "f", Path: "/workspace/f"}}}, nil
}

func (c instantConn) Run(_ context.Context, r agent.Request, s agent.Sink) (*agent.Outcome, error) {
	if r.Tool != "bash" {
		return &agent.Outcome{Result: &run.Result{Title: "f", Output: "1\thello\n", Metadata: map[string]any{"lines": 1}}}, nil
	}
	exit := instantExit
	err := s.Output(0, false, []byte("hello\n"))
	return &agent.Outcome{Result: &run.Result{Title: "true", Metadata: exit.Metadata()}, Exit: &exit, OutputEnd: 6}, err
}

func (c instantConn) Resume(context.Context, string, int64, agent.Sink) (*agent.Outcome, error) {
	return nil, agent.ErrUnknownCall
}
func (c instantConn) Ack(string, int64) error              { return nil }
func (c instantConn) Forget(string) error                  { return nil }
func (c instantConn) Abort(string, run.Reason) error       { return nil }
func (c instantConn) Hold(string, time.Duration) error     { return nil }
func (c instantConn) Ping(context.Context) error           { return nil }
func (c instantConn) FreeTmp(context.Context, int64) error { return nil }
func (c instantConn) Done() <-chan struct{}                { return c.done }
func (c instantConn) Err() error                           { return nil }
func (c instantConn) Close() error                         { return nil }

// BenchmarkCall is the daemon's own part of a call, without HTTP and the agent.
func BenchmarkCall(b *testing.B) {
	h := newHouse(b)
	m := h.build()
	m.connect = func(context.Context, *net.UnixConn, agent.Hello) (agent.Peer, *agent.Welcome, error) {
		return instantConn{make(chan struct{})}, &agent.Welcome{}, nil
	}
	if err := m.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	s := h.create(alice, client.SessionCreate{})
	for _, bm := range []struct {
		name string
		req  client.CallCreate
	}{{"bash", bashCall("true")}, {"read", readCall("f")}} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c, err := m.calls.Call(b.Context(), alice, s.ID, bm.req, call.Options{})
				if err != nil || c.Error != nil {
					b.Fatalf("%+v, %v", c, err)
				}
			}
		})
	}
}
