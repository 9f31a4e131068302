package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
)

const (
	// other stands for permissions that are not in the set.
	other = "other"
	// maxPeriod is the longest period of a loop that has a label of its own.
	maxPeriod = 4
)

var actions = []string{string(policy.Allow), string(policy.Ask), string(policy.Deny)}

// policyCounters count what policy decided.
type policyCounters struct {
	decisions closed[byAction]                // by permission
	loops     closed[[maxPeriod + 1]byAction] // by tool and period; 0 stands for longer ones
}

// byAction are the counters of each action.
type byAction = closed[prometheus.Counter]

func newPolicyCounters(r *registrar, tools, permissions []string) policyCounters {
	decisions := r.counter("toold_policy_decisions_total",
		"Policy decisions by permission and action: allow, ask, deny. A call has one or more.", "permission", "action")
	loops := r.counter("toold_doom_loops_total",
		"Repeated calls, by tool, length of the repeated sequence and action taken.", "tool", "period", "action")
	permissions = append([]string{policy.PermissionDoomLoop, policy.PermissionExternal}, permissions...)
	return policyCounters{
		decisions: byName(permissions, other, func(permission string) byAction {
			return counted(func(action string) prometheus.Counter { return decisions.WithLabelValues(permission, action) })
		}),
		loops: byName(tools, unknown, func(tool string) (periods [maxPeriod + 1]byAction) {
			for i := range periods {
				period := strconv.Itoa(i)
				if i == 0 {
					period = "longer"
				}
				periods[i] = counted(func(action string) prometheus.Counter { return loops.WithLabelValues(tool, period, action) })
			}
			return periods
		}),
	}
}

// counted makes the counters of each action. What is no action is taken for the
// strictest.
func counted(make func(action string) prometheus.Counter) byAction {
	c := byAction{named: map[string]prometheus.Counter{}}
	for _, a := range actions {
		c.named[a] = make(a)
	}
	c.other = c.named[string(policy.Deny)]
	return c
}

// Decided counts the requests of a judgement by the rules. What an approver or a
// hook made of it is counted as a reply or as a hook's outcome, not twice.
func (m *Metrics) Decided(d *judge.Decision) {
	if d.Approver != "" {
		return
	}
	for i := range d.Requests {
		r := &d.Requests[i]
		m.policy.decisions.get(r.Request.Permission).get(string(r.Action)).Inc()
	}
}

// DoomLoop counts a loop.
func (m *Metrics) DoomLoop(tool string, period int, action policy.Action) {
	if period < 0 || period > maxPeriod {
		period = 0
	}
	m.policy.loops.get(tool)[period].get(string(action)).Inc()
}

// hookCounters count hooks by what they are for.
type hookCounters struct{ on closed[*momentCounters] }

// momentCounters are those of one moment at which hooks run.
type momentCounters struct {
	outcomes closed[prometheus.Counter]
	duration prometheus.Observer
}

func newHookCounters(r *registrar) hookCounters {
	runs := r.counter("toold_hooks_total", "Hooks that ran, by event and outcome: ok, denied, replaced, failed.", "event", "outcome")
	duration := r.histogram("toold_hook_duration_seconds", "Run time of hooks, by event.", latency, "event")
	moments := []string{
		hook.CallBefore, hook.CallAfter, hook.SessionCreated, hook.SessionEnded, hook.FileEdited,
	}
	return hookCounters{byName(moments, unknown, func(on string) *momentCounters {
		return &momentCounters{
			outcomes: byName([]string{"ok", "denied", "replaced"}, "failed", func(outcome string) prometheus.Counter {
				return runs.WithLabelValues(on, outcome)
			}),
			duration: duration.WithLabelValues(on),
		}
	})}
}

// Hooked counts and times a hook.
func (m *Metrics) Hooked(on, outcome string, d time.Duration) {
	c := m.hooks.on.get(on)
	c.outcomes.get(outcome).Inc()
	c.duration.Observe(max(d, 0).Seconds())
}
