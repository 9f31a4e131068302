package call

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/approval"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call/remark"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/store"
)

// Outgoing is a connection that programs of a session want, or an HTTP request on one.
type Outgoing struct {
	Request policy.Request // of policy.Connection or policy.HTTP
	// Calls may have opened it, the likeliest first. Exact says that the first did.
	Calls []string
	Exact bool
	// Learn allows what no line of the rules is about.
	Learn bool
	// Standing is for what was allowed before and is still open: nobody is asked, and that it is
	// allowed still is no decision to be recorded.
	Standing bool
}

// RuleLearn is the source of verdicts that the learn mode gives.
const RuleLearn = "[network] learn"

// Learned makes of a denial of what no line of the rules is about what the learn mode does with it, and
// reports whether it is one.
func Learned(v *policy.Verdict) bool {
	if v.Action != policy.Deny || v.Rule != policy.SourceDefault {
		return false
	}
	v.Action, v.Rule, v.Reason = policy.Allow, RuleLearn, "no line is about it"
	return true
}

// RunningIDs gives the calls that run, the oldest first.
func (g *Group) RunningIDs() []string {
	var all []string
	g.live.each(func(c *Call) bool {
		if c.at == g.site && c.runs() {
			all = append(all, c.id)
		}
		return true
	})
	slices.Sort(all) // ids are in the order of time
	return all
}

func (c *Call) runs() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started
}

// caller is the first of these calls which is not over; nil for none.
func (g *Group) caller(calls []string) *Call {
	for _, id := range calls {
		if c, ok := g.live.find(id); ok && c.at == g.site && c.def != nil && !c.opened.closed() {
			return c
		}
	}
	return nil
}

// Stack gives the rules of the moment for a connection that these calls may have opened: those of
// the profile which the call began with, and of the session's once it is over. nil where
// everything is denied.
func (g *Group) Stack(calls []string) *policy.Stack {
	return g.judge.Rules(g.profileOf(g.caller(calls))).Stack()
}

func (g *Group) profileOf(c *Call) string {
	if c == nil {
		return g.place.Row().Profile
	}
	return c.profile
}

// Outgoing says whether a connection or a request may pass. Where the rules ask, it waits for
// the answer, until ctx ends or the call does. An answer of once holds until the call ends, for
// all calls of the session: any program can pass a socket to those of other calls, so an answer
// for one call alone would say what does not hold.
func (g *Group) Outgoing(ctx context.Context, o *Outgoing) policy.Verdict {
	c := g.caller(o.Calls)
	by, shown := auth.Principal{Tenant: g.tenant.Name}, &client.Call{SessionID: g.id}
	if c != nil {
		by, shown = c.by, c.snapshot()
	}
	j := g.judge.Outgoing(g.profileOf(c), o.Request)
	switch v := &j.Verdict; {
	case o.Learn && Learned(v):
	case v.Action == policy.Ask && c == nil && !o.Standing:
		v.Action, v.Pending = policy.Deny, nil
		v.Reason = policy.Join(v.Reason, "it would be asked about, and no call is running for which it could be")
	}
	if o.Standing && j.Verdict.Action == policy.Ask {
		j.Verdict = g.stands(j.Verdict, o)
	}
	if o.Standing && j.Verdict.Action == policy.Allow {
		return j.Verdict
	}
	d := j.Decision(by, shown)
	if err := g.decided(d); err != nil && j.Verdict.Action == policy.Allow {
		j.Verdict.Action, j.Verdict.Reason = policy.Deny, err.Error()
	}
	if j.Verdict.Action == policy.Ask {
		return g.askOnce(ctx, c, j, o)
	}
	return j.Verdict
}

// askOnce has somebody asked, unless they have answered for this call before. Connections that
// want the same at the same time are one question.
func (g *Group) askOnce(ctx context.Context, c *Call, j *judge.Judgement, o *Outgoing) policy.Verdict {
	key := keyOf(o)
	for first := true; ; first = false {
		if of := g.allowedOnce(key); of != "" {
			return allowedUntil(j.Verdict, of)
		}
		allowed, answered, other := c.opened.begin(key)
		switch {
		case answered && allowed:
			return allowedUntil(j.Verdict, c.id)
		case answered:
			return refused(j.Verdict, "it was rejected for this call")
		case other != nil:
		case !first:
			c.opened.end(key, false, false)
			if g.judge.Weigh(j); j.Verdict.Action != policy.Ask {
				return j.Verdict
			}
			return refused(j.Verdict, "the same was asked about just now, and not allowed")
		default:
			v, answered := asking{&g.steps, c}.askOutgoing(ctx, j, o)
			if holds := c.opened.end(key, v.Action == policy.Allow, answered); answered && !holds && v.Action == policy.Allow {
				return refused(v, "it was allowed when the call was over")
			}
			return v
		}
		select {
		case <-other: // its answer is for this one too
		case <-ctx.Done():
			return refused(j.Verdict, "it was given up before it was allowed")
		}
	}
}

