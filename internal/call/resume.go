package call

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// askedOf finds the approvals that calls of an earlier daemon waited for, by
// their calls.
func (g *Group) askedOf(ctx context.Context) (map[string]*store.Approval, error) {
	rows, err := g.daemon.Store.OpenApprovals(ctx, g.id)
	if err != nil {
		return nil, fmt.Errorf("read approvals: %w", err)
	}
	asked := make(map[string]*store.Approval, len(rows))
	for _, row := range rows {
		asked[row.CallID] = row
	}
	return asked, nil
}

// waitOn goes on with a call that waited for its approval when an earlier daemon
// ended, and reports whether it can. It cannot where a part of the call is gone:
// the values of its environment are not stored, and what is uploaded or downloaded
// ends with the request for it.
func (g *Group) waitOn(c *Call, inv *tool.Invocation, asked *store.Approval) bool {
	if len(asked.Env) > 0 || asked.Hidden || inv == nil || inv.Tool.Hidden {
		return false
	}
	c.req = client.CallCreate{Key: c.row.Key, TimeoutMillis: asked.TimeoutMillis}
	c.allowance = g.allow(&c.req, inv)
	c.asked, c.profile = asked, asked.Profile
	c.by = auth.Principal{UID: asked.UID, GID: asked.GID, PID: asked.PID, Tenant: asked.Tenant, Session: asked.Token}
	if asked.Split {
		c.stream.Split = true
		c.isOf(inv.Tool)
	}
	g.slots.reenter(&c.seat)
	return g.work.Go("call "+c.id, func() {
		c.seen = g.place.Attend()
		defer g.left(c)
		g.proceed(c, inv)
	})
}

// Count counts the calls that there were under earlier daemons.
func (g *Group) Count(ctx context.Context) error {
	n, err := g.daemon.Store.CountCalls(ctx, g.id)
	g.slots.total.Store(n)
	g.spending.claimed.Store(n)
	return err
}

// TakeUp goes on with the calls of an earlier daemon; known are those that the agent
// holds. Its error is one of the store.
func (g *Group) TakeUp(ctx context.Context, known []agent.CallState) error {
	g.spending.printed.Store(g.Spilled.Load()) // what is kept is all that is known
	states := make(map[string]agent.CallState, len(known))
	for _, c := range known {
		states[c.ID] = c
	}
	asked, err := g.askedOf(ctx)
	if err != nil {
		return err
	}
	return g.eachCall(ctx, func(r *store.Call) { g.takeUp(r, states, asked[r.ID]) })
}

// Bury ends the calls of an earlier daemon whose session cannot go on. Its error is one of
// the store.
func (g *Group) Bury(ctx context.Context) error {
	return g.eachCall(ctx, func(r *store.Call) {
		c, _ := g.restore(r)
		// Also of one that is stored as pending: whether it was sent, only the agent knew.
		tail{&g.steps, c}.finish(g.lostOutcome())
	})
}

// ForgetUnknown drops calls that a runner holds and nobody waits for: they are
// finished in the store, or were never ours.
func (g *Group) ForgetUnknown(by Durable, held []agent.CallState) {
	for _, c := range held {
		if _, ok := g.live.find(c.ID); ok {
			continue
		}
		if !c.Finished {
			by.Abort(c.ID, run.ReasonAborted)
		}
		by.Forget(c.ID)
	}
}

// callsAtOnce bounds how many calls of a session are taken up at a time: each
// may have an output to read again.
const callsAtOnce = 4

// eachCall takes up the calls of an earlier daemon.
func (g *Group) eachCall(ctx context.Context, takeUp func(*store.Call)) error {
	rows, err := g.daemon.Store.OpenCalls(ctx, g.id)
	if err != nil {
		return err
	}
	var all errgroup.Group
	all.SetLimit(callsAtOnce)
	for _, r := range rows {
		all.Go(func() error { takeUp(r); return nil })
	}
	return all.Wait()
}

