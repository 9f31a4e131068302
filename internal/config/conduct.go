package config

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toold/toold/internal/policy"
)

// The sections that say how policy is carried out: loops, approvals, hooks and
// the audit log. The rules themselves are package policy's.

// Bounds of [doom_loop]: what the look at a session's history may cost.
const (
	maxPeriod    = 16
	maxThreshold = 200
)

func (v *validator) doomLoop(d *policy.LoopConfig) {
	v.check(d.Threshold >= 2 && d.Threshold <= maxThreshold, "doom_loop.threshold", "%d is not between 2 and %d", d.Threshold, maxThreshold)
	v.check(d.PollingThreshold >= d.Threshold && d.PollingThreshold <= maxThreshold, "doom_loop.polling_threshold",
		"%d is not between threshold (%d) and %d", d.PollingThreshold, d.Threshold, maxThreshold)
	v.check(d.MaxPeriod >= 1 && d.MaxPeriod <= maxPeriod, "doom_loop.max_period", "%d is not between 1 and %d", d.MaxPeriod, maxPeriod)
	v.check(d.HardLimit == 0 || d.HardLimit >= d.Threshold && d.HardLimit <= maxThreshold, "doom_loop.hard_limit",
		"%d is neither 0 (off) nor between threshold (%d) and %d", d.HardLimit, d.Threshold, maxThreshold)
	need := d.History()
	v.check(need <= policy.MaxHistory || d.MaxPeriod > maxPeriod, "doom_loop.max_period",
		"this many repeats of cycles this long are %d calls, but sessions remember only %d: lower it or the thresholds", need, policy.MaxHistory)
}

// maxApprovalTime bounds how long a call may wait for a person.
const maxApprovalTime = 7 * 24 * time.Hour

// maxMCPWait is the longest that an answer by MCP may wait for its call.
const maxMCPWait = time.Hour

func (v *validator) mcpServer(m *MCPServer) {
	t := time.Duration(m.Wait)
	v.check(t >= time.Second && t <= maxMCPWait, "mcp_server.wait", `%s is not between "1s" and "1h"`, m.Wait)
}

func (v *validator) approvals(a *Approvals) {
	t := time.Duration(a.Timeout)
	v.check(t >= time.Second && t <= maxApprovalTime, "approvals.timeout", `%s is not between "1s" and "7d"`, a.Timeout)
	v.oneOf("approvals.approver", a.Approver, []string{"any", "none"})
	if len(a.Command) > 0 {
		v.program([]string{"approvals", "command"}, a.Command)
		v.check(a.Approver != "none", "approvals.command", `would never be asked with approver = "none": remove one of them`)
	}
}

// minRotate keeps a busy log from being cut into very many files.
const minRotate = 1 << 20

func (v *validator) audit(a *Audit) {
	if a.Path != "" {
		v.path([]string{"audit", "path"}, a.Path, "")
	}
	v.oneOf("audit.mode", a.Mode, []string{"strict", "lenient"})
	v.check(a.Rotate >= minRotate, "audit.rotate", "must be at least 1MiB")
}

// hookMoments are the values of a hook's "on", with what it may match.
var hookMoments = map[string][]string{
	"call.before":     {"profile", "tenant", "tool"},
	"call.after":      {"profile", "tenant", "tool"},
	"session.created": {"profile", "tenant"},
	"session.ended":   {"profile", "tenant"},
	"file.edited":     {"path", "profile", "tenant", "tool"},
}

// maxHookTime bounds how long a hook may hold up a call.
const maxHookTime = 10 * time.Minute

func (v *validator) hooks(hooks []Hook) {
	for i, h := range hooks {
		path := []string{"hook", strconv.Itoa(i + 1)}
		sub := func(key string) string { return strings.Join(append(slices.Clip(path), key), ".") }
		v.oneOf(sub("on"), h.On, slices.Sorted(maps.Keys(hookMoments)))
		switch {
		case len(h.Command) == 0:
			v.check(false, sub("command"), "must name a program")
		case h.On != "file.edited": // that one is found in the sandbox
			v.program(append(slices.Clip(path), "command"), h.Command)
		}
		t := time.Duration(h.Timeout)
		v.check(t >= 0 && t <= maxHookTime, sub("timeout"), `%s is not between 0 (10 s) and "10m"`, h.Timeout)
		if h.Fail != "" {
			v.oneOf(sub("fail"), h.Fail, []string{"closed", "open"})
		}
		if may, ok := hookMoments[h.On]; ok {
			for _, key := range slices.Sorted(maps.Keys(h.Match)) {
				v.check(slices.Contains(may, key), sub("match."+key), "a hook on %s can match %s only", h.On, orList(may))
			}
		}
	}
}

// program checks a command that the daemon runs on the host. It must name its
// program in full: what a search path finds depends on who set it.
func (v *validator) program(path []string, command []string) {
	if !filepath.IsAbs(command[0]) {
		v.problem(path, "%q is not the absolute path of a program", command[0])
	}
	for _, arg := range command {
		if strings.ContainsRune(arg, 0) {
			v.problem(path, "%q has a NUL byte", arg)
		}
	}
}