// allowedOnce is the call, of those that are not over, for which somebody has allowed what key
// names; "" where there is none.
func (g *Group) allowedOnce(key string) (call string) {
	g.live.each(func(c *Call) bool {
		if c.at == g.site && c.opened.allowed(key) {
			call = c.id
		}
		return call == ""
	})
	return call
}

// stands is the verdict on what is open where it would be asked about now.
func (g *Group) stands(v policy.Verdict, o *Outgoing) policy.Verdict {
	if g.allowedOnce(keyOf(o)) == "" {
		return refused(v, "it is asked about now: connect again")
	}
	v.Action, v.Pending = policy.Allow, nil
	return v
}

func keyOf(o *Outgoing) string { return o.Request.Permission + " " + o.Request.Pattern }

func allowedUntil(v policy.Verdict, call string) policy.Verdict {
	v.Action, v.Pending, v.Reason = policy.Allow, nil, "allowed once for the calls of the session, until "+call+" ends"
	return v
}

func refused(v policy.Verdict, reason string) policy.Verdict {
	v.Action, v.Pending, v.Reason = policy.Deny, nil, reason
	return v
}

// onceHolds is what an approver is told of an answer of once.
const onceHolds = "for all calls of the session, until this call ends"

// askOutgoing makes a pending approval for a connection and waits for its answer, if one comes.
func (a asking) askOutgoing(ctx context.Context, j *judge.Judgement, o *Outgoing) (v policy.Verdict, answered bool) {
	row := a.approvalRow(j)
	row.Metadata["once"] = onceHolds
	if row.Metadata["call_tool"] = a.c.def.Name; !o.Exact && len(o.Calls) > 1 {
		row.Metadata["calls"] = o.Calls
	}
	p := newPending(a.c, j, row)
	if err := a.daemon.Approvals.Add(p); err != nil {
		return refused(j.Verdict, err.Error()), false
	}
	asked := a.c.bare(client.EventApprovalAsked, &p.Row.Approval)
	held := a.c.bare(client.EventNetworkAsked, client.NetworkRecord{
		Permission: o.Request.Permission, To: o.Request.Pattern, Verdict: string(policy.Ask), Rule: j.Verdict.Rule, Calls: o.Calls, Exact: o.Exact,
	})
	err := a.daemon.Store.Write(func(tx *store.Tx) error {
		tx.AddEvent(asked)
		tx.AddEvent(held)
		return tx.InsertApproval(&p.Row)
	})
	if err != nil {
		a.daemon.Approvals.Drop(p)
		a.log.Error("store an approval", "call", a.c.id, "error", err)
		return refused(j.Verdict, "the question could not be stored"), false
	}
	return a.awaitOutgoing(ctx, p)
}

// errCallOver ends the wait for an answer with the call.
var errCallOver = errors.New("the call is over")

// awaitOutgoing waits for the answer, for no longer than the call and the connection last.
func (a asking) awaitOutgoing(ctx context.Context, p *approval.Pending) (v policy.Verdict, answered bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.work.Go("approval for "+a.c.id, func() {
		select {
		case <-a.c.done:
			cancel(errCallOver)
		case <-a.c.ctx.Done():
			cancel(context.Cause(a.c.ctx))
		case <-ctx.Done():
		}
	})
	defer a.c.hold()()
	r, err := a.answer(ctx, p)
	if err != nil {
		a.gone(p)
		return refused(p.Judgement.Verdict, "it ended before it was allowed"), false
	}
	// What was saved, or is in the rules by now, holds for no longer than it is there.
	return a.repliedOutgoing(p, r), r.How == approval.Once || r.How == approval.Reject
}

// repliedOutgoing is the verdict that an answer makes.
func (a asking) repliedOutgoing(p *approval.Pending, r approval.Reply) policy.Verdict {
	d, _ := a.decision(p, r, fmt.Sprintf("allowed %s by %s", r.How, r.By))
	if err := a.decided(d); err != nil && d.Verdict.Action == policy.Allow {
		return refused(d.Verdict, err.Error())
	}
	return d.Verdict
}

// Blocked notes for the results of these calls that a connection or a request of theirs did
// not pass. Where they are guesses, each gets the note.
func (g *Group) Blocked(calls []string, n remark.Denial) {
	for _, id := range calls {
		if c, ok := g.live.find(id); ok && c.at == g.site {
			c.opened.block(n)
		}
	}
}
