package call

import (
	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/tool/run"
)

// How programs ended: what they used, which limit ended them, and the lines about it.

func usageOf(e *run.Exit) client.CallUsage {
	return client.CallUsage{
		CPUMillis: e.CPUMillis, MaxMemoryBytes: e.MaxMemoryBytes, IOBytes: e.IOBytes, DurationMillis: e.DurationMillis,
	}
}

// refine finds out whether a limit of the session ended the program. The kernel
// counts for the whole session: of calls that run at the same time, the first
// that fails after a kill is held for the one that was hit.
func (t tail) refine(o *outcome) {
	if o.exit == nil || !t.c.streams {
		return
	}
	byItself := o.exit.Reason == run.ReasonExit || o.exit.Reason == run.ReasonSignal
	if o.exit.Reason == run.ReasonExit && o.exit.Code == 0 {
		t.refineSuccess(o)
		return
	}
	memory, pids := t.g.place.Killed()
	switch {
	case o.exit.Reason == run.ReasonMemory:
		t.g.place.Starved() // the agent keeps the limit, and says so
	case o.exit.Reason == run.ReasonPIDs:
	case !byItself:
		return
	case memory:
		o.exit.Reason = run.ReasonMemory
	case pids:
		o.exit.Reason = run.ReasonPIDs
	default:
		return
	}
	r := *o.result
	r.IsError = true
	o.result = &r
	if o.exit.Reason == run.ReasonMemory && t.g.place.FreeTmp() {
		o.notes = append(o.notes, "the files in /tmp and /dev/shm were removed: they filled the memory of the session")
	}
}

// brief is a time in which no command gets to a limit, takes back what it has started
// and ends, in milliseconds.
const brief = 10

// refineSuccess finds out what was taken from a program that ended well. What was counted
// may be another's who has not ended yet, if there is one.
func (t tail) refineSuccess(o *outcome) {
	switch {
	case t.g.open.Load() != 1:
	case o.exit.DurationMillis < brief && o.exit.BackgroundKilled == 0:
		o.recount = true // the counters cost as much as a hundredth of such a call
	default:
		memory, pids := t.g.place.Killed()
		o.exit.Starved, o.exit.Refused = memory, pids || o.exit.Refused
	}
}

// trail writes the last lines of the output of a program, which the agent has written
// with what it knows.
func (t tail) trail(o *outcome) {
	if o.exit == nil || !t.c.streams {
		return
	}
	info := run.TrailerInfo{MemoryLimit: int64(t.g.limits.Memory), PIDsLimit: t.g.limits.PIDs}
	if o.exit.Reason == run.ReasonTimeout {
		if info.Timeout, info.MostTimeout = t.c.timeouts(); info.Timeout == 0 {
			return // an earlier daemon's call: only the agent knows
		}
	}
	r := *o.result
	r.Output = run.Trailer(o.exit, info)
	o.result = &r
}
