package call

import (
	"errors"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/answer"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/tool/run"
)

// How calls and their programs ended: what they used, which limit ended them, and the lines about it.

// ended is the outcome of a call that was given to the agent.
func (st *steps) ended(c *Call, out *agent.Outcome, err error) *outcome {
	var re *run.Error
	held := c.durable != nil
	switch {
	case err == nil && out.Err != nil:
		return &outcome{err: codeOf(out.Err), held: held}
	case err == nil && out.Prepared != nil:
		o := neverSent() // of an earlier daemon: its paths led elsewhere than they say, and nobody judged it again
		o.held = held
		return o
	case err == nil && out.Result == nil:
		o := failed(fault.Sandbox, "the agent gave no result")
		o.held = held
		return o
	case err == nil:
		o := &outcome{Outcome: *out, held: held}
		st.refine(c, o)
		st.trail(c, o)
		return o
	case errors.As(err, &re):
		return &outcome{err: codeOf(re)}
	case errors.Is(err, agent.ErrUnknownCall):
		o := failed(fault.Over, "the connection to the sandbox broke while the call began; it is not known whether it ran")
		o.err.Hint, o.reason = "look at what it would have changed before making it again", run.ReasonLost
		return o
	case st.isOver(err):
		return st.lostOutcome()
	}
	if e := answer.Of(err); e != nil { // there was no room for the result
		return &outcome{err: e, held: held}
	}
	c.abort(run.ReasonAborted)
	return &outcome{err: st.clientError(c.id, err)}
}

// refine finds out whether a limit of the session ended the program. The kernel
// counts for the whole session: of calls that run at the same time, the first
// that fails after a kill is held for the one that was hit.
func (st *steps) refine(c *Call, o *outcome) {
	if !c.def.Command {
		// It may have run a program, as for a picture: that one was killed is not held against the next call.
		if (o.Result.IsError || len(o.Result.Attachments) > 0) && st.slots.open.Load() == 1 {
			st.place.Killed()
		}
		return
	}
	if o.Exit == nil {
		return
	}
	byItself := o.Exit.Reason == run.ReasonExit || o.Exit.Reason == run.ReasonSignal
	if o.Exit.Reason == run.ReasonExit && o.Exit.Code == 0 {
		st.refineSuccess(c, o)
		return
	}
	if note := c.endedFor(o.Exit.Reason); note != "" {
		o.Exit.Host = note
		return
	}
	memory, pids := st.place.Killed()
	switch {
	case o.Exit.Reason == run.ReasonMemory:
		st.place.Starved() // the agent keeps the limit, and says so
	case o.Exit.Reason == run.ReasonPIDs:
	case !byItself:
		return
	case memory:
		o.Exit.Reason = run.ReasonMemory
	case pids:
		o.Exit.Reason = run.ReasonPIDs
	default:
		return
	}
	r := *o.Result
	r.IsError = true
	o.Result = &r
	if o.Exit.Reason == run.ReasonMemory && st.place.FreeTmp() {
		o.notes = append(o.notes, "the files in /dev/shm, and in /tmp where that lies in memory, were removed: they filled the memory of the session")
	}
}

// brief is a time in which no command gets to a limit, takes back what it has started
// and ends, in milliseconds.
const brief = 10

// refineSuccess finds out what was taken from a program that ended well. What was counted
// may be another's who has not ended yet, if there is one.
func (st *steps) refineSuccess(c *Call, o *outcome) {
	switch {
	case st.slots.open.Load() != 1 || c.batch != nil:
	case o.Exit.DurationMillis < brief && o.Exit.BackgroundKilled == 0:
		o.recount = true // the counters cost as much as a hundredth of such a call
	default:
		memory, pids := st.place.Killed()
		o.Exit.Starved, o.Exit.Refused = memory, pids || o.Exit.Refused
	}
}

// trail writes the last lines of the output of a program, which the agent has written
// with what it knows.
func (st *steps) trail(c *Call, o *outcome) {
	if o.Exit == nil || !c.def.Command {
		return
	}
	info := run.TrailerInfo{MemoryLimit: int64(st.limits.Memory), PIDsLimit: st.limits.PIDs, OutputLimit: int64(st.limits.Output)}
	if o.Exit.Reason == run.ReasonTimeout {
		if info.Timeout, info.MostTimeout = c.timeouts(); info.Timeout == 0 {
			return // an earlier daemon's call: only the agent knows
		}
	}
	r := *o.Result
	r.Output = run.Trailer(o.Exit, info)
	o.Result = &r
}
