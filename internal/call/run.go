package call

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/environ"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// prepare does step 5, for calls whose paths must be resolved.
func (st *steps) prepare(c *Call, inv *tool.Invocation, a tool.Access) (*run.Prepared, error) {
	return c.runner.Prepare(c.ctx, PrepareRequest(st.request(c, inv, nil), inv, a))
}

// request is what the agent is asked.
func (st *steps) request(c *Call, inv *tool.Invocation, prep *run.Prepared) agent.Request {
	most := int64(st.limits.Output)
	if c.pipe != nil {
		most = c.pipe.Most
	}
	return agent.Request{
		CallID: c.id, Tool: inv.Tool.Name, Input: inv.JSON, Typed: inv.Input,
		Settings: st.toolSettings(c, inv.Tool),
		Env:      environ.List(c.req.Env), TimeoutMillis: c.timeout.Milliseconds(),
		MaxOutput: most, Prepared: prep, Split: c.stream.Split,
	}
}

// toolSettings are what the tool's half in the sandbox has to know: its part of the
// configuration, and which files it must not show that the call does not name: their content where
// it would show that, and else their names, which answers about a path that is not there may tell.
func (st *steps) toolSettings(c *Call, d *tool.Definition) json.RawMessage {
	if d.Changes {
		return st.judge.Rules(c.profile).WrittenBy(st.place.Row().Worktree.Target)
	}
	rules, names := st.judge.Rules(c.profile).ShownTo(st.place.Row().Worktree.Target)
	if d.Shows != tool.ShowsContent {
		rules = names
	}
	if most := c.passes(); most > 0 && d.Paged {
		rules = joined(rules, fmt.Appendf(nil, `{"page_bytes":%d}`, most))
	}
	return joined(st.daemon.Settings().ToolSettings[d.Name], rules)
}

// joined are the fields of two objects, which have no name in common. Either may be nil.
func joined(a, b json.RawMessage) json.RawMessage {
	if len(a) <= len("{}") {
		return b
	}
	if len(b) <= len("{}") {
		return a
	}
	return slices.Concat(a[:len(a)-1], []byte{','}, b[1:])
}

// provided gives what Prepare would see of a call without links, nil where that
// cannot be said.
func (st *steps) provided(c *Call, inv *tool.Invocation, a tool.Access) *run.Prepared {
	if !a.Prepare || c.asked != nil {
		return nil
	}
	return provided(st.place.Row().Worktree.Target, inv, a)
}

// admit does step 8: it waits for a slot of the session and stores the call as
// running. leave gives the slot back.
func (st *steps) admit(c *Call) error {
	var err error
	if c.of == nil && !c.def.NoSlot {
		err = st.slots.take(c.ctx, &c.seat, c.flush)
	}
	if err == nil {
		// One of them may have ended at the same time. That of the session ends before those of
		// its calls, one of which may have left its slot by then.
		err = cmp.Or(context.Cause(st.ctx), context.Cause(c.ctx))
	}
	if err == nil {
		err = c.start()
	}
	if err != nil {
		st.slots.leave(&c.seat)
	}
	return err
}

// run runs the tool.
func (st *steps) run(c *Call, j *judge.Judgement) (*agent.Outcome, error) {
	c.watch.start(c, c.timeout)
	defer c.watch.stop()
	if lay := c.lay; lay != nil {
		c.lay = nil
		if err := lay(); err != nil {
			return nil, err
		}
	}
	r := st.request(c, j.Inv, j.Prep)
	if c.pipe != nil {
		r.Body = c.pipe.Body
	}
	if j.Inv.Tool.Command {
		r.Unseen = st.judge.Unseen(j)
	}
	if j.Prep != nil && !j.Inv.Tool.Piped && c.of == nil { // those say themselves what they have changed
		for _, t := range j.Prep.Targets {
			if t.Write {
				c.writes = append(c.writes, t.Path)
			}
		}
	}
	if j.Provided || !c.bound && len(c.writes) > 0 {
		r = askProvided(r, j.Inv, j.Access, j.Prep)
	}
	if c.stream.Split {
		c.out.Begin()
	}
	return c.runner.Run(c.ctx, r, sink{c})
}

// sink takes what the running call sends.
type sink struct{ c *Call }

// Output implements agent.Sink. Bytes that are in the file are acknowledged; others
// stay with the agent until the call's end is in the store.
func (k sink) Output(offset int64, stderr bool, p []byte) error {
	c := k.c
	if at := c.offset(); offset != at {
		return fmt.Errorf("output of call %s goes on at %d, not at %d", c.id, offset, at)
	}
	if c.pipe != nil {
		c.pass(p)
		return nil
	}
	if safe := c.out.Write(p, stderr); safe >= 0 {
		c.ack(safe)
	}
	c.stream.Output(offset, stderr, p)
	return nil
}

// Offset implements agent.Follower.
func (k sink) Offset() int64 { return k.c.offset() }

// Safe implements agent.Follower.
func (k sink) Safe() int64 {
	if k.c.pipe != nil {
		return k.c.passed.Load()
	}
	return k.c.out.Safe()
}

// Metadata implements agent.Sink.
func (k sink) Metadata(m map[string]any) {
	c := k.c
	m = asObject(m)
	c.update(func(row *store.Call) { row.Metadata = m })
	c.stream.Tell("metadata", m)
	c.at.daemon.Hub.Publish([]client.Event{c.bare(client.EventCallMetadata, m)})
}

// notThere takes back that a call runs, whose paths lead elsewhere than they say:
// the agent has done nothing, and may forget it. It is no loss if that does not
// arrive: a call that has not run may be run.
func (st *steps) notThere(c *Call) error {
	if err := st.daemon.Store.Write(func(tx *store.Tx) error { return tx.RequeueCall(c.id) }); err != nil {
		return err
	}
	c.mu.Lock()
	c.row.Status, c.row.Time.Started = client.CallPending, nil
	c.started = false
	if c.abortBy != "" {
		c.cancel(notBegun(c.abortBy))
	}
	c.mu.Unlock()
	c.writes = nil
	if c.durable != nil {
		c.durable.Forget(c.id)
	}
	return nil
}
