package session

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// adoptAtOnce bounds how many sessions are taken over at a time.
const adoptAtOnce = 16

// recover takes over what an earlier daemon left: it adopts the sessions whose
// sandbox is alive and goes on with their calls, ends the others, and removes
// what is nobody's.
func (m *Manager) recover(ctx context.Context) error {
	if err := m.countRecords(ctx); err != nil {
		return err
	}
	held, err := m.leases.Restore(ctx)
	if err != nil {
		return err
	}
	rows, err := m.store.Sessions(ctx, store.SessionFilter{Live: true})
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(adoptAtOnce)
	for _, row := range rows {
		g.Go(func() error {
			if err := m.adopt(ctx, *row); err != nil {
				return fmt.Errorf("session %s: %w", row.ID, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	garbage, err := m.collect(ctx, false)
	if err != nil {
		m.log.Error("look for leftovers", "error", err)
	}
	for _, x := range garbage {
		m.log.Warn("removed a leftover", "kind", x.Kind, "name", x.Name, "removed", x.Removed, "error", x.Error)
	}
	m.dropDeadLeases(held)
	return nil
}

// adopt takes over one session, or ends it. Its error is one of the store: the
// daemon cannot go on without it.
func (m *Manager) adopt(ctx context.Context, row store.Session) error {
	d, err := m.driver(row.Driver)
	if err != nil {
		return err // a session that cannot be reached must not be forgotten
	}
	s := newSession(m, row, d)
	m.adopted(s)
	calls, err := m.store.OpenCalls(ctx, s.id)
	if err != nil {
		return err
	}
	n, err := m.store.CountCalls(ctx, s.id)
	if err != nil {
		return err
	}
	s.calls.Store(n)
	w, err := s.takeOver(ctx)
	if err != nil {
		return s.bury(ctx, calls, err.Error())
	}
	s.killed() // what was counted before is not held against later calls
	known := make(map[string]agent.CallState, len(w.Calls))
	for _, c := range w.Calls {
		known[c.ID] = c
	}
	asked, err := s.askedOf(ctx)
	if err != nil {
		return err
	}
	if err := s.eachCall(calls, func(r *store.Call) { s.takeUp(r, known, asked[r.ID]) }); err != nil {
		return err
	}
	s.forgetUnknown(w)
	m.work.Go(s.supervise)
	return nil
}

// adopted puts a session of an earlier daemon into the tables; quotas do not
// apply to what exists.
func (m *Manager) adopted(s *Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions[s.id] = s
	m.nameLocked(s)
	s.tenant.sessions++
	m.observe(func(o Observer) { o.SessionState(&s.row.Session, "") })
}

// takeOver adopts the parts and connects to the agent. Its error is why the session cannot
// go on.
func (s *Session) takeOver(ctx context.Context) (*agent.Welcome, error) {
	for _, part := range s.m.parts {
		if err := part.adopt(ctx, s); err != nil {
			return nil, err
		}
	}
	w, err := s.reach(ctx, min(s.patience(), adoptTime))
	if err != nil {
		return nil, fmt.Errorf("its agent does not answer: %w", err)
	}
	return w, nil
}

// bury ends a session that cannot go on, with its calls.
func (s *Session) bury(ctx context.Context, calls []*store.Call, why string) error {
	e := ending{state: client.SessionLost, reason: why, force: true, keep: true}
	if s.row.State == client.SessionEnding {
		e.state, e.keep = client.SessionEnded, s.row.Keep
	}
	s.mu.Lock()
	s.row.Reason, s.fate = why, e.state
	s.mu.Unlock()
	err := s.eachCall(calls, func(r *store.Call) {
		c, _ := s.restore(r)
		o := s.lostOutcome()
		if r.Status == client.CallPending {
			o = neverSent()
		}
		s.finish(c, o)
	})
	return errors.Join(err, s.end(ctx, e))
}

// callsAtOnce bounds how many calls of a session are taken up at a time: each
// may have an output to read again.
const callsAtOnce = 4

// eachCall takes up the calls of an earlier daemon.
func (s *Session) eachCall(calls []*store.Call, takeUp func(*store.Call)) error {
	var g errgroup.Group
	g.SetLimit(callsAtOnce)
	for _, r := range calls {
		g.Go(func() error { takeUp(r); return nil })
	}
	return g.Wait()
}

// takeUp goes on with a call of an earlier daemon. A call that was stored as
// pending was never sent; if it waited for its approval, which is asked, it goes
// on to wait. One that was stored as running may have been: the agent knows, and
// it is never sent again.
func (s *Session) takeUp(r *store.Call, known map[string]agent.CallState, asked *store.Approval) {
	c, inv := s.restore(r)
	if r.Status == client.CallPending {
		if asked == nil || !s.waitOn(c, inv, asked) {
			s.finish(c, neverSent())
		}
		return
	}
	state, ok := known[r.ID]
	if !ok {
		s.finish(c, s.ended(c, nil, agent.ErrUnknownCall))
		return
	}
	s.entitleAgain(c, inv)
	s.open.Add(1)
	s.tenant.calls.Add(1)
	c.counted = true
	s.work.Go(func() { s.goOn(c, inv, state) })
}

func neverSent() *outcome {
	o := failed(client.CodeAborted, "the daemon stopped before the call ran")
	o.err.Hint, o.reason = "make it again", run.ReasonAborted
	return o
}

// restore makes a call from its row. Without an invocation it is of a tool that there is
// no more.
func (s *Session) restore(r *store.Call) (*call, *tool.Invocation) {
	c := s.newCall(client.CallCreate{Key: r.Key}, false, false)
	c.cancel(nil)
	c.id, c.row, c.started = r.ID, *r, r.Status == client.CallRunning
	c.row.Metadata = asObject(c.row.Metadata)
	c.profile = s.profile()
	c.ctx, c.cancel = context.WithCancelCause(s.ctx)
	def, ok := s.m.tools.Get(r.Tool)
	if !ok {
		def = &tool.Definition{Name: r.Tool, Truncate: output.Head}
	}
	inv, err := s.m.tools.ParseHidden(r.Tool, r.Input)
	if err != nil {
		inv = nil
	} else if in, ok := inv.Input.(tool.Timed); ok {
		c.wanted = in.Timeout()
	}
	c.streams, c.paged, c.leavesOut = def.Streams, def.Paged, def.Shows != tool.ShowsNone
	c.stream.Split = output.IsSplit(filepath.Join(s.outDir, c.id))
	c.out = s.outputOf(c.id, def, c.stream.Split)
	if err := c.out.Restore(); err != nil {
		s.log.Error("take up the output of a call", "call", c.id, "error", err)
	}
	c.stream.Restore(c.out.Streams())
	close(c.known)
	s.m.calls.Store(c.id, c)
	return c, inv
}

// goOn is Session.Call from where an earlier daemon was: the call runs, or has
// ended, in the sandbox.
func (s *Session) goOn(c *call, inv *tool.Invocation, state agent.CallState) {
	s.attend()
	defer s.left(c)
	s.slots <- struct{}{}
	c.slot = true
	c.out.SkipTo(state.OutputBase)
	out, err := s.agent.Resume(c.ctx, c.id, sink{c})
	if errors.Is(err, errLeaving) {
		return
	}
	c.writes = s.written(c, inv, out)
	s.complete(c, out, err)
}

// written are the files that a call of an earlier daemon has changed. Where its paths
// led is not on record. It ran because the rules allowed them as they stand, or it says
// itself which file it was.
func (s *Session) written(c *call, inv *tool.Invocation, out *agent.Outcome) []string {
	if inv == nil {
		return nil
	}
	var all []string
	if prep := s.provided(c, inv, inv.Input.Access(s.shell())); prep != nil {
		for _, t := range prep.Targets {
			if t.Write {
				all = append(all, t.Path)
			}
		}
	}
	if out != nil && out.Result != nil && len(all) == 1 {
		if file, ok := out.Result.Metadata["path"].(string); ok && path.IsAbs(file) {
			all[0] = path.Clean(file)
		}
	}
	return all
}
