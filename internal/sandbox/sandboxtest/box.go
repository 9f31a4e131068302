package sandboxtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
)

// box is a sandbox that a test has made, with a connection to its agent.
type box struct {
	sandbox.Sandbox
	s     *suite
	spec  sandbox.Spec
	conn  *agent.Conn
	calls int
}

// Result is what a script did.
type Result struct {
	Output string // stdout and stderr
	Code   int    // -1 when a signal ended it
	Reason run.Reason
}

// create makes a sandbox that ends with the test.
func (s *suite) create(spec sandbox.Spec) *box {
	s.Helper()
	sb, err := s.Driver.Create(s.ctx(), spec)
	testrig.Must(s, err)
	s.Cleanup(func() {
		sb.Close()
		if err := s.Driver.Destroy(context.Background(), sb.Record()); err != nil {
			s.Error(err)
		}
	})
	b := &box{Sandbox: sb, s: s, spec: spec}
	testrig.Must(s, sb.Attach(s.ctx(), b.connect().ForkTID))
	return b
}

// adopt takes the sandbox over as the next daemon would, after the one before has
// let go of it.
func (b *box) adopt(d sandbox.Driver) *box {
	b.s.Helper()
	b.letGo()
	sb, err := d.Adopt(b.s.ctx(), b.Record())
	testrig.Must(b.s, err)
	b.s.Cleanup(func() { sb.Close() })
	next := &box{Sandbox: sb, s: b.s, spec: b.spec, calls: b.calls + 1000}
	next.connect()
	return next
}

// letGo closes what a daemon that ends has open.
func (b *box) letGo() {
	b.s.Helper()
	testrig.Must(b.s, errors.Join(b.conn.Close(), b.Close()))
}

// connect makes the box's connection, as a manager does.
func (b *box) connect() *agent.Welcome {
	b.s.Helper()
	c, err := b.Dial(b.s.ctx())
	testrig.Must(b.s, err)
	cgroup, err := b.CallCgroup()
	testrig.Must(b.s, err)
	if cgroup != nil {
		defer cgroup.Close()
	}
	limits := b.agentLimits()
	conn, w, err := agent.Connect(b.s.ctx(), c, agent.Hello{
		Nonce:    b.spec.Nonce,
		Worktree: b.spec.Worktree.Target, Home: sandbox.Home, Tmp: "/tmp", OutputDir: sandbox.OutputDir,
		ToolUID: sandbox.ToolUID, ToolGID: sandbox.ToolGID,
		Env:       []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + sandbox.Home, "LANG=C.UTF-8"},
		Shell:     []string{"/bin/sh"},
		OpenFiles: b.spec.Limits.OpenFiles, FileSize: int64(b.spec.Limits.FileSize),
		UnackedBytes: unackedBytes, CallCgroup: cgroup,
		Memory: limits.Memory, PIDs: limits.PIDs,
	})
	testrig.Must(b.s, err)
	b.s.Cleanup(func() { conn.Close() })
	b.conn = conn
	return w
}

// agentLimits are those that the agent has to keep.
func (b *box) agentLimits() (l struct{ Memory, PIDs int64 }) {
	if s, ok := b.Sandbox.(sandbox.SelfLimiting); ok && s.SelfLimiting() {
		l.Memory, l.PIDs = int64(b.spec.Limits.Memory), b.spec.Limits.PIDs
	}
	return l
}

// unackedBytes is what the agent keeps of an output that is not acknowledged.
const unackedBytes = 256 << 10

// waitTime is how long anything may take that takes no time, on a machine that does
// much else beside.
const waitTime = testrig.Patience

// callTime bounds what a script of the suite may take: seconds, on a machine with
// nothing else to do.
const callTime = 3 * time.Minute

// request asks for a script.
func (b *box) request(script string) agent.Request {
	b.s.Helper()
	input, err := json.Marshal(map[string]any{"command": script})
	testrig.Must(b.s, err)
	return b.named(agent.Request{Tool: "bash", Input: input})
}

// named gives a request an id and its time.
func (b *box) named(r agent.Request) agent.Request {
	b.calls++
	r.CallID, r.TimeoutMillis = fmt.Sprintf("call_%d", b.calls), callTime.Milliseconds()
	return r
}

