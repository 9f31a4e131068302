package metrics

import (
	"strconv"
	"time"

	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
)

// policyCounters count what policy and hooks decided.
type policyCounters struct {
	decisions, loops counters
	hooks            works
}

func newPolicyCounters(r *registrar, tool label, permissions []string) policyCounters {
	permissions = append([]string{policy.PermissionDoomLoop, policy.PermissionExternal, policy.PermissionNetwork, policy.PermissionHTTP}, permissions...)
	// What is no action is taken for the strictest.
	action := label{"action", names(policy.Allow, policy.Ask, policy.Deny), string(policy.Deny)}
	event := label{"event", []string{hook.CallBefore, hook.CallAfter, hook.SessionCreated, hook.SessionEnded, hook.FileEdited}, unknown}
	return policyCounters{
		decisions: r.counter("toold_policy_decisions_total",
			"Policy decisions by permission and action: allow, ask, deny. A call has one or more.", label{"permission", permissions, "other"}, action),
		loops: r.counter("toold_doom_loops_total",
			"Repeated calls, by tool, length of the repeated sequence and action taken.",
			tool, label{"period", []string{"1", "2", "3", "4"}, "longer"}, action),
		hooks: works{
			r.counter("toold_hooks_total", "Hooks that ran, by event and outcome: ok, denied, replaced, failed.",
				event, label{"outcome", []string{"ok", "denied", "replaced"}, "failed"}),
			r.histogram("toold_hook_duration_seconds", "Run time of hooks, by event.", latency, event),
		},
	}
}

// Decided counts the requests of a judgement by the rules. What an approver or a
// hook made of it is counted as a reply or as a hook's outcome, not twice.
func (m *Metrics) Decided(d *judge.Decision) {
	if d.Approver != "" {
		return
	}
	for i := range d.Requests {
		r := &d.Requests[i]
		m.policy.decisions.of(r.Request.Permission, string(r.Action)).Inc()
	}
}

// DoomLoop counts a loop.
func (m *Metrics) DoomLoop(tool string, period int, action policy.Action) {
	m.policy.loops.of(tool, strconv.Itoa(period), string(action)).Inc()
}

// Hooked counts and times a hook.
func (m *Metrics) Hooked(on, outcome string, d time.Duration) { m.policy.hooks.done(on, outcome, d) }

// works counts and times pieces of work of several kinds, by their outcome.
type works struct {
	outcomes counters
	duration timers
}

func (w *works) done(kind, outcome string, d time.Duration) {
	w.outcomes.of(kind, outcome).Inc()
	w.duration.of(kind).took(d)
}

// worktreeWorks are what is done with the changes of sessions.
func worktreeWorks(r *registrar) works {
	operation := label{"operation", []string{"diff", "apply", "discard", "checkpoint", "restore", "fork", "merge"}, unknown}
	return works{
		r.counter("toold_worktree_operations_total",
			"Operations on the changes of sessions in worktrees of mode overlay, by outcome: ok, conflict, refused, failed.",
			operation, label{"outcome", []string{"ok", "conflict", "refused"}, "failed"}),
		r.histogram("toold_worktree_operation_duration_seconds",
			"Duration of operations on the changes of sessions; that of a diff includes its reading by the client.", latency, operation),
	}
}

// WorktreeOperation counts and times what was done with the changes of a session.
func (m *Metrics) WorktreeOperation(operation, outcome string, d time.Duration) {
	m.worktrees.done(operation, outcome, d)
}

// networkCounters count the connections of sessions.
type networkCounters struct {
	ended, bytes counters
	dial         timers
}

func newNetworkCounters(r *registrar) networkCounters {
	return networkCounters{
		ended: r.counter("toold_network_connections_total",
			"Connections of sessions that are over, by verdict: allow, deny, or failed for those that were allowed and did not get through.",
			label{"verdict", []string{"allow", "deny"}, "failed"}),
		bytes: r.counter("toold_network_bytes_total", "Bytes of connections of sessions: up is to the far side.",
			label{name: "direction", values: []string{"up", "down"}}),
		dial: r.histogram("toold_network_dial_seconds",
			"Time from a connection of a session to its far side being connected, with name lookup and without the wait for an approval.", latency),
	}
}

// Connection counts a connection that is over. dial is 0 where nothing was dialled.
func (m *Metrics) Connection(verdict string, up, down int64, dial time.Duration) {
	m.network.ended.of(verdict).Inc()
	m.network.bytes.of("up").Add(float64(max(up, 0)))
	m.network.bytes.of("down").Add(float64(max(down, 0)))
	if dial > 0 {
		m.network.dial.of().took(dial)
	}
}
