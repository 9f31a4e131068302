package agent

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/wire"
)

// maxMillis bounds the times that an agent may report: ten years.
const maxMillis = 10 * 366 * 24 * 3600 * 1000

// checkExit clamps the figures that an agent reports about a program and refuses
// reasons that an agent cannot know.
func checkExit(e *run.Exit) error {
	switch e.Reason {
	case run.ReasonExit, run.ReasonSignal, run.ReasonTimeout, run.ReasonAborted,
		run.ReasonOutputLimit, run.ReasonSessionEnded, run.ReasonMemory, run.ReasonPIDs, run.ReasonDisk:
	default:
		return fmt.Errorf("unknown reason %.40q", string(e.Reason))
	}
	if e.Signal != "" && !signalName(e.Signal) {
		return fmt.Errorf("unknown signal %.40q", e.Signal)
	}
	if len(e.Full) > unix.PathMax || e.Full != "" && wire.Clean(e.Full) != e.Full {
		return errors.New("a full place that is no path")
	}
	if e.Code < -1 || e.Code > 255 {
		e.Code = -1
	}
	e.DurationMillis = min(max(e.DurationMillis, 0), maxMillis)
	e.CPUMillis = min(max(e.CPUMillis, 0), maxMillis)
	e.MaxMemoryBytes = min(max(e.MaxMemoryBytes, 0), 1<<50)
	e.IOBytes = min(max(e.IOBytes, 0), 1<<60)
	e.BackgroundKilled = min(max(e.BackgroundKilled, 0), 1<<22)
	if len(e.BackgroundNames) > run.MaxBackgroundNames {
		return fmt.Errorf("%d names of processes", len(e.BackgroundNames))
	}
	for i, name := range e.BackgroundNames {
		const most = 64 // the kernel's have at most 15 bytes, of its threads' 63
		e.BackgroundNames[i] = wire.Clean(name[:min(len(name), most)])
	}
	if len(e.Locks) > run.MaxLocks {
		return fmt.Errorf("%d locks", len(e.Locks))
	}
	for _, path := range e.Locks {
		if len(path) > unix.PathMax {
			return errors.New("a lock that is no path")
		}
	}
	return nil
}

func signalName(s string) bool {
	if len(s) > 12 || !strings.HasPrefix(s, "SIG") {
		return false
	}
	for _, c := range s[3:] {
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '+' {
			return false
		}
	}
	return true
}

// checkError keeps an agent's error within the codes of the sandbox side.
func checkError(e *run.Error) error {
	switch e.Code {
	case run.CodeInvalidInput, run.CodeInvalidPath, run.CodeNotRegularFile, run.CodeStale,
		run.CodeAborted, run.CodeSandboxFailed, run.CodeInternal:
	default:
		return fmt.Errorf("unknown error code %.40q", string(e.Code))
	}
	e.Message, e.Hint = wire.Cut(wire.Clean(e.Message)), wire.Cut(wire.Clean(e.Hint))
	return nil
}
