package inside

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toold/toold/internal/agent/inside/exec"
	"github.com/toold/toold/internal/deadline"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/wire"
)

// metadataEvery is the least time between two metadata updates of a call.
const metadataEvery = 100 * time.Millisecond

// call is one Prepare or Run in the agent. It lives until the daemon forgets it,
// whatever becomes of connections.
type call struct {
	req    wire.Request
	clock  *deadline.Clock
	ctx    context.Context
	cancel context.CancelCauseFunc

	turn    sync.Mutex // held by who writes output; comes before mu; guards scratch
	scratch []byte

	mu       sync.Mutex // guards the fields below
	ring     ring       // its cond is on mu
	meta     []byte     // an update that was not sent, encoded
	exit     *run.Exit  // of its programs so far
	finished bool
	unwanted bool // the daemon has forgotten it before its end
	in       input
	final    wire.Done         // without the payload
	payload  []byte            // encoded result
	held     *root.Reservation // for payload; nil where that is small
	at       *attachment
	most     int64 // output below this offset was or is being sent
}

func newCall(ctx context.Context, req wire.Request, unacked int64) *call {
	c := &call{req: req, clock: deadline.New()}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.ring = ring{cond: sync.NewCond(&c.mu), max: unacked}
	return c
}

// ack drops output that is durable with the daemon.
func (c *call) ack(offset int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ring.ack(min(offset, c.most))
}

// work runs f, which is the tool's, and keeps how it ended.
func (c *call) work(f func(ctx context.Context) (any, error)) {
	ctx := c.ctx
	if c.req.TimeoutMillis > 0 {
		var cancel context.CancelFunc
		ctx, cancel = c.clock.WithTimeout(ctx, time.Duration(c.req.TimeoutMillis)*time.Millisecond)
		defer cancel()
	}
	v, err := shielded(ctx, f)
	var payload []byte
	if err == nil {
		payload, err = wire.Marshal(v)
	}
	if err == nil && len(payload) > wire.MaxBody {
		err = run.Errorf(run.CodeInternal, "the result of %s is %d bytes; the limit is %d", c.req.Tool, len(payload), wire.MaxBody)
	}
	c.finish(ctx, payload, err)
	c.serveNow()
}

// finish keeps how the call ended.
func (c *call) finish(ctx context.Context, payload []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		payload = nil
		c.final.Err, c.final.NotRun = asError(ctx, c.req.Tool, err), false
	}
	c.final.Exit = c.exit
	if c.held != nil {
		c.held.Shrink(int64(len(payload)))
	}
	c.payload, c.finished, c.ring.ended = payload, true, true
	c.in.data, c.in.want = nil, c.in.told
	// What the call was asked with is of no use any more, and may be large.
	c.req = wire.Request{CallID: c.req.CallID, Tool: c.req.Tool, MaxOutput: c.req.MaxOutput}
	c.cancel(exec.ErrEnded)
	c.ring.cond.Broadcast()
}

// shielded turns a panic of a tool into an error: one bad input must not end
// the session.
func shielded(ctx context.Context, f func(context.Context) (any, error)) (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			v, err = nil, fmt.Errorf("panic: %v at %s", p, panicPlace())
		}
	}()
	return f(ctx)
}

// panicPlace is the first line of the stack that is not the runtime's.
func panicPlace() string {
	lines := strings.Split(string(debug.Stack()), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "panic(") && i+3 < len(lines) {
			return strings.TrimSpace(lines[i+3])
		}
	}
	return "an unknown place"
}

// asError gives every failure one of the codes of the sandbox side.
func asError(ctx context.Context, tool string, err error) *run.Error {
	if known, ok := errors.AsType[*run.Error](err); ok {
		return &run.Error{Code: known.Code, Message: wire.Cut(known.Message), Hint: wire.Cut(known.Hint)}
	}
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return run.Errorf(run.CodeAborted, "%s was stopped before it was done: %s", tool, exec.ReasonOf(ctx).Words())
	}
	return run.Errorf(run.CodeInternal, "%s: %s", tool, wire.Cut(err.Error()))
}

// keep is Env.Keep.
func (c *call) keep(v *root.Reservation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = v
}

// notRun says that the call's result is what was prepared.
func (c *call) notRun() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.final.NotRun = true
}

// hasNotRun reports whether the call has ended as notRun says.
func (c *call) hasNotRun() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.finished && c.final.NotRun
}

// isUnwanted reports whether nobody will ask how the call has ended.
func (c *call) isUnwanted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unwanted
}

// progress is Env.Progress: the last update counts.
func (c *call) progress(m map[string]any) {
	b, err := wire.EncodeUpdate(m)
	if err != nil {
		return // it is only for show; the result says the same
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished {
		return
	}
	c.meta = b
	c.stir(c.at)
}

// exited keeps how a program of the call ended; bills add up.
func (c *call) exited(e *run.Exit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := *e
	if p := c.exit; p != nil {
		sum.DurationMillis += p.DurationMillis
		sum.CPUMillis += p.CPUMillis
		sum.IOBytes += p.IOBytes
		sum.MaxMemoryBytes = max(sum.MaxMemoryBytes, p.MaxMemoryBytes)
		sum.BackgroundKilled += p.BackgroundKilled
		sum.BackgroundNames = slices.Concat(p.BackgroundNames, sum.BackgroundNames)
		sum.BackgroundNames = sum.BackgroundNames[:min(len(sum.BackgroundNames), run.MaxBackgroundNames)]
		sum.Locks = slices.Concat(p.Locks, sum.Locks)
		sum.Locks = sum.Locks[:min(len(sum.Locks), run.MaxLocks)]
	}
	c.exit = &sum
}

// stream is the call's output as a writer: one for stdout and, when the call
// keeps them apart, one for stderr.
type stream struct {
	c      *call
	stderr bool
}

// Write waits while the daemon does not keep up. It is for tools that write by
// themselves, and gives up when the call is ended.
func (s *stream) Write(p []byte) (n int, err error) {
	for n < len(p) {
		m, err := s.put(func(place []byte) (int, error) { return copy(place, p[n:]), nil }, s.c.ctx.Err)
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

var _ exec.PipeTaker = (*stream)(nil)

// TakePipe moves what is in a pipe straight into the ring. It waits for room
// also when the call is ended: what was written before then belongs to it.
func (s *stream) TakePipe(fd int) (int, error) {
	return s.put(func(place []byte) (int, error) { return exec.ReadPipe(fd, place) }, func() error { return nil })
}

// put lets fill write into the ring. Bytes past MaxOutput end the call and are
// dropped.
func (s *stream) put(fill func(place []byte) (int, error), gaveUp func() error) (int, error) {
	c := s.c
	c.turn.Lock()
	defer c.turn.Unlock()
	c.mu.Lock()
	most := c.req.MaxOutput
	if most > 0 && c.ring.end >= most {
		if c.scratch == nil {
			c.scratch = make([]byte, 32<<10)
		}
		c.mu.Unlock()
		n, err := fill(c.scratch)
		if n > 0 {
			c.cancel(&exec.EndedError{Reason: run.ReasonOutputLimit})
		}
		return n, err
	}
	place, err := c.ring.room(gaveUp)
	if most > 0 && err == nil {
		place = place[:min(int64(len(place)), most-c.ring.end)]
	}
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	n, err := fill(place)
	if n > 0 {
		c.mu.Lock()
		c.ring.commit(n, s.stderr)
		c.stir(c.at)
		c.mu.Unlock()
	}
	return n, err
}
