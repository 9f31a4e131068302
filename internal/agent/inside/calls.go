package inside

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/tool/run/root"
	"github.com/toold/toold/internal/wire"
)

func (s *Server) call(id string) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[id]
}

func (s *Server) forget(id string) {
	if held := s.remove(id); held != nil {
		held.Release() // it may take its time to give memory back
	}
}

// remove takes a call that has ended off the list, and gives the memory that
// its result holds. One that has not ended goes at its end.
func (s *Server) remove(id string) *root.Reservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calls[id]
	if c == nil {
		return nil
	}
	c.mu.Lock()
	finished, held := c.finished, c.held
	c.unwanted = !finished
	c.mu.Unlock()
	if finished {
		delete(s.calls, id)
	}
	s.settle()
	if !finished {
		return nil
	}
	return held
}

// settle gives memory back to the system some time after the last call.
func (s *Server) settle() {
	if len(s.calls) > 0 {
		return
	}
	if s.idle == nil {
		s.idle = time.AfterFunc(idleTime, releaseMemory)
		return
	}
	s.idle.Reset(idleTime)
}

// admit counts a request that is to be worked on. The caller holds mu.
func (s *Server) admit(size int64) *run.Error {
	if s.asked+size > maxAsked {
		return run.Errorf(run.CodeSandboxFailed,
			"the agent works on calls of %d bytes together; with %d more that is over its limit of %d: wait until some have ended", s.asked, size, maxAsked)
	}
	s.asked += size
	return nil
}

// dismiss is the end of what admit began.
func (s *Server) dismiss(size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked -= size
}

// prepare gives the work of a Prepare.
func (s *Server) prepare(p *peer, h wire.Head, r wire.Request) (work func(), err error) {
	size := r.Size()
	s.mu.Lock()
	full := s.admit(size)
	s.mu.Unlock()
	if full != nil {
		return nil, p.refuse(h.ID, wire.Done{Err: full})
	}
	c := newCall(s.ctx, r, leastUnacked)
	t, ok := s.tools[r.Tool]
	s.attach(p, &attached{call: c, a: &attachment{peer: p, id: h.ID}, prepare: true})
	return s.begin(t, func() {
		s.work(c, t, size, func(ctx context.Context) (any, error) {
			if !ok {
				return nil, run.NoTool(r.Tool)
			}
			prep, err := preparedOf(t.Prepare(ctx, s.env(c), r.Input))
			if err != nil {
				return nil, err
			}
			return wire.SealPrepared(prep), nil
		})
	}), nil
}

// begin starts work, or gives it back where whoever has read the request is to do
// it: work on files. All else gets a goroutine of its own.
func (s *Server) begin(t run.Tool, work func()) func() {
	if _, ok := t.(run.FileTool); ok {
		return work
	}
	s.wg.Go(work)
	return nil
}

// run starts a call, unless it is held already: a call never runs twice. One that
// was held to have not run may be: that the daemon forgets it may have been lost
// with a connection.
func (s *Server) run(p *peer, h wire.Head, r wire.Request) (work func(), err error) {
	if r.CallID == "" || len(r.CallID) > wire.MaxCallID {
		return nil, errors.New("bad call id")
	}
	if c := s.call(r.CallID); c != nil && c.hasNotRun() {
		s.forget(r.CallID)
	}
	t, ok := s.tools[r.Tool]
	s.mu.Lock()
	if s.peer != p {
		s.mu.Unlock()
		return nil, errors.New("not the newest connection")
	}
	if s.calls[r.CallID] != nil {
		s.mu.Unlock()
		return nil, p.refuse(h.ID, wire.Done{Refused: wire.RefusedDuplicate})
	}
	if len(s.calls) >= maxCalls {
		s.mu.Unlock()
		return nil, p.refuse(h.ID, wire.Done{Err: run.Errorf(run.CodeSandboxFailed, "the agent holds %d calls, which is its limit; forget finished ones", maxCalls)})
	}
	size := r.Size()
	if err := s.admit(size); err != nil {
		s.mu.Unlock()
		return nil, p.refuse(h.ID, wire.Done{Err: err})
	}
	c := newCall(s.ctx, r, s.session.hello.UnackedBytes)
	s.calls[r.CallID] = c
	// Under mu: a connection that comes next may resume the call from now on, and
	// this one must not take it back.
	c.in.from = &attachment{peer: p, id: h.ID, limit: h.N}
	s.attach(p, &attached{call: c, a: c.in.from})
	s.mu.Unlock()
	return s.begin(t, func() {
		s.work(c, t, size, func(ctx context.Context) (any, error) {
			if !ok {
				return nil, run.NoTool(r.Tool)
			}
			if err := wire.CheckEnv(r.Env); err != nil {
				return nil, err
			}
			return s.runTool(ctx, t, c)
		})
		if c.isUnwanted() {
			s.forget(c.req.CallID)
		}
		s.bound(c)
		s.session.programs.Rest()
	}), nil
}

