package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/toold/toold/client"
)

// The values of the label outcome.
const (
	outcomeOK = iota
	outcomeToolError
	outcomeDenied
	outcomeError
)

var outcomeNames = [...]string{outcomeOK: "ok", outcomeToolError: "tool_error", outcomeDenied: "denied", outcomeError: "error"}

// killReasons are those values of metadata.reason that mean that the daemon or a
// limit ended the call's processes.
var killReasons = []string{"timeout", "aborted", "memory", "pids", "disk", "output_limit", "session_ended", "lost"}

// deniedCodes are the codes of calls that were not allowed to run.
var deniedCodes = map[client.Code]bool{
	client.CodeDenied: true, client.CodeApprovalTimeout: true, client.CodeStaleApproval: true, client.CodeDoomLoop: true,
}

// callCounters count calls.
type callCounters struct {
	tools   closed[*toolCounters]
	queue   prometheus.Observer
	spilled prometheus.Counter
	kills   map[string]prometheus.Counter
}

// toolCounters are those of one tool.
type toolCounters struct {
	outcomes  [len(outcomeNames)]prometheus.Counter
	duration  prometheus.Observer
	truncated prometheus.Counter
	lenient   prometheus.Counter
}

func newCallCounters(r *registrar, tools []string) callCounters {
	calls := r.counter("toold_tool_calls_total", "Finished calls by tool and outcome: ok, tool_error, denied, error.", "tool", "outcome")
	duration := r.histogram("toold_tool_call_duration_seconds", "Time from the start of a call's tool to its result.", latency, "tool")
	truncated := r.counter("toold_output_truncations_total", "Calls whose output was truncated, by tool.", "tool")
	lenient := r.counter("toold_lenient_conversions_total", "Calls with a loosely typed input that was converted, by tool.", "tool")
	kills := r.counter("toold_call_kills_total", "Calls whose processes were killed, by reason.", "reason")
	c := callCounters{
		queue: r.histogram("toold_tool_call_queue_duration_seconds",
			"Time from a call's arrival to the start of its tool, including approvals and the wait for a slot.", latency).WithLabelValues(),
		spilled: r.counter("toold_output_spilled_bytes_total", "Bytes of output written to disk because the result has no room for them.").WithLabelValues(),
		kills:   map[string]prometheus.Counter{},
	}
	for _, reason := range killReasons {
		c.kills[reason] = kills.WithLabelValues(reason)
	}
	c.tools = byName(tools, unknown, func(tool string) *toolCounters {
		t := &toolCounters{
			duration:  duration.WithLabelValues(tool),
			truncated: truncated.WithLabelValues(tool),
			lenient:   lenient.WithLabelValues(tool),
		}
		for i, name := range outcomeNames {
			t.outcomes[i] = calls.WithLabelValues(tool, name)
		}
		return t
	})
	return c
}

// CallFinished counts and times a call. Calls that never ran have no duration.
func (m *Metrics) CallFinished(c *client.Call, queued, ran time.Duration) {
	t := m.calls.tools.get(c.Tool)
	t.outcomes[outcome(c)].Inc()
	if c.Time.Started != nil {
		m.calls.queue.Observe(max(queued, 0).Seconds())
		t.duration.Observe(max(ran, 0).Seconds())
	}
	if reason, _ := c.Metadata["reason"].(string); reason != "" {
		if k, ok := m.calls.kills[reason]; ok {
			k.Inc()
		}
	}
	if cut, _ := c.Metadata["truncated"].(bool); cut {
		t.truncated.Inc()
	}
}

// outcome is how a call ended, as an index into outcomeNames.
func outcome(c *client.Call) int {
	switch {
	case c.Status == client.CallCompleted && !c.IsError:
		return outcomeOK
	case c.Status == client.CallCompleted:
		return outcomeToolError
	case c.Error != nil && deniedCodes[c.Error.Code]:
		return outcomeDenied
	}
	return outcomeError
}

// OutputSpilled counts bytes written to disk. A size below zero, which no honest
// caller has, counts nothing: a counter that is told to go down panics.
func (m *Metrics) OutputSpilled(bytes int64) { m.calls.spilled.Add(float64(max(bytes, 0))) }

// LenientConversion counts an input that was converted.
func (m *Metrics) LenientConversion(tool string) { m.calls.tools.get(tool).lenient.Inc() }
