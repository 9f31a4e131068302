package metrics

import (
	"time"

	"github.com/toold/toold/client"
)

// killReasons are those values of metadata.reason that mean that the daemon or a
// limit ended the call's processes.
var killReasons = []string{"timeout", "aborted", "memory", "pids", "disk", "output_limit", "session_ended", "lost"}

// deniedCodes are the codes of calls that were not allowed to run.
var deniedCodes = map[client.Code]bool{
	client.CodeDenied: true, client.CodeApprovalTimeout: true, client.CodeStaleApproval: true, client.CodeDoomLoop: true,
}

// callCounters count calls.
type callCounters struct {
	ended, truncated, lenient, aliases counters // by tool
	ran, queued                        timers
	spilled, kills                     counters
}

func newCallCounters(r *registrar, tool label, aliases map[string][]string) callCounters {
	c := callCounters{
		ended: r.counter("toold_tool_calls_total", "Finished calls by tool and outcome: ok, tool_error, denied, error.",
			tool, label{name: "outcome", values: []string{"ok", "tool_error", "denied", "error"}}),
		ran:       r.histogram("toold_tool_call_duration_seconds", "Time from the start of a call's tool to its result.", latency, tool),
		truncated: r.counter("toold_output_truncations_total", "Calls whose output was truncated, by tool.", tool),
		lenient:   r.counter("toold_lenient_conversions_total", "Calls with a loosely typed input that was converted, by tool.", tool),
		aliases: r.counter("toold_tool_aliases_total", "Calls made with a name of another system, by tool and that name.",
			tool, label{name: "alias", other: unknown}),
		kills: r.counter("toold_call_kills_total", "Calls whose processes were killed, by reason.", label{name: "reason", values: killReasons}),
		queued: r.histogram("toold_tool_call_queue_duration_seconds",
			"Time from a call's arrival to the start of its tool, including approvals and the wait for a slot.", latency),
		spilled: r.counter("toold_output_spilled_bytes_total", "Bytes of output written to disk because the result has no room for them."),
	}
	for name, all := range aliases { // each tool has others
		for _, alias := range all {
			c.aliases.add([]string{name, alias})
		}
	}
	return c
}

// CallFinished counts and times a call. Calls that never ran have no duration.
func (m *Metrics) CallFinished(c *client.Call, queued, ran time.Duration) {
	m.calls.ended.of(c.Tool, outcome(c)).Inc()
	if c.Time.Started != nil {
		m.calls.queued.of().took(queued)
		m.calls.ran.of(c.Tool).took(ran)
	}
	reason, _ := c.Metadata["reason"].(string)
	if k := m.calls.kills.of(reason); k != nil {
		k.Inc()
	}
	if cut, _ := c.Metadata["truncated"].(bool); cut {
		m.calls.truncated.of(c.Tool).Inc()
	}
}

// outcome is how a call ended.
func outcome(c *client.Call) string {
	switch {
	case c.Status == client.CallCompleted && !c.IsError:
		return "ok"
	case c.Status == client.CallCompleted:
		return "tool_error"
	case c.Error != nil && deniedCodes[c.Error.Code]:
		return "denied"
	}
	return "error"
}

// OutputSpilled counts bytes written to disk. A size below zero, which no honest
// caller has, counts nothing: a counter that is told to go down panics.
func (m *Metrics) OutputSpilled(bytes int64) { m.calls.spilled.of().Add(float64(max(bytes, 0))) }

// LenientConversion counts an input that was converted.
func (m *Metrics) LenientConversion(tool string) { m.calls.lenient.of(tool).Inc() }

// Alias counts a call that was made with a name of another system.
func (m *Metrics) Alias(tool, alias string) { m.calls.aliases.of(tool, alias).Inc() }
