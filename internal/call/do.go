package call

import (
	"errors"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/answer"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// do is the one path of a tool call. It runs in a goroutine of the call's own,
// so that the call outlives whoever asked for it. Each step trusts only those
// above it; an error before "run" means that the tool did not run.
func (st *steps) do(c *Call) {
	c.seen = st.place.Attend()
	defer st.left(c)

	// 1. Parse: strict JSON to the typed, normalised input that is judged,
	// hashed, stored and run. From here on nobody looks at the request's bytes. An
	// input that fits no tool is a call as well, which does not run.
	inv, err := st.parse(c)
	if err != nil {
		c.refuse(err)
		return
	}

	// 2. Store: the call exists on disk as pending. A key that was used before
	// leads to that call instead.
	if err := st.record(c, inv); err != nil {
		c.refuse(err)
		return
	}
	if c.malformed != nil {
		tail{st, c}.refuse(st.refuseInput(c, inv))
		return
	}
	st.proceed(c, inv)
}

// proceed is do from where the call has a record. Here a call is taken up again
// that waited for its approval when an earlier daemon ended.
func (st *steps) proceed(c *Call, inv *tool.Invocation) {
	var seen *run.Prepared // by a run that found that its paths lead elsewhere
	for round := 0; ; round++ {
		// 3. Loop guard: does it repeat what the session has done before?
		loop, err := st.guard(c, inv)
		if err != nil {
			tail{st, c}.refuse(err)
			return
		}

		// 4. Access: what does it name? Pure.
		q := judge.Question{Profile: c.profile, Env: c.req.Env, Inv: inv, Access: inv.Input.Access(st.reader(c.req.Env)), Prep: seen, Loop: loop}

		// 5. Prepare: inside the sandbox and without effect, resolve what it
		// names; 6. Judge: allow, deny, or wait until somebody has approved it.
		j, err := st.consider(c, q)
		if err == nil {
			title := st.titleOf(j)
			c.update(func(row *store.Call) { row.Title = title })
			err = asking{st, c}.permit(j)
		}
		if errors.Is(err, errWaits) {
			return // the next daemon takes it up
		}
		if err != nil {
			tail{st, c}.refuse(err)
			return
		}

		// 7. Hooks before: they may deny, or replace the input, which is then
		// looked at like any other.
		var replaced *tool.Invocation
		var denied *outcome
		if st.daemon.Hooks.Any() && c.of == nil {
			replaced, denied = hooks{st.site, c}.before(inv)
		}
		if denied == nil && replaced != nil {
			denied = st.replace(c, replaced, round)
		}
		if denied != nil {
			tail{st, c}.finish(denied)
			return
		}
		if replaced != nil {
			inv, seen = replaced, nil
			continue
		}

		// 8 to 11.
		c.bound = c.approved != "" || round >= maxUnbound
		if seen = st.perform(c, j); seen == nil {
			return
		}
	}
}

// consider does step 5, and step 6 as far as rules can. q has what Prepare saw already, if
// it did. Otherwise a call is judged as if its paths had no links in them, and where it is
// allowed then, they are looked at only when it runs.
func (st *steps) consider(c *Call, q judge.Question) (*judge.Judgement, error) {
	if q.Prep != nil || !q.Access.Prepare {
		return st.judge.Judge(q), nil
	}
	if q.Prep = st.provided(c, q.Inv, q.Access); q.Prep != nil {
		if j := st.judge.Judge(q); j.Verdict.Action == policy.Allow {
			j.Provided = true
			return j, nil
		}
	}
	var err error
	if q.Prep, err = st.prepare(c, q.Inv, q.Access); err != nil {
		return nil, err
	}
	return st.judge.Judge(q), nil
}

// guard does step 3. Loops are those of models: what a person has typed and what no
// model can call are no part of them.
func (st *steps) guard(c *Call, inv *tool.Invocation) (*judge.Loop, error) {
	if c.probe || c.hidden || c.row.Typed {
		return nil, nil
	}
	again := c.guarded
	c.guarded = true
	return st.judge.Guard(c.ctx, c.id, inv, c.batch != nil, again)
}

// maxUnbound is how often a call is judged by where its paths lead while they go on
// to lead elsewhere; then Run opens what Prepare saw.
const maxUnbound = 3

// perform runs a call that may run, and finishes it. When it has not run, because
// it was judged by paths that lead elsewhere, it returns where they lead.
func (st *steps) perform(c *Call, j *judge.Judgement) (seen *run.Prepared) {
	if !j.Provided && j.Prep != nil && j.Prep.Result != nil {
		o := &outcome{Outcome: agent.Outcome{Result: j.Prep.Result}}
		if st.daemon.Hooks.Any() {
			hooks{st.site, c}.after(o, st.doFor)
		}
		tail{st, c}.finish(o)
		return nil
	}

	if t := j.Inv.Tool; !t.ReadOnly && !t.NoSlot && c.of == nil {
		var err error
		if c.checkpoint, err = st.place.Before(c.ctx, c.id, c.req.MessageID); err != nil {
			tail{st, c}.refuse(err)
			return nil
		}
	}

	// 8. Admission: a slot, a deadline; stored as running.
	if err := st.admit(c); err != nil {
		tail{st, c}.refuse(err)
		return nil
	}
	defer st.slots.leave(&c.seat)

	// Run, as the tool user, with what Prepare saw as preconditions.
	out, err := st.run(c, j)
	if errors.Is(err, ErrLeaving) {
		return nil // it goes on in the sandbox; the next daemon finishes it
	}
	if err == nil && out.Prepared != nil {
		if err = st.notThere(c); err == nil {
			return out.Prepared
		}
	}
	st.complete(c, out, err)
	return nil
}

// complete is the end of every call that was given to the agent, by this daemon or an
// earlier one.
func (st *steps) complete(c *Call, out *agent.Outcome, err error) {
	o := st.ended(c, out, err)
	if c.approved != "" && o.err != nil && o.err.Code == client.CodeStale {
		o.err = answer.Of(staleError(c.approved)) // its files changed between the approval and the run
	}

	// 10. Hooks after, which may change what is said of it.
	if st.daemon.Hooks.Any() {
		hooks{st.site, c}.after(o, st.doFor)
	}

	// 9. Truncate and spill; 11. record, events, observers; then the agent may
	// forget it.
	tail{st, c}.finish(o)
}

// refuseInput says why a call does not run whose input no tool takes. Such calls
// are part of loops. Nobody is asked about one: there is nothing to allow.
func (st *steps) refuseInput(c *Call, inv *tool.Invocation) error {
	loop, err := st.guard(c, inv)
	if err != nil {
		return err
	}
	if loop == nil {
		return c.malformed
	}
	j := st.judge.JudgeLoop(judge.Question{Profile: c.profile, Env: c.req.Env, Inv: inv, Loop: loop})
	err = asking{st, c}.permit(j)
	if e := answer.Of(err); e != nil && e.Code == client.CodeDoomLoop {
		// What is wrong with the call has to be said all the same.
		e.Message += "\n" + c.malformed.Message
		e.Hint, e.Violations = c.malformed.Hint, c.malformed.Violations
		if e.Hint == "" {
			e.Hint = "change the input as is said here; the same one is refused each time"
		}
		return e
	}
	if err == nil {
		err = c.malformed
	}
	return err
}

// left lets go of what the call's goroutine held.
func (st *steps) left(c *Call) {
	c.seen()
	st.place.Leave()
	st.slots.uncount(&c.seat)
	if c.out != nil {
		c.out.Release()
	}
	c.cancel(nil)
	c.held.release()
	if c.input != nil {
		c.input()
	}
}
