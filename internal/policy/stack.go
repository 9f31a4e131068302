package policy

import (
	"slices"
	"strings"

	"github.com/toold/toold/internal/tool/run/readrule"
)

// Stack is all that one session is judged by: the list, in which the last match
// wins, the ceilings, and the approvals that were saved. It is immutable; its
// patterns are compiled once. A Stack without rules asks about everything.
type Stack struct {
	// list is the defaults, the rules for all, those of the profile. above is how
	// many of them stand above the built-in profile.
	list  []*rule
	above int

	ceilings []ceiling
	saved    []*rule
	headless string   // the profile whose asks are denials; "" = none
	tls      []uint16 // ports besides 443 on which nothing but TLS passes
}

// ceiling is a compiled Ceiling.
type ceiling struct {
	name  string
	rules []*rule
}

// With adds ceilings: the session's own rules, the worktree's. s stays as it is.
func (s *Stack) With(c ...Ceiling) *Stack {
	t := *s
	t.ceilings = slices.Clone(s.ceilings)
	for _, c := range c {
		t.ceilings = append(t.ceilings, ceiling{c.Name, compileAll(c.Rules)})
	}
	return &t
}

// Remember adds approvals that were saved; their actions are of no account. They
// only ever turn ask into allow. s stays as it is.
func (s *Stack) Remember(saved []Rule) *Stack {
	t := *s
	saved = slices.Clone(saved)
	for i := range saved {
		saved[i].Action = Allow // what a rule without a port is about depends on it
	}
	t.saved = append(slices.Clip(s.saved), compileAll(saved)...)
	return &t
}

// Judge gives the verdict on a call with these requests: the strictest of them
// all. No request at all is allowed.
func (s *Stack) Judge(requests []Request) Verdict {
	verdicts := make([]Verdict, len(requests))
	for i := range requests {
		verdicts[i] = s.JudgeOne(&requests[i])
	}
	return Strictest(verdicts)
}

// Strictest gives the strictest of the verdicts on a call's requests, the first where
// several are, with all that is to be asked.
func Strictest(verdicts []Verdict) Verdict {
	worst := Verdict{Action: Allow, Rule: SourceDefault, Reason: "nothing is asked for"}
	var pending []Request
	for i, v := range verdicts {
		pending = append(pending, v.Pending...)
		if i == 0 || readrule.Strictness(v.Action) > readrule.Strictness(worst.Action) {
			worst = v
		}
	}
	if worst.Action == Ask {
		worst.Pending = pending
	}
	return worst
}

// decision is how one request was judged.
type decision struct {
	action Action
	rule   *rule // the deciding one; nil where none matched
	reason string
	layer  string // of the deciding rule
	unread bool   // it is about what cannot be read, and rule may be about something else
}

// JudgeOne gives the verdict on one request.
func (s *Stack) JudgeOne(q *Request) Verdict {
	d := s.decide(q)
	v := Verdict{Action: d.action, Rule: SourceDefault, Reason: d.reason, Request: *q}
	if d.rule != nil {
		v.Rule, v.Pattern = d.rule.Source, d.rule.label
	}
	if d.action == Ask {
		v.Pending = []Request{*q}
	}
	return v
}

// denies reports whether a rule denies, rather than that nobody can be asked.
func (d *decision) denies() bool {
	return d.rule != nil && readrule.Strictness(d.rule.Action) > readrule.Strictness(Ask)
}

func (d *decision) source() string {
	if d.rule == nil {
		return SourceDefault
	}
	return d.rule.Source
}

// Names of layers, for explanations.
const (
	layerRules = "rules"
	layerSaved = "saved"
)

// decide judges one request: by the list, then by each ceiling, of which the
// strictest counts; then an ask may have been answered for good, or have nobody
// to answer it.
func (s *Stack) decide(q *Request) decision {
	d, _ := s.decideAs(q)
	return d
}

// decideAs is decide, with the reading of the request that it is about.
func (s *Stack) decideAs(q *Request) (decision, *Request) {
	if d, ok := s.byHTTPS(q); ok {
		return d, q
	}
	d, as := s.decideOne(q), q
	if q.Variables != "" {
		plain := *q
		plain.Variables, plain.Also = "", withoutVariables(q.Also)
		if o := s.decideOne(&plain); o.denies() {
			return o, &plain
		}
	}
	for _, other := range q.readings() {
		if o := s.decideOne(&other); readrule.Strictness(o.action) > readrule.Strictness(d.action) {
			d, as = o, &other
		}
	}
	if d.action != Deny {
		if o, closed := s.closes(q); closed {
			return o, q
		}
	}
	return d, as
}