// running is a call on its way.
type running struct {
	id   string
	sink *sink
	done chan struct{} // closed when it has ended; out and err are set then
	out  *agent.Outcome
	err  error
}

// start begins a script and does not wait for its end. The sink may be nil.
func (b *box) start(r agent.Request, out *sink) *running {
	b.s.Helper()
	if out == nil {
		out = &sink{}
	}
	out.conn, out.call = b.conn, r.CallID
	return b.follow(r.CallID, out, func(ctx context.Context, c *agent.Conn) (*agent.Outcome, error) { return c.Run(ctx, r, out) })
}

// follow has f follow a call to its end, on a goroutine of its own.
func (b *box) follow(id string, k *sink, f func(context.Context, *agent.Conn) (*agent.Outcome, error)) *running {
	b.s.Helper()
	x := &running{id: id, sink: k, done: make(chan struct{})}
	conn, ctx := b.conn, b.s.ctx()
	go func() {
		defer close(x.done)
		x.out, x.err = f(ctx, conn)
	}()
	b.s.Cleanup(func() { <-x.done })
	return x
}

// outcome waits for the end of a call that must have been run.
func (x *running) outcome(s *suite) *agent.Outcome {
	s.Helper()
	<-x.done
	testrig.Must(s, x.err)
	if x.out.Err != nil {
		s.Fatal(x.out.Err)
	}
	return x.out
}

// result is outcome for a script.
func (x *running) result(s *suite) Result {
	s.Helper()
	out := x.outcome(s)
	r := Result{Output: x.sink.text(), Code: -1}
	if out.Exit != nil {
		r.Reason = out.Exit.Reason
	}
	if out.Exit != nil && out.Exit.Reason == run.ReasonExit {
		r.Code = out.Exit.Code
	}
	return r
}

// run runs a script that may fail.
func (b *box) run(script string) Result {
	b.s.Helper()
	x := b.start(b.request(script), nil)
	r := x.result(b.s)
	testrig.Must(b.s, b.conn.Forget(x.id))
	return r
}

// out is what a script prints that must succeed.
func (b *box) out(script string) string {
	b.s.Helper()
	r := b.run(script)
	if r.Code != 0 {
		b.s.Fatalf("%s: exit code %d\n%s", script, r.Code, r.Output)
	}
	return strings.TrimSpace(r.Output)
}

// want checks what a script prints.
func (b *box) want(script, want string) {
	b.s.Helper()
	if got := b.out(script); got != want {
		b.s.Errorf("%s: got %q, want %q", script, got, want)
	}
}

// fails checks that a script fails and says why.
func (b *box) fails(script, says string) {
	b.s.Helper()
	if r := b.run(script); r.Code == 0 || !strings.Contains(r.Output, says) {
		b.s.Errorf("%s: exit code %d, want a failure saying %q\n%s", script, r.Code, says, r.Output)
	}
}

// sink takes what a call prints, and acknowledges it at once.
type sink struct {
	conn *agent.Conn
	call string
	// hold, when not nil, is waited for before anything is taken.
	hold <-chan struct{}
	// each, when not nil, takes the bytes in place of the sink.
	each func(offset int64, stderr bool, p []byte)

	mu       sync.Mutex // guards the fields below
	bytes    []byte
	end      int64 // the offset after what was taken
	breaches []string
}

// Output implements agent.Sink.
func (k *sink) Output(offset int64, stderr bool, p []byte) error {
	if k.hold != nil {
		<-k.hold
	}
	k.mu.Lock()
	if offset != k.end {
		k.breaches = append(k.breaches, fmt.Sprintf("output at %d after %d", offset, k.end))
	}
	k.end = offset + int64(len(p))
	if k.each != nil {
		k.each(offset, stderr, p)
	} else {
		k.bytes = append(k.bytes, p...)
	}
	k.mu.Unlock()
	_ = k.conn.Ack(k.call, offset+int64(len(p))) // a lost connection shows elsewhere
	return nil
}

// Metadata implements agent.Sink.
func (k *sink) Metadata(map[string]any) {}

func (k *sink) text() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return string(k.bytes)
}

func (k *sink) taken() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.end
}
