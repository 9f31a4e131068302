package judge

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/tool/shell"
)

// Question is a call that is to be judged.
type Question struct {
	Profile string
	Env     map[string]string // of the call alone
	Inv     *tool.Invocation
	Access  tool.Access
	Prep    *run.Prepared // what Prepare saw; nil where nothing was looked at
	Loop    *Loop         // that it would be part of; nil: it repeats nothing
}

// Judgement is what policy says of a call as it stands.
type Judgement struct {
	Question
	Verdict policy.Verdict
	Each    []Judged
	Rules   *Rules // that it was judged by
	// Provided: Prep is what would be seen if no path had a link in it.
	Provided bool

	requests []policy.Request
	mounts   []string // of the session, inside
	worktree string   // inside
	closed   []string // mounts that can be kept from it: see Unseen
}

// Judged is one request and its own verdict.
type Judged struct {
	Request policy.Request
	Action  policy.Action
	Rule    string
}

// Decision is one judgement of a call, for metrics and audit.
type Decision struct {
	Time       time.Time
	Principal  auth.Principal // who made the call
	Session    string
	Call       string
	Tool       string
	Profile    string
	InputHash  [32]byte        // of the normalised input
	Input      json.RawMessage // normalised; the audit log has it only when it is told to
	Verdict    policy.Verdict  // as judged, or as an approver, a loop or a hook made it
	Requests   []Judged
	Approver   string // "uid 0", "command", "hook NAME" …; "" = the rules alone
	ApprovalID string
	// Provided: the verdict holds if the call's paths lead where they say. The
	// agent does nothing where they do not, and another decision follows.
	Provided bool
	// Typed: the client says that a person has typed the call.
	Typed bool
}

// Decision is the judgement of a call of by's.
func (j *Judgement) Decision(by auth.Principal, call *client.Call) *Decision {
	return &Decision{
		Time: time.Now().UTC(), Principal: by, Session: call.SessionID, Call: call.ID, Tool: j.Inv.Tool.Name, Profile: j.Profile,
		InputHash: sha256.Sum256(j.Inv.JSON), Input: j.Inv.JSON, Verdict: j.Verdict, Requests: j.Each,
		Provided: j.Provided, Typed: call.Typed,
	}
}

// Judge says what the rules of this moment make of all that the call wants, and of the
// loop that it would be part of.
func (j *Judge) Judge(q Question) *Judgement {
	row := j.row()
	m := &Judgement{Question: q, requests: j.Requests(q.Inv, q.Access, q.Prep, q.Env), mounts: Targets(row.Mounts), worktree: row.Worktree.Target, closed: row.Closed}
	if q.Loop != nil {
		m.requests = append(m.requests, policy.Request{
			Permission: policy.PermissionDoomLoop, Pattern: q.Inv.Tool.Name, Save: q.Inv.Tool.Name,
		})
	}
	j.Weigh(m)
	return m
}

// JudgeLoop judges a call that cannot run, for the loop that it is part of. There is
// nothing that somebody could be asked about.
func (j *Judge) JudgeLoop(q Question) *Judgement {
	m := &Judgement{Question: q, requests: []policy.Request{{Permission: policy.PermissionDoomLoop, Pattern: q.Inv.Tool.Name}}}
	j.Weigh(m)
	if m.Verdict.Action == policy.Ask {
		m.Verdict.Action, m.Verdict.Pending = policy.Deny, nil
		m.Each[0].Action = policy.Deny
	}
	return m
}

// Weigh judges again, by the rules of this moment.
func (j *Judge) Weigh(m *Judgement) {
	m.Rules = j.Rules(m.Profile)
	m.Verdict, m.Each = m.Rules.Judge(m.requests, m.closed...)
	if m.Loop != nil && m.Rules.err == nil {
		m.weighLoop()
	}
	if m.Verdict.Action == policy.Ask && m.Rules.config.Unanswered {
		m.Verdict.Action, m.Verdict.Pending = policy.Deny, nil
		m.Verdict.Reason = policy.Join(m.Verdict.Reason, `it needs an approval, and nobody is there to give one ([approvals] approver = "none")`)
	}
}

