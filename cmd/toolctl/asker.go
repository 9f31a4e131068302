package main

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/policy"
)

// asker does what the caller can do about an approval that the call waits for: it
// asks at the terminal where the caller may answer, and else says who may.
type asker struct {
	*app
	client *client.Client
	// giveUp says how the caller stops waiting; "" says nothing.
	giveUp string
	// yes: what a rule asks about is allowed.
	yes bool
	// rejected is the approval that it has rejected itself: the refusal of the call says why.
	rejected string

	end  context.CancelFunc // ends the prompt; nil where there is none
	wait sync.WaitGroup
}

// event takes an event of the call. It does not wait for an answer.
func (k *asker) event(ctx context.Context, e client.Event) {
	switch e.Type {
	case client.EventApprovalAsked:
		var a client.Approval
		if json.Unmarshal(e.Data, &a) == nil {
			k.asked(ctx, &a)
		}
	case client.EventApprovalReplied:
		k.stop()
		var r client.ApprovalReply
		if json.Unmarshal(e.Data, &r) == nil && r.ID != k.rejected {
			k.say("approval %s: %s", line(r.ID), replyText(r))
			for _, text := range savedTexts(&r) {
				k.say("  %s", text)
			}
		}
	}
}

// nobodyAsked goes back to who gave the command to a private daemon.
const nobodyAsked = "a rule asks about it, and there is no terminal to ask at; run it on one, or allow what rules ask about with --yes"

// nobodyAskedAbout adds the first reason that a rule, or the daemon, has given.
func nobodyAskedAbout(a *client.Approval) string {
	for i := range a.Requests {
		if reason := a.Requests[i].Reason; reason != "" {
			return nobodyAsked + "; " + clipped(visibleLine(reason), 1000) // a message has a bound
		}
	}
	return nobodyAsked
}

func (k *asker) asked(ctx context.Context, a *client.Approval) {
	k.stop()
	switch {
	case k.yes && k.answer(ctx, a, client.ApprovalAnswer{Answer: client.AnswerOnce}):
	case (a.SelfApprove || a.SelfOnce) && k.prompt(ctx, a):
	case k.private && k.answer(ctx, a, client.ApprovalAnswer{Answer: client.AnswerReject, Message: nobodyAskedAbout(a)}):
		k.rejected = a.ID
	default:
		sayAsked(k.app, a, k.giveUp)
	}
}

func (k *asker) answer(ctx context.Context, a *client.Approval, answer client.ApprovalAnswer) bool {
	answer.SHA256 = a.SHA256
	_, err := k.client.AnswerApproval(ctx, a.ID, answer)
	if err != nil {
		k.say("approval %s: %s", line(a.ID), lines(err.Error()))
	}
	return err == nil
}

// prompting reports whether the terminal is in use.
func (k *asker) prompting() bool { return k.end != nil }

// stop ends the prompt, if there is one, and gives the terminal back.
func (k *asker) stop() {
	if k.end != nil {
		k.end()
		k.wait.Wait()
		k.end = nil
	}
}

// prompt asks at the terminal, if there is one. It is drawn on standard error, since
// standard output is the command's.
func (k *asker) prompt(ctx context.Context, a *client.Approval) bool {
	if !k.errTTY || k.openTerminal == nil {
		return false
	}
	keys, err := k.keys()
	if err != nil {
		return false
	}
	until, end := context.WithCancel(ctx)
	k.end = end
	k.wait.Go(func() {
		if answer := k.ask(until, keys, a); answer != nil {
			k.answer(ctx, a, *answer) // also while its own end stops the prompt
		}
	})
	return true
}

// ask shows one approval as "approvals watch" does, and gives the answer; nil when ctx
// ends before.
func (k *asker) ask(ctx context.Context, keys *keyboard, a *client.Approval) (answer *client.ApprovalAnswer) {
	w := newWatch(0, 0, colors(k.errTTY, k.getenv), client.ScopeSession)
	w.own = true
	_ = w.run(ctx, k.stderr, keys, approvalList{pending: []client.Approval{*a}}, nil, func(do deed) (string, bool) {
		if answer = do.answer; answer != nil {
			return "", true
		}
		return perform(ctx, func(string) *client.Client { return k.client }, w, do), false
	})
	return answer
}

// maxWhy is how many requests of a call that waits are shown, and maxWhat how many
// columns of each.
const (
	maxWhy  = 5
	maxWhat = 120
)

// sayAsked says that a call waits, why, and what its caller may do about it.
func sayAsked(a *app, p *client.Approval, giveUp string) {
	a.say("waiting for approval %s, %s", line(p.ID), expiresIn(p, time.Now()))
	for i := range p.Requests {
		if i == maxWhy {
			a.say("  and %d more: toolctl approvals watch", len(p.Requests)-i)
			break
		}
		a.say("  %s", whyAsked(p, &p.Requests[i]))
	}
	if once, ok := p.Metadata["once"].(string); ok {
		a.say("  once would allow it %s", line(once))
	}
	next := "who made the call may not answer: "
	switch {
	case p.SelfApprove:
		next = "to allow it: toolctl approvals answer " + line(p.ID) + " once"
	case a.credential() != "":
		next += "a user of tenant " + line(p.Tenant) + " or an admin can, without the token"
	default:
		next += "another user of tenant " + line(p.Tenant) + " or an admin can"
		if os.Geteuid() == 0 {
			next += "; self_approve in [approvals] of config.toml lets you"
		}
	}
	if giveUp != "" {
		next += "; " + giveUp
	}
	a.say("  %s", next)
}

// whyAsked is one request, and the rule that asks about it.
func whyAsked(p *client.Approval, r *client.ApprovalRequest) string {
	text := clipped(visibleLine(r.Permission+" "+r.Pattern), maxWhat)
	if loop, ok := p.Metadata["loop"].(string); ok && r.Permission == policy.PermissionDoomLoop {
		text = "doom loop: " + line(loop)
	}
	why := "asked by " + line(r.Rule)
	if r.Reason != "" {
		why += ": " + line(r.Reason)
	}
	return text + " (" + why + ")"
}

// sayPending says that a call waits that nobody waits for here.
func sayPending(ctx context.Context, a *app, c *client.Client, call *client.Call) {
	p := call.Permission
	pending, err := pendingApprovals(ctx, c, client.ApprovalQuery{Session: call.SessionID})
	if err != nil {
		pending = nil // as with a token, which may not see them
	}
	for i := range pending {
		if pending[i].ID == p.ApprovalID {
			a.say("%s is pending", line(call.ID))
			sayAsked(a, &pending[i], "")
			return
		}
	}
	a.say("%s waits for approval %s (asked by %s): \"toolctl approvals watch\" shows it to those who may answer", line(call.ID), line(p.ApprovalID), line(p.Rule))
}

// perform does what a key asked for, by the client of the tenant whose approval it is, and gives what to print.
func perform(ctx context.Context, of func(tenant string) *client.Client, w *watch, do deed) string {
	first := w.first()
	switch {
	case first == nil:
	case do.answer != nil:
		a, err := of(first.Tenant).AnswerApproval(ctx, first.ID, *do.answer)
		return w.replied(*do.answer, a, err, time.Now())
	case do.full:
		call, err := of(first.Tenant).GetCall(ctx, first.CallID)
		if err != nil {
			return "  " + line(first.CallID) + ": " + line(err.Error()) + "\n"
		}
		return w.full(call)
	}
	return ""
}