// work does the work of a call, and lets go of the size that it was admitted with.
// A tool that works on files alone does all of it, to the answer, on one thread
// with the tool user's ids: each change of threads costs about as much as a file.
func (s *Server) work(c *call, t run.Tool, size int64, f func(context.Context) (any, error)) {
	do := func(ctx context.Context) (any, error) {
		defer s.dismiss(size)
		return f(ctx)
	}
	if _, ok := t.(run.FileTool); !ok {
		c.work(do)
		return
	}
	ctx := c.ctx
	if c.req.TimeoutMillis > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.req.TimeoutMillis)*time.Millisecond)
		defer cancel()
	}
	if err := s.session.root.Lend(ctx, func() { c.work(do) }); err != nil {
		f = func(context.Context) (any, error) { return nil, err }
		c.work(do)
	}
}

// runTool runs t.
func (s *Server) runTool(ctx context.Context, t run.Tool, c *call) (any, error) {
	r, env := &c.req, s.env(c)
	if _, ok := t.(run.WriteTool); ok {
		s.session.watch.Mark(ctx, env)
	}
	prep := r.Prepared
	if err := wire.OpenPrepared(prep); err != nil {
		return nil, err
	}
	if r.Expect != nil {
		if prep != nil {
			return nil, run.Errorf(run.CodeInternal, "call %s was prepared and is to be prepared", r.CallID)
		}
		return runExpected(ctx, t, env, c)
	}
	res, err := t.Run(ctx, env, r.Input, prep)
	if err != nil {
		return nil, err
	}
	return wire.SealResult(res), nil
}

// maxRuns is how often a direct tool is run whose file something else changes under
// it: no tool of the session, as those wait for each other.
const maxRuns = 5

// runExpected runs t if the targets of the call lead where the daemon expects them,
// which has judged the call on that condition. Nothing else that Prepare sees is a
// condition, so a direct tool has only its targets resolved.
func runExpected(ctx context.Context, t run.Tool, env *run.Env, c *call) (any, error) {
	input, resolve := c.req.Input, t.Prepare
	d, direct := t.(run.Direct)
	if direct {
		resolve = d.Resolve
	}
	for try := 1; ; try++ {
		prep, err := preparedOf(resolve(ctx, env, input))
		if err != nil {
			return nil, err
		}
		if !leadsTo(prep, c.req.Expect) {
			if direct { // it may be shown to a person now
				prep, err = preparedOf(t.Prepare(ctx, env, input))
			}
			if err != nil {
				return nil, err
			}
			c.notRun()
			return wire.SealPrepared(prep), nil
		}
		if prep.Result != nil {
			return wire.SealResult(prep.Result), nil
		}
		res, err := t.Run(ctx, env, input, prep)
		switch {
		case err == nil:
			return wire.SealResult(res), nil
		case !direct || !isStale(err) || try == maxRuns:
			return nil, err
		}
	}
}

func isStale(err error) bool {
	known, ok := errors.AsType[*run.Error](err)
	return ok && known.Code == run.CodeStale
}

// preparedOf is what a Prepare has answered, with an answer always.
func preparedOf(prep *run.Prepared, err error) (*run.Prepared, error) {
	if err == nil && prep == nil {
		prep = &run.Prepared{}
	}
	return prep, err
}

// leadsTo reports whether the targets of p are exactly the paths of expect.
func leadsTo(p *run.Prepared, expect []string) bool {
	return slices.EqualFunc(p.Targets, expect, func(t run.Target, path string) bool { return t.Path == path })
}

// bound drops the result of c when too much is held already: a daemon that does
// not forget may not fill the memory.
func (s *Server) bound(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := 0
	for _, o := range s.calls {
		o.mu.Lock()
		held += len(o.payload)
		o.mu.Unlock()
	}
	if held <= maxHeld {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at != nil && !c.at.gone {
		return // it is on its way
	}
	c.final.NotRun = false
	c.final.Err = run.Errorf(run.CodeInternal, "the result of %d bytes is lost: the agent holds %d bytes of results that nobody took", len(c.payload), held-len(c.payload))
	c.payload = nil
	if c.held != nil {
		c.held.Release()
	}
}

func (s *Server) resume(p *peer, h wire.Head, r wire.Resume) error {
	refused, err := s.reattach(p, h, r)
	if err == nil && refused != 0 {
		err = p.refuse(h.ID, wire.Done{Refused: refused})
	}
	return err
}

// reattach begins to send a call to p, unless p is not the newest connection any
// more: what it has said late must not take the call from the one that has it.
func (s *Server) reattach(p *peer, h wire.Head, r wire.Resume) (wire.Refusal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peer != p {
		return 0, errors.New("not the newest connection")
	}
	c := s.calls[r.CallID]
	if c == nil {
		return wire.RefusedUnknown, nil
	}
	c.mu.Lock()
	gone := r.Offset < c.ring.base || r.Offset > c.ring.end
	c.mu.Unlock()
	if gone {
		return wire.RefusedOffset, nil
	}
	s.attach(p, &attached{call: c, a: &attachment{peer: p, id: h.ID, sent: r.Offset, limit: h.N}})
	return 0, nil
}