// weighLoop denies a loop that has gone on for too long, whatever the rules say.
func (j *Judgement) weighLoop() {
	last := &j.Each[len(j.Each)-1]
	if j.Loop.Hard && last.Action != policy.Deny {
		last.Action, last.Rule = policy.Deny, ruleHardLimit
		if j.Verdict.Action != policy.Deny {
			j.Verdict = policy.Verdict{
				Action: policy.Deny, Rule: ruleHardLimit, Request: last.Request,
				Reason: "this many repeats are always denied",
			}
		}
	}
}

// Sources of verdicts that are settings and not rules.
const (
	ruleHardLimit = "[doom_loop] hard_limit"
	ruleOpaque    = "[tools.bash] opaque"
	ruleProfile   = "profile"
	RuleProbe     = "doctor"
)

// Judge gives the verdict on requests, which is that of the strictest, and the
// one on each. closed are the mounts that are kept from who names nothing in them.
func (r *Rules) Judge(requests []policy.Request, closed ...string) (policy.Verdict, []Judged) {
	v, each := r.judge(requests)
	if free := r.unconfined(requests, each, closed); free != nil {
		return r.judge(free)
	}
	return v, each
}

func (r *Rules) judge(requests []policy.Request) (policy.Verdict, []Judged) {
	if r.err != nil {
		v := policy.Verdict{Action: policy.Deny, Rule: ruleProfile, Reason: r.err.Error()}
		each := make([]Judged, 0, len(requests))
		for _, q := range requests {
			each = append(each, Judged{Request: q, Action: v.Action, Rule: v.Rule})
			v.Request = requests[0]
		}
		return v, each
	}
	verdicts, each := make([]policy.Verdict, 0, len(requests)), make([]Judged, 0, len(requests))
	for i := range requests {
		v := r.stack.JudgeOne(&requests[i])
		if q := &requests[i]; q.Opaque && q.Permission == tool.PermissionBash && v.Action != policy.Deny {
			v = r.judgeOpaque(q, v)
		}
		verdicts = append(verdicts, v)
		each = append(each, Judged{Request: requests[i], Action: v.Action, Rule: v.Rule})
	}
	return policy.Strictest(verdicts), each
}

// judgeOpaque judges a command that cannot be judged by its parts as the configuration says;
// v is what the rules say.
func (r *Rules) judgeOpaque(q *policy.Request, v policy.Verdict) policy.Verdict {
	const why = "the command cannot be judged by its parts"
	switch {
	case r.config.Opaque == string(policy.Deny), r.config.Opaque == string(policy.Ask) && r.stack.Headless():
		return policy.Verdict{Action: policy.Deny, Rule: ruleOpaque, Reason: why, Request: *q}
	case r.config.Opaque == string(policy.Ask) && v.Action == policy.Allow:
		return policy.Verdict{Action: policy.Ask, Rule: ruleOpaque, Reason: why, Request: *q, Pending: []policy.Request{*q}}
	}
	return v
}

// Reader is the shell that reads commands with an environment of the session's or the call's own,
// of which names are enough: values are not on record.
func Reader(shell []string, envs ...map[string]string) *tool.Reader {
	r := &tool.Reader{Shell: shell}
	for _, env := range envs {
		_, home := env["HOME"]
		_, listed := env["CDPATH"]
		_, named := env["PWD"] // by another path of the same directory, ".." leads elsewhere
		r.Homeless, r.Astray = r.Homeless || home, r.Astray || listed || named
	}
	return r
}