// withoutVariables are the readings in also that begin with no variable.
func withoutVariables(also string) string {
	if !strings.Contains(also, "=") {
		return also
	}
	all := strings.Split(also, "\x00")
	return strings.Join(slices.DeleteFunc(all, func(reading string) bool {
		first, _, _ := strings.Cut(reading, " ")
		return strings.Contains(first, "=")
	}), "\x00")
}

func (s *Stack) decideOne(q *Request) decision {
	d := decision{action: Ask, reason: "no rule is about it", layer: layerRules}
	if q.dialled || q.Wraps {
		d = decision{action: Allow, layer: layerRules}
	}
	if r := decider(s.list, s.above, q); r != nil {
		d = decision{action: r.Action, rule: r, reason: r.Reason, layer: layerRules}
		if q.Confined && r.Source == SourceDefault {
			d.action = Allow
		}
	}
	if q.Confined && q.Weak {
		return decision{action: Allow, layer: layerRules}
	}
	for i := range s.ceilings {
		c := &s.ceilings[i]
		if r := decider(c.rules, 0, q); r != nil && readrule.Strictness(r.Action) > readrule.Strictness(d.action) {
			d = decision{action: r.Action, rule: r, reason: r.Reason, layer: c.name}
		}
	}
	switch {
	case readrule.Strictness(d.action) > readrule.Strictness(Ask):
		d.action = Deny
	case q.Prefixed:
		return decision{action: Allow, layer: layerRules}
	}
	if d.action == Ask {
		if r := s.remembered(q); r != nil {
			return decision{action: Allow, rule: r, reason: r.Reason, layer: layerSaved}
		}
	}
	if d.action == Ask && s.headless != "" {
		d.action = Deny
		d.reason = Join(d.reason, "it would be asked about, and with the profile "+s.headless+" nobody is asked")
	}
	return d
}

// Join adds a reason to another, which may be "".
func Join(reason, more string) string {
	if reason == "" {
		return more
	}
	return reason + "; " + more
}

// decider is the last rule that matches; below a rule that takes the list's
// opinion back, that of the first rules, as many as above says. Of a file that is
// not known, it is the strictest of those that may be the last for some file.
func decider(rules []*rule, above int, q *Request) *rule {
	var found *rule
	for _, r := range slices.Backward(rules) {
		if !r.match(q) {
			continue
		}
		last := !q.Unknown || r.everything() || q.below != "" && r.coversBelow(q.below)
		if r.above {
			r = decider(rules[:above], 0, q)
		}
		if found == nil || r != nil && readrule.Strictness(r.Action) > readrule.Strictness(found.Action) {
			found = r
		}
		if last {
			break
		}
	}
	return found
}

// remembered is the saved approval for a request. What is opaque was approved as
// the text that it is, never as an example of others. One line that was approved by itself in
// the worktree's root does other things in another directory, or with other input.
func (s *Stack) remembered(q *Request) *rule {
	for _, r := range s.saved {
		if q.within != nil && r.opensAddress(*q.within) {
			return r
		}
		if q.below != "" && r.names(q.Permission) && r.coversBelow(q.below) {
			return r
		}
		text := r.isText(q.Pattern)
		if q.Opaque && !q.Unknown && r.Permission == q.Permission && text || !q.Opaque && (!text || !q.Apart) && r.match(q) {
			return r
		}
	}
	return nil
}

// AllowsAll reports whether external_directory is allowed for a directory and for every path in it.
func (s *Stack) AllowsAll(dir string) bool {
	return s.JudgeOne(&Request{Permission: PermissionExternal, Pattern: dir, Path: dir}).Action == Allow &&
		s.JudgeOne(&Request{Permission: PermissionExternal, Pattern: dir, Opaque: true, Unknown: true, below: dir}).Action == Allow
}

// Hidden reports whether nothing with this permission can ever be allowed: its
// last matching rule is a deny of everything. Such tools are not shown.
func (s *Stack) Hidden(permission string) bool {
	if s.closed(permission) {
		return true
	}
	return slices.ContainsFunc(s.ceilings, func(c ceiling) bool { return deniesAll(lastNamed(c.rules, permission)) })
}

// closed is Hidden for the list alone.
func (s *Stack) closed(permission string) bool {
	r := lastNamed(s.list, permission)
	if r != nil && r.above && r.everything() {
		r = lastNamed(s.list[:s.above], permission)
	}
	return deniesAll(r)
}

func lastNamed(rules []*rule, permission string) *rule {
	for _, r := range slices.Backward(rules) {
		if r.names(permission) {
			return r
		}
	}
	return nil
}

func deniesAll(r *rule) bool { return r != nil && r.Action == Deny && r.everything() }

// Headless reports whether every ask is a denial (profile ci).
func (s *Stack) Headless() bool { return s.headless != "" }
