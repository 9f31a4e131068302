package session

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/tool/shell"
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
	session  *Session   // nil where only a text is wanted
	// provided: prep is what would be seen if no path had a link in it.
	provided bool
	// bound: Run goes by all that Prepare saw, which somebody was shown. Otherwise a
	// file that is written is taken as it is then, and only its path must be this one.
	bound bool
}

// judge does step 6 as far as rules can: it says what they make of all that the
// call wants, and of the loop that it would be part of.
func (s *Session) judge(c *call, inv *tool.Invocation, a tool.Access, prep *run.Prepared, loop *loopFound) *judgement {
	j := &judgement{inv: inv, access: a, prep: prep, requests: s.requestsOf(inv, a, prep), loop: loop, session: s}
	j.requests = append(j.requests, c.steered(a.Command, j.requests)...)
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
	if !one[0].Opaque || one[0].Permission != tool.PermissionBash || v.Action == policy.Deny {
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
		a.Pending = append(slices.Clip(a.Pending), b.Pending...)
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

// steered asks for a command as a whole whose own environment may make something
// else of its parts than their text says, as an assignment in front of it would. Of
// others, the requests do that already where they must. The session's environment
// is its maker's, as the root is.
func (c *call) steered(command string, requests []policy.Request) []policy.Request {
	if command == "" {
		return nil
	}
	var sets []string
	for _, name := range slices.Sorted(maps.Keys(c.req.Env)) {
		if !shell.Harmless(name, c.req.Env[name]) {
			sets = append(sets, name)
		}
	}
	if sets == nil {
		return nil
	}
	for i := range requests {
		if requests[i].Permission == tool.PermissionBash {
			requests[i].Save = "" // it would be saved for other environments too
		}
	}
	// Values are not shown. With a wildcard the text is that of no rule, so that
	// only "*" allows it.
	text := strings.Join(sets, "=* ") + "=* " + command
	why := "the call's environment sets " + strings.Join(sets, ", ") + ", which may change what programs do"
	return []policy.Request{{Permission: tool.PermissionBash, Pattern: text, Opaque: true, Why: why}}
}

// shell runs the session's commands of bash.
func (s *Session) shell() []string {
	set := s.m.settings.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	return shellOf(&s.row, set)
}

// shellOf is the shell of a session: the one that was configured when it began,
// since a reload does not reach its sandbox.
func shellOf(row *store.Session, set *Settings) []string {
	if len(row.Shell) > 0 {
		return row.Shell
	}
	return set.Shell
}

// requestsOf is what policy judges: what the call names, as it resolves.
func (s *Session) requestsOf(inv *tool.Invocation, a tool.Access, prep *run.Prepared) []policy.Request {
	var targets []run.Target
	if prep != nil {
		targets = prep.Targets
	}
	if _, ok := inv.Input.(tool.Placed); ok && len(targets) > 0 {
		// The first is the working directory. A path may be written like it and
		// lead elsewhere, since it begins there.
		targets = targets[1:]
	}
	places := policy.Places{Resolve: func(asked string) (policy.Resolved, bool) { return resolved(targets, asked) }}
	s.mu.Lock()
	places.Worktree, places.Mounts = s.row.Worktree.Target, targetsOf(s.row.Mounts)
	s.mu.Unlock()
	return places.Requests(a)
}

// targetsOf are the places inside where directories are mounted.
func targetsOf(mounts []client.Mount) []string {
	var all []string
	for _, mt := range mounts {
		all = append(all, mt.Target)
	}
	return all
}

// resolved finds where a path leads, if that could be found out.
func resolved(targets []run.Target, asked string) (policy.Resolved, bool) {
	for i := range targets {
		t := &targets[i]
		if t.Asked == asked && path.IsAbs(t.Path) && t.Kind != kindUnknown {
			return policy.Resolved{Path: t.Path, Dir: t.Kind == "dir"}, true
		}
	}
	return policy.Resolved{}, false
}

// kindUnknown is the kind of a target that could not be resolved to its end.
const kindUnknown = "unknown"

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
		InputHash: sha256.Sum256(j.inv.JSON), Input: j.inv.JSON, Verdict: j.verdict, Requests: j.each,
		Provided: j.provided, Typed: c.row.Typed,
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
	if v.Request.Unknown {
		e.Hint = "name the file itself, not a variable, a pattern or a descriptor that stands for it; a user can change the rule"
	}
	for i := range j.each {
		if hint := j.mountHint(&j.each[i]); hint != "" {
			e.Hint += "; " + hint
			break
		}
	}
	return e
}

// mountHint says how whoever made the session can have calls use a mount of theirs that
// no rule of theirs is about; "" where r is about none.
func (j *judgement) mountHint(r *Judged) string {
	if j.session == nil || r.Action == policy.Allow || r.Rule != policy.SourceDefault || r.Request.Permission != policy.PermissionExternal {
		return ""
	}
	row := j.session.snapshotRow()
	for _, target := range targetsOf(row.Mounts) {
		if policy.RelativeTo(target, r.Request.Path) != "" && len(target) < 200 && !strings.ContainsAny(target, "*?") {
			return fmt.Sprintf(`%s is mounted for this session: external_directory = { %q = "allow", %q = "allow" } in [permission] of config.toml lets calls use it`,
				target, target, target+"/*")
		}
	}
	return ""
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
		name = name[:plain.RuneStart([]byte(name), most)] + "…"
	}
	if r.Unknown {
		return fmt.Sprintf("%s %q (%s)", r.Permission, name, r.Why)
	}
	if r.Opaque && r.Permission == tool.PermissionBash {
		return fmt.Sprintf("%s %q, which cannot be judged by its parts (%s),", r.Permission, name, r.Why)
	}
	return fmt.Sprintf("%s %q", r.Permission, name)
}

// because names the rule that decided and its reason.
func (j *judgement) because() string { return because(&j.verdict) }

func because(v *policy.Verdict) string {
	text := " by " + v.Rule
	if v.Pattern != "" {
		text += " (" + v.Pattern + ")"
	}
	if v.Reason != "" {
		text += ": " + v.Reason
	}
	return text
}