// takeUp goes on with a call of an earlier daemon. If it waited for its approval, which is
// asked, it goes on to wait. Any other that the agent holds was sent, also where the store has
// it as pending, because the end of the journal is lost; it is never sent again. One that the
// agent does not hold was never sent if it is stored as pending.
func (g *Group) takeUp(r *store.Call, known map[string]agent.CallState, asked *store.Approval) {
	state, ok := known[r.ID]
	if ok && asked == nil && r.Status == client.CallPending {
		g.sentAfterAll(r)
	}
	c, inv := g.restore(r)
	if r.Status == client.CallPending {
		if asked != nil && inv == nil {
			tail{&g.steps, c}.finish(fitsNoMore())
		} else if asked == nil || !g.waitOn(c, inv, asked) {
			tail{&g.steps, c}.finish(neverSent())
		}
		return
	}
	if c.durable == nil {
		tail{&g.steps, c}.finish(endedWithDaemon())
		return
	}
	if !ok {
		tail{&g.steps, c}.finish(g.ended(c, nil, agent.ErrUnknownCall))
		return
	}
	g.entitleAgain(c, inv)
	g.slots.reenter(&c.seat)
	g.work.Go("call "+c.id, func() { g.goOn(c, inv, state) })
}

// sentAfterAll stores a pending call as running. When it began is not on record any more; it
// was not before it came.
func (g *Group) sentAfterAll(r *store.Call) {
	r.Status, r.Time.Started = client.CallRunning, new(r.Time.Queued)
	g.log.Warn("a call is on record as pending, and its agent has it: the end of the journal is lost", "call", r.ID)
	e := &store.Entry{}
	e.StartCall(r.ID, r.Time.Queued)
	if err := g.daemon.Store.Append(e); err != nil {
		g.log.Error("store that a call runs", "call", r.ID, "error", err) // its end says so too
	}
}

// restore makes a call from its row. Without an invocation it is of a tool that there is
// no more.
func (g *Group) restore(r *store.Call) (*Call, *tool.Invocation) {
	c := newCall(g.site, client.CallCreate{Key: r.Key}, false, false)
	c.cancel(nil)
	c.id, c.row, c.started = r.ID, *r, r.Status == client.CallRunning
	c.row.Metadata = asObject(c.row.Metadata)
	c.ctx, c.cancel = context.WithCancelCause(g.ctx)
	def, ok := g.daemon.Tools.Get(r.Tool)
	if !ok {
		def = &tool.Definition{Name: r.Tool, Truncate: output.Head}
	}
	inv, err := g.daemon.Tools.ParseHidden(r.Tool, r.Input)
	if err != nil {
		inv = nil
	} else { // what it was given, only the agent knows
		a := g.allow(&c.req, inv)
		c.wanted, c.clipped = a.wanted, a.clipped
	}
	c.stream.Split = output.IsSplit(filepath.Join(g.outDir, c.id))
	c.isOf(def)
	if err := c.out.Restore(); err != nil {
		g.log.Error("take up the output of a call", "call", c.id, "error", err)
	}
	c.stream.Restore(c.out.Streams())
	close(c.known)
	g.live.add(c)
	return c, inv
}

// goOn is do from where an earlier daemon was: the call runs, or has
// ended, in the sandbox.
func (g *Group) goOn(c *Call, inv *tool.Invocation, state agent.CallState) {
	c.seen = g.place.Attend()
	defer g.left(c)
	g.slots.retake(&c.seat)
	c.out.SkipTo(state.Base)
	if inv != nil && inv.Tool.Piped { // and its client is gone
		c.abort(run.ReasonAborted)
	}
	out, err := c.durable.Resume(c.ctx, c.id, sink{c}) // see takeUp
	if errors.Is(err, ErrLeaving) {
		return
	}
	c.writes = g.written(c, inv, out)
	g.complete(c, out, err)
}

// written are the files that a call of an earlier daemon has changed. Where its paths
// led is not on record. It ran because the rules allowed them as they stand, or it says
// itself which file it was.
func (g *Group) written(c *Call, inv *tool.Invocation, out *agent.Outcome) []string {
	if inv == nil || inv.Tool.Piped {
		return nil
	}
	var all []string
	if prep := g.provided(c, inv, inv.Input.Access(g.reader(c.req.Env))); prep != nil {
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

// entitleAgain is entitle for a call that an earlier daemon has judged.
func (g *Group) entitleAgain(c *Call, inv *tool.Invocation) {
	if inv == nil {
		return
	}
	a := inv.Input.Access(g.reader(c.req.Env))
	c.update(func(row *store.Call) {
		row.Title = g.titleOf(&judge.Judgement{Question: judge.Question{Access: a, Prep: g.provided(c, inv, a)}})
	})
}
