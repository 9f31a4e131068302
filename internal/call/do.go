package call

import (
	"encoding/json"
	"errors"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// do is the one path of a tool call. It runs in a goroutine of the call's own,
// so that the call outlives whoever asked for it. Each step trusts only those
// above it; an error before "run" means that the tool did not run.
func (g *Group) do(c *Call) {
	g.place.Attend()
	defer g.left(c)

	// 1. Parse: strict JSON to the typed, normalised input that is judged,
	// hashed, stored and run. From here on nobody looks at the request's bytes. An
	// input that fits no tool is a call as well, which does not run.
	inv, err := g.parse(c)
	if err != nil {
		c.refuse(err)
		return
	}

	// 2. Store: the call exists on disk as pending. A key that was used before
	// leads to that call instead.
	if err := g.record(c, inv); err != nil {
		c.refuse(err)
		return
	}
	if c.malformed != nil {
		g.tail(c).refuse(g.refuseInput(c, inv))
		return
	}
	g.proceed(c, inv)
}

// proceed is do from where the call has a record. Here a call is taken up again
// that waited for its approval when an earlier daemon ended.
func (g *Group) proceed(c *Call, inv *tool.Invocation) {
	var seen *run.Prepared // by a run that found that its paths lead elsewhere
	for round := 0; ; round++ {
		// 3. Loop guard: does it repeat what the session has done before?
		loop, err := g.guard(c, inv)
		if err != nil {
			g.tail(c).refuse(err)
			return
		}

		// 4. Access: what does it name? Pure.
		access := inv.Input.Access(g.shell())

		// 5. Prepare: inside the sandbox and without effect, resolve what it
		// names; 6. Judge: allow, deny, or wait until somebody has approved it.
		j, err := g.consider(c, inv, access, loop, seen)
		if err == nil {
			c.entitle(g.titleOf(j))
			err = g.asking(c).permit(j)
		}
		if errors.Is(err, errWaits) {
			return // the next daemon takes it up
		}
		if err != nil {
			g.tail(c).refuse(err)
			return
		}

		// 7. Hooks before: they may deny, or replace the input, which is then
		// looked at like any other.
		replaced, denied := g.hooks(c).before(inv)
		if denied == nil && replaced != nil {
			denied = g.replace(c, replaced, round)
		}
		if denied != nil {
			g.tail(c).finish(denied)
			return
		}
		if replaced != nil {
			inv, seen = replaced, nil
			continue
		}

		// 8 to 11.
		c.bound = c.approved != "" || round >= maxUnbound
		if seen = g.perform(c, j); seen == nil {
			return
		}
	}
}

// consider does step 5, and step 6 as far as rules can. seen is what Prepare saw
// already, if it did.
func (g *Group) consider(c *Call, inv *tool.Invocation, a tool.Access, loop *judge.Loop, seen *run.Prepared) (*judge.Judgement, error) {
	if seen == nil {
		if j := g.judgeFirst(c, inv, a, loop); j != nil {
			return j, nil
		}
		var err error
		if seen, err = g.prepare(c, inv, a); err != nil {
			return nil, err
		}
	}
	return g.judge.Judge(c.question(inv, a, seen, loop)), nil
}

// question is what the call's judge is asked. loop is nil where it repeats nothing, and
// seen where nothing was looked at.
func (c *Call) question(inv *tool.Invocation, a tool.Access, seen *run.Prepared, loop *judge.Loop) judge.Question {
	return judge.Question{Profile: c.profile, Env: c.req.Env, Inv: inv, Access: a, Prep: seen, Loop: loop}
}

// guard does step 3. Loops are those of models: what a person has typed and what no
// model can call are no part of them.
func (g *Group) guard(c *Call, inv *tool.Invocation) (*judge.Loop, error) {
	if c.probe || c.hidden || c.row.Typed {
		return nil, nil
	}
	again := c.guarded
	c.guarded = true
	return g.judge.Guard(c.ctx, c.id, inv, again)
}

// maxUnbound is how often a call is judged by where its paths lead while they go on
// to lead elsewhere; then Run opens what Prepare saw.
const maxUnbound = 3

// perform runs a call that may run, and finishes it. When it has not run, because
// it was judged by paths that lead elsewhere, it returns where they lead.
func (g *Group) perform(c *Call, j *judge.Judgement) (seen *run.Prepared) {
	if !j.Provided && j.Prep != nil && j.Prep.Result != nil {
		o := &outcome{result: j.Prep.Result}
		g.hooks(c).after(o)
		g.tail(c).finish(o)
		return nil
	}

	// 8. Admission: a slot, a deadline; stored as running.
	if err := g.admit(c); err != nil {
		g.tail(c).refuse(err)
		return nil
	}
	defer g.leaveSlot(c)

	// Run, as the tool user, with what Prepare saw as preconditions.
	out, err := g.run(c, j)
	if errors.Is(err, ErrLeaving) {
		return nil // it goes on in the sandbox; the next daemon finishes it
	}
	if err == nil && out.Prepared != nil {
		if err = g.notThere(c); err == nil {
			return out.Prepared
		}
	}
	g.complete(c, out, err)
	return nil
}

// complete is the end of every call that was given to the agent, by this daemon or an
// earlier one.
func (g *Group) complete(c *Call, out *agent.Outcome, err error) {
	o := g.tail(c).ended(out, err)
	c.staleApproval(o)

	// 10. Hooks after, which may change what is said of it.
	g.hooks(c).after(o)

	// 9. Truncate and spill; 11. record, events, observers; then the agent may
	// forget it.
	g.tail(c).finish(o)
}

// maxReplacements is how often hooks may replace the input of one call.
const maxReplacements = 3

// replace takes the input that a hook wants instead of the call's own. The record
// says what really runs. An outcome is why it cannot be taken.
func (g *Group) replace(c *Call, inv *tool.Invocation, round int) *outcome {
	if round >= maxReplacements {
		return failed(client.CodeDenied, "denied: hooks replaced the input more than %d times", maxReplacements)
	}
	timeout, wanted, err := g.deadline(&c.req, inv)
	if err == nil {
		err = c.flush()
	}
	if err == nil {
		err = g.svc.Store.Write(func(tx *store.Tx) error { return tx.ReplaceInput(c.id, inv.JSON) })
	}
	if err != nil {
		return g.tail(c).notRun(err)
	}
	c.timeout, c.wanted = timeout, wanted
	c.mu.Lock()
	g.tenant.Kept.Add(int64(len(inv.JSON) - len(c.row.Input)))
	c.row.Input = inv.JSON
	c.mu.Unlock()
	return nil
}

// staleApproval words the end of a call whose files changed between its approval
// and its run.
func (c *Call) staleApproval(o *outcome) {
	if c.approved != "" && o.err != nil && o.err.Code == client.CodeStale {
		o.err = staleError(c.approved)
	}
}

// parse does step 1: everything about a request that can be wrong.
func (g *Group) parse(c *Call) (*tool.Invocation, error) {
	if err := g.svc.checkCall(&c.req); err != nil {
		return nil, err
	}
	if err := g.checkTimeout(&c.req); err != nil {
		return nil, err
	}
	parse := g.svc.Tools.Parse
	if c.hidden {
		parse = g.svc.Tools.ParseHidden
	}
	inv, err := parse(c.req.Tool, c.req.Input)
	if bad, ok := errors.AsType[*client.Error](err); ok && !c.hidden {
		c.malformed = bad
		return g.svc.Tools.Malformed(c.req.Tool, c.req.Input), nil
	}
	if err != nil {
		return nil, err
	}
	g.translate(c, inv)
	if c.timeout, c.wanted, err = g.deadline(&c.req, inv); err != nil {
		return nil, err
	}
	if inv.Lenient > 0 {
		g.svc.observe(func(o Observer) { o.LenientConversion(inv.Tool.Name) })
	}
	return inv, nil
}

// prepare does step 5, for calls whose paths must be resolved.
func (g *Group) prepare(c *Call, inv *tool.Invocation, a tool.Access) (*run.Prepared, error) {
	if !a.Prepare {
		return nil, nil
	}
	r := PrepareRequest(g.request(c, inv, nil), inv, a)
	return g.runner.Prepare(c.ctx, r)
}

// PrepareRequest adds the paths that are to be resolved, where the agent does not find
// them in the input.
func PrepareRequest(r agent.Request, inv *tool.Invocation, a tool.Access) agent.Request {
	if _, ok := inv.Input.(tool.Placed); ok {
		r.Paths = a.Paths()
		// What is not resolved is judged as leading anywhere.
		r.Paths = r.Paths[:min(len(r.Paths), run.MaxPaths)]
	}
	return r
}

// request is what the agent is asked.
func (g *Group) request(c *Call, inv *tool.Invocation, prep *run.Prepared) agent.Request {
	return agent.Request{
		CallID: c.id, Tool: inv.AgentTool(), Input: inv.JSON,
		Settings: g.toolSettings(c, inv.Tool),
		Env:      EnvList(c.req.Env), TimeoutMillis: c.timeout.Milliseconds(),
		MaxOutput: c.maxOutput, Prepared: prep, Split: c.stream.Split,
	}
}

// toolSettings are what the tool's half in the sandbox has to know: its part of the
// configuration, or for a tool that shows files which the call does not name, which
// of them it must not show.
func (g *Group) toolSettings(c *Call, d *tool.Definition) json.RawMessage {
	if d.Shows == tool.ShowsNone {
		return g.svc.Settings().ToolSettings[d.Name]
	}
	content, names := g.judge.Rules(c.profile).ShownTo(g.place.Row().Worktree.Target)
	if d.Shows == tool.ShowsNames {
		return names
	}
	return content
}

// run runs the tool.
func (g *Group) run(c *Call, j *judge.Judgement) (*agent.Outcome, error) {
	c.watchDeadline()
	defer func() { c.stopWatch() }()
	r := g.request(c, j.Inv, j.Prep)
	if j.Prep != nil {
		for _, t := range j.Prep.Targets {
			if t.Write {
				c.writes = append(c.writes, t.Path)
			}
		}
	}
	if j.Provided || !c.bound && len(c.writes) > 0 {
		r = askProvided(r, j.Inv, j.Access, j.Prep)
	}
	c.out.Begin()
	return g.runner.Run(c.ctx, r, sink{c})
}

// sink takes what the running call sends.
type sink struct{ c *Call }

// Output implements agent.Sink.
func (k sink) Output(offset int64, stderr bool, p []byte) error { return k.c.output(offset, stderr, p) }

// Offset implements agent.Follower.
func (k sink) Offset() int64 { return k.c.out.Offset() }

// Safe implements agent.Follower.
func (k sink) Safe() int64 { return k.c.out.Safe() }

// Metadata implements agent.Sink.
func (k sink) Metadata(m map[string]any) { k.c.progress(m) }
