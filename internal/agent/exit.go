package agent

import (
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/tool/run"
)

// maxSignal bounds the name of a signal, in bytes.
const maxSignal = 16 << 10

// Plausible is what an agent says about an exit, within what can be.
func Plausible(e *run.Exit) *run.Exit {
	if e == nil {
		return nil
	}
	v := *e
	v.Code = min(max(v.Code, -1), 255)
	v.DurationMillis = max(v.DurationMillis, 0)
	v.CPUMillis = max(v.CPUMillis, 0)
	v.MaxMemoryBytes = max(v.MaxMemoryBytes, 0)
	v.IOBytes = max(v.IOBytes, 0)
	v.BackgroundKilled = max(v.BackgroundKilled, 0)
	v.Signal = plain.Cut(v.Signal, maxSignal)
	switch v.Reason {
	case run.ReasonExit, run.ReasonSignal, run.ReasonTimeout, run.ReasonAborted, run.ReasonOutputLimit, run.ReasonSessionEnded,
		run.ReasonMemory, run.ReasonPIDs: // where the agent keeps these limits
	default:
		v.Reason = run.ReasonSignal
		if v.Signal == "" {
			v.Reason = run.ReasonExit
		}
	}
	return &v
}
