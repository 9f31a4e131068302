package agent

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/tool/run"
)

// clean makes s valid UTF-8. Control characters stay: they are data, and whoever
// shows them escapes them.
func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func cleanMap(m map[string]any) map[string]any {
	for k, v := range m {
		if c := clean(k); c != k {
			delete(m, k)
			k = c
		}
		m[k] = cleanValue(v)
	}
	return m
}

// cleanValue leaves only what JSON can say.
func cleanValue(v any) any {
	switch v := v.(type) {
	case string:
		return clean(v)
	case []byte:
		return hex.EncodeToString(v)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprint(v)
		}
		return v
	case map[string]any:
		return cleanMap(v)
	case []any:
		for i := range v {
			v[i] = cleanValue(v[i])
		}
		return v
	case nil, bool, int64:
		return v
	default:
		return clean(fmt.Sprint(v))
	}
}

// maxMillis bounds the times that an agent may report: ten years.
const maxMillis = 10 * 366 * 24 * 3600 * 1000

// checkExit clamps the figures that an agent reports about a program and refuses
// reasons that an agent cannot know.
func checkExit(e *run.Exit) error {
	if e == nil {
		return nil
	}
	switch e.Reason {
	case run.ReasonExit, run.ReasonSignal, run.ReasonTimeout, run.ReasonAborted,
		run.ReasonOutputLimit, run.ReasonSessionEnded, run.ReasonMemory, run.ReasonPIDs:
	default:
		return fmt.Errorf("unknown reason %.40q", string(e.Reason))
	}
	if !signalName(e.Signal) {
		return fmt.Errorf("unknown signal %.40q", e.Signal)
	}
	if len(e.Full) > unix.PathMax || e.Full != "" && clean(e.Full) != e.Full {
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
		e.BackgroundNames[i] = clean(name[:min(len(name), most)])
	}
	return nil
}

func signalName(s string) bool {
	if s == "" {
		return true
	}
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
	if e == nil {
		return nil
	}
	switch e.Code {
	case run.CodeInvalidInput, run.CodeInvalidPath, run.CodeNotRegularFile, run.CodeStale,
		run.CodeAborted, run.CodeSandboxFailed, run.CodeInternal:
	default:
		return fmt.Errorf("unknown error code %.40q", string(e.Code))
	}
	e.Message, e.Hint = cut(clean(e.Message)), cut(clean(e.Hint))
	return nil
}

// cut bounds a message to what a person may want to read.
func cut(s string) string {
	const most = 16 << 10
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
