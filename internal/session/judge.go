package session

import (
	"crypto/sha256"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// judgement is what policy says of a call as it stands.
type judgement struct {
	inv      *tool.Invocation
	access   tool.Access
	prep     *run.Prepared
	requests []policy.Request
	verdict  policy.Verdict
	each     []Judged
	loop     *loopFound // nil: the call repeats nothing
	rules    *ruleset   // that it was judged by
}

// judge does step 6 as far as rules can: it says what they make of all that the
// call wants, and of the loop that it would be part of.
func (s *Session) judge(c *call, inv *tool.Invocation, a tool.Access, prep *run.Prepared, loop *loopFound) *judgement {
	j := &judgement{inv: inv, access: a, prep: prep, requests: s.requestsOf(a, prep), loop: loop}
	if loop != nil {
		j.requests = append(j.requests, policy.Request{
			Permission: policy.PermissionDoomLoop, Pattern: inv.Tool.Name, Save: inv.Tool.Name,
		})
	}
	s.weigh(c, j)
	return j
}

// weigh judges by the rules of this moment.
func (s *Session) weigh(c *call, j *judgement) {
	j.rules = s.rulesFor(c.profile)
	j.verdict, j.each = j.rules.judge(j.requests)
	j.weighLoop()
	if j.verdict.Action == policy.Ask && j.rules.settings.Approvals.None {
		j.verdict.Action, j.verdict.Pending = policy.Deny, nil
		j.verdict.Reason = join(j.verdict.Reason, `it needs an approval, and nobody is there to give one ([approvals] approver = "none")`)
	}
}

// weighLoop denies a loop that has gone on for too long, whatever the rules say.
func (j *judgement) weighLoop() {
	if j.loop == nil || j.rules.err != nil {
		return
	}
	last := &j.each[len(j.each)-1]
	if j.loop.Hard && last.Action != policy.Deny {
		last.Action, last.Rule = policy.Deny, ruleHardLimit
		if j.verdict.Action != policy.Deny {
			j.verdict = policy.Verdict{
				Action: policy.Deny, Rule: ruleHardLimit, Request: last.Request,
				Reason: "so many repeats are denied whatever the rules say",
			}
		}
	}
}

// join adds a reason to another, which may be "".
func join(reason, more string) string {
	if reason == "" {
		return more
	}
	return reason + "; " + more
}

// Sources of verdicts that are settings and not rules.
const (
	ruleHardLimit = "[doom_loop] hard_limit"
	ruleOpaque    = "[tools.bash] opaque"
	ruleProfile   = "profile"
	ruleProbe     = "doctor"
)

// judge gives the verdict on requests, which is that of the strictest, and the
// one on each.
func (r *ruleset) judge(requests []policy.Request) (policy.Verdict, []Judged) {
	if r.err != nil {
		v := policy.Verdict{Action: policy.Deny, Rule: ruleProfile, Reason: r.err.Error()}
		each := make([]Judged, 0, len(requests))
		for _, q := range requests {
			each = append(each, Judged{Request: q, Action: v.Action, Rule: v.Rule})
			v.Request = requests[0]
		}
		return v, each
	}
	if len(requests) == 0 {
		return r.stack.Judge(nil), nil
	}
	var total policy.Verdict
	each := make([]Judged, 0, len(requests))
	for i := range requests {
		v := r.judgeOne(requests[i : i+1])
		each = append(each, Judged{Request: requests[i], Action: v.Action, Rule: v.Rule})
		total = stricter(total, v)
	}
	return total, each
}

// judgeOne judges one request, and what cannot be judged by its parts as the
// configuration says.
func (r *ruleset) judgeOne(one []policy.Request) policy.Verdict {
	v := r.stack.Judge(one)
	if !one[0].Opaque || one[0].Permission != "bash" || v.Action == policy.Deny {
		return v
	}
	const why = "the command cannot be judged by its parts"
	switch {
	case r.opaque == string(policy.Deny), r.opaque == string(policy.Ask) && r.stack.Headless():
		return policy.Verdict{Action: policy.Deny, Rule: ruleOpaque, Reason: why, Request: one[0]}
	case r.opaque == string(policy.Ask) && v.Action == policy.Allow:
		return policy.Verdict{Action: policy.Ask, Rule: ruleOpaque, Reason: why, Request: one[0], Pending: one}
	}
	return v
}

// stricter gives the stricter of two verdicts, the first where they are equal,
// with everything that is to be asked. The zero verdict is none.
func stricter(a, b policy.Verdict) policy.Verdict {
	switch {
	case rank(b.Action) > rank(a.Action):
		return b
	case b.Action == policy.Ask && a.Action == policy.Ask:
		a.Pending = append(a.Pending[:len(a.Pending):len(a.Pending)], b.Pending...)
	}
	return a
}

func rank(a policy.Action) int {
	switch a {
	case policy.Allow:
		return 1
	case policy.Ask:
		return 2
	case "":
		return 0
	}
	return 3
}

// requestsOf is what policy judges: what the call names, as it resolves.
func (s *Session) requestsOf(a tool.Access, prep *run.Prepared) []policy.Request {
	s.mu.Lock()
	m := mapping{worktree: s.row.Worktree.Target, mounts: s.row.Mounts}
	s.mu.Unlock()
	m.all = make([]policy.Request, 0, len(a.Requests))
	if prep != nil {
		m.targets = prep.Targets
	}
	for i := range a.Requests {
		m.add(&a.Requests[i])
	}
	return m.all
}

// mapping turns what a call names into what is judged.
type mapping struct {
	worktree string
	mounts   []client.Mount
	targets  []run.Target
	all      []policy.Request
	outside  map[string]bool // requests for external_directory that there are already
}

func (m *mapping) add(r *tool.Request) {
	q := policy.Request{Permission: r.Permission, Pattern: r.Pattern, Opaque: r.Opaque, Save: r.Save}
	if r.Path == "" {
		if r.Write || r.Outside {
			q.Opaque, q.Save = true, "" // a path that only the running command knows
		}
		m.all = append(m.all, q)
		return
	}
	t := m.resolved(r.Path)
	if r.Outside {
		m.addOutside(r, t)
		return
	}
	if r.Permission == "glob" || r.Permission == "grep" {
		// What is looked for, and where.
		m.all = append(m.all, q)
		q = policy.Request{Permission: r.Permission, Pattern: r.Path}
	}
	if t == nil {
		// What it leads to is not known, so no pattern may allow it.
		q.Opaque, q.Save = true, ""
	} else {
		q.Path, q.Relative = t.Path, relativeTo(m.worktree, t.Path)
		q.Save = exactPattern(q)
	}
	m.all = append(m.all, q)
	m.addOutside(r, t)
}

// resolved finds where a path leads, nil where that could not be found out.
func (m *mapping) resolved(asked string) *run.Target {
	for i := range m.targets {
		t := &m.targets[i]
		if t.Asked == asked && path.IsAbs(t.Path) && t.Kind != kindUnknown {
			return t
		}
	}
	return nil
}

// kindUnknown is the kind of a target that could not be resolved to its end.
const kindUnknown = "unknown"

// addOutside asks for external_directory where a path leads to a place that is
// not the session's own.
func (m *mapping) addOutside(r *tool.Request, t *run.Target) {
	q := policy.Request{Permission: policy.PermissionExternal, Pattern: r.Path}
	switch {
	case isSink(r.Path):
		return
	case t == nil:
		q.Opaque = true
	case m.isOwn(t.Path), !r.Write && m.isSystem(t.Path), isSink(t.Path):
		return
	default:
		q.Path = t.Path
		if dir := path.Dir(t.Path); dir != "/" && t.Kind != "dir" && isLiteral(dir) {
			q.Save = dir + "/*"
		} else if dir != "/" && isLiteral(t.Path) {
			q.Save = t.Path
		}
	}
	key := q.Path + "\x00" + q.Pattern
	if q.Path != "" {
		key = q.Path
	}
	if m.outside[key] {
		return
	}
	if m.outside == nil {
		m.outside = make(map[string]bool)
	}
	m.outside[key] = true
	m.all = append(m.all, q)
}

// isOwn reports whether p is the session's own: reading and writing there is what
// it was made for.
func (m *mapping) isOwn(p string) bool {
	for _, dir := range []string{m.worktree, "/tmp", "/dev/shm", sandbox.Home, sandbox.OutputDir} {
		if under(p, dir) {
			return true
		}
	}
	return false
}

// systemPlaces are read-only parts of every root filesystem, with nothing in them
// that a session was not meant to read.
var systemPlaces = []string{
	"/bin", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/proc", "/sbin", "/sys", "/usr",
}

// isSystem reports whether p is part of the root filesystem that every program
// needs. What is mounted there is not.
func (m *mapping) isSystem(p string) bool {
	for _, mt := range m.mounts {
		if under(p, mt.Target) {
			return false
		}
	}
	for _, dir := range systemPlaces {
		if under(p, dir) {
			return true
		}
	}
	return false
}

// sinks are devices that keep nothing of what is written to them, and streams
// that the command has anyway.
var sinks = map[string]bool{
	"/dev/null": true, "/dev/zero": true, "/dev/full": true, "/dev/tty": true,
	"/dev/stdin": true, "/dev/stdout": true, "/dev/stderr": true,
	"/dev/fd/0": true, "/dev/fd/1": true, "/dev/fd/2": true,
}

func isSink(p string) bool { return sinks[p] }

// relativeTo is p below dir without dir, "." for dir itself and "" for what is
// not below it.
func relativeTo(dir, p string) string {
	if p == dir {
		return "."
	}
	if rest, ok := strings.CutPrefix(p, strings.TrimSuffix(dir, "/")+"/"); ok {
		return rest
	}
	return ""
}

// isLiteral reports whether a pattern matches nothing but itself.
func isLiteral(pattern string) bool { return !strings.ContainsAny(pattern, "*?") }

// exactPattern is the pattern that allows this one file again, where there is one.
func exactPattern(q policy.Request) string {
	p := q.Path
	if q.Relative != "" && q.Relative != "." {
		p = q.Relative
	}
	if !isLiteral(p) || strings.HasPrefix(p, "~/") || strings.HasPrefix(p, "$HOME/") {
		return ""
	}
	return p
}

// judged notes how the call was judged.
func (c *call) judged(action policy.Action, rule, approval string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.row.Permission = &client.CallPermission{Verdict: string(action), Rule: rule, ApprovalID: approval}
}

// decision is what observers and the audit log are told of a judgement.
func (s *Session) decision(c *call, j *judgement) *Decision {
	return &Decision{
		Time: time.Now().UTC(), Principal: c.by, Session: s.id, Call: c.id, Tool: j.inv.Tool.Name, Profile: c.profile,
		InputHash: sha256.Sum256(j.inv.Input), Input: j.inv.Input, Verdict: j.verdict, Requests: j.each,
	}
}

// decided tells a judgement. Its error is why the call must not run.
func (s *Session) decided(d *Decision) error {
	s.m.observe(func(o Observer) { o.Decided(d) })
	if s.m.cfg.Auditor == nil {
		return nil
	}
	return s.m.cfg.Auditor.Decided(d)
}

// denied words why a call must not run, and what to do next.
func (j *judgement) denied() *client.Error {
	v := &j.verdict
	if v.Request.Permission == policy.PermissionDoomLoop && j.loop != nil {
		e := j.loop.refused(j.inv.Tool.Name)
		e.Message += j.because()
		return e
	}
	e := &client.Error{
		Code:    client.CodeDenied,
		Message: "denied: " + j.what() + j.because(),
		Hint:    "do it in another way, or leave it out; a user can change the rule",
	}
	return e
}

// what names the request that decided.
func (j *judgement) what() string {
	r := &j.verdict.Request
	if r.Permission == "" {
		return j.inv.Tool.Name
	}
	name := r.Pattern
	if r.Path != "" && r.Path != name {
		name += " → " + r.Path
	}
	const most = 200
	if len(name) > most {
		name = name[:runeStart([]byte(name), most)] + "…"
	}
	if r.Opaque && r.Permission == "bash" {
		return fmt.Sprintf("%s %q, which cannot be judged by its parts,", r.Permission, name)
	}
	return fmt.Sprintf("%s %q", r.Permission, name)
}

// because names the rule and its reason.
func (j *judgement) because() string {
	v := &j.verdict
	text := " by " + v.Rule
	if v.Pattern != "" {
		text += " (" + v.Pattern + ")"
	}
	if v.Reason != "" {
		text += ": " + v.Reason
	}
	return text
}