// steered asks for a command as a whole whose own environment may make something
// else of its parts than their text says, as an assignment in front of it would. Of
// others, the requests do that already where they must. The rest of the session's environment
// is its maker's, as the root is.
func steered(env map[string]string, command string, requests []policy.Request) []policy.Request {
	var sets []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !shell.Harmless(name, env[name]) {
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

// Requests is what policy judges: what the call names, as it resolves, and what env, the environment of
// the call alone, may make of it.
func (j *Judge) Requests(inv *tool.Invocation, a tool.Access, prep *run.Prepared, env map[string]string) []policy.Request {
	var targets []run.Target
	if prep != nil {
		targets = prep.Targets
	}
	row := j.row()
	places := PlacesOf(&row)
	if in, ok := inv.Input.(tool.Placed); ok {
		if in.Workdir() == "" {
			places.Dir = places.Worktree
		}
		if len(targets) > 0 {
			// The first is the working directory. A path may be written like it and
			// lead elsewhere, since it begins there.
			if to, known := resolved(targets[:1], targets[0].Asked); known {
				places.Dir = to.Path
			}
			targets = targets[1:]
		}
	}
	places.Resolve = func(asked string) (policy.Resolved, bool) { return resolved(targets, asked) }
	all := places.Requests(a)
	if len(env) > 0 && a.Command != "" {
		all = append(all, steered(env, a.Command, all)...)
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

// Denied words why a call must not run, and what to do next.
func (j *Judgement) Denied() *fault.Error {
	v := &j.Verdict
	if v.Request.Permission == policy.PermissionDoomLoop && j.Loop != nil {
		return fault.Loop.Errorf("stopped: %s%s", j.Loop.Describe(j.Inv.Tool.Name), Because(v)).
			Next("look at what the answers say and do something else; repeating it will not help")
	}
	e := fault.Denied.Errorf("denied: %s%s", j.What(), Because(v)).
		Next("do it in another way, or leave it out; a user can change the rule")
	if v.Request.Unknown {
		e.Hint = "name the file itself, not a variable, a pattern or a descriptor that stands for it; a user can change the rule"
	}
	if v.Request.Permission == policy.PermissionExternal && j.worktree != "" {
		e.Hint = "the worktree is " + plain.Name(j.worktree) + ": name files in it; " + e.Hint
	}
	for i := range j.Each {
		if hint := j.MountHint(&j.Each[i]); hint != "" {
			e.Hint += "; " + hint
			break
		}
	}
	return e
}

// MountHint says how whoever made the session can have calls use a mount of theirs that
// no rule of theirs is about; "" where r is about none.
func (j *Judgement) MountHint(r *Judged) string {
	if r.Action == policy.Allow || r.Rule != policy.SourceDefault || r.Request.Permission != policy.PermissionExternal {
		return ""
	}
	for _, target := range j.mounts {
		if policy.RelativeTo(target, r.Request.Path) != "" && len(target) < 200 && !strings.ContainsAny(target, "*?") {
			return fmt.Sprintf(`%s is mounted for this session: external_directory = { %q = "allow", %q = "allow" } in [permission] of config.toml lets calls use it`,
				target, target, target+"/*")
		}
	}
	return ""
}

// What names the request that decided.
func (j *Judgement) What() string {
	r := &j.Verdict.Request
	if r.Permission == "" {
		return j.Inv.Tool.Name
	}
	name := r.Pattern
	if r.Path != "" && r.Path != name {
		name += " → " + r.Path
	}
	name = plain.Cut(name, 200)
	if r.Unknown {
		return fmt.Sprintf("%s %q (%s)", r.Permission, name, r.Why)
	}
	if r.Opaque && r.Permission == tool.PermissionBash {
		return fmt.Sprintf("%s %q, which cannot be judged by its parts (%s),", r.Permission, name, r.Why)
	}
	return fmt.Sprintf("%s %q", r.Permission, name)
}

// Because names the rule that decided and its reason, as the end of a sentence.
func Because(v *policy.Verdict) string {
	text := " by " + v.By()
	if v.Reason != "" {
		text += ": " + v.Reason
	}
	return text
}

// Asked are the requests of the call that need a yes.
func (j *Judgement) Asked() []Judged {
	var all []Judged
	for _, r := range j.Each {
		if r.Action == policy.Ask {
			all = append(all, r)
		}
	}
	return all
}

// OnlyLoop reports whether nothing but the loop is asked about.
func (j *Judgement) OnlyLoop() bool {
	asked := j.Asked()
	return len(asked) == 1 && asked[0].Request.Permission == policy.PermissionDoomLoop
}
