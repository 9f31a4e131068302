package session

import (
	"cmp"
	"context"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// explainTime bounds the resolving of paths for an explanation.
const explainTime = 10 * time.Second

// Policy says how calls would be judged.
type Policy struct{ *roster }

// Explain implements server.Policy. Nothing is run, stored or counted.
func (pol *Policy) Explain(ctx context.Context, p auth.Principal, r client.PolicyExplain) (*client.PolicyVerdict, error) {
	if err := p.Whole(); err != nil {
		return nil, err
	}
	if r.Tenant != "" && r.Tenant != p.Tenant {
		if err := p.Administers(); err != nil {
			return nil, err
		}
		p.Tenant = r.Tenant
	}
	requests, outgoing, err := policy.Outgoing(r.Tool, r.Input)
	if err != nil {
		return nil, fault.In(fault.Invalid.Errorf("input: %v", err), "input")
	}
	v := &client.PolicyVerdict{Tool: r.Tool, Tenant: p.Tenant}
	var inv *tool.Invocation
	if !outgoing {
		if inv, err = pol.tools.Parse(r.Tool, r.Input); err != nil {
			return nil, err
		}
		v.Tool = inv.Tool.Name
		v.Notes = []string{"a call that repeats others asks for doom_loop as well, which only the session's history can tell"}
	}
	s, rules, err := pol.rulesFor(ctx, p, &r, v)
	switch {
	case err != nil:
		return nil, err
	case outgoing:
	case s != nil:
		row := s.Row()
		call.Translate(&row, inv)
		requests = pol.requestsIn(ctx, s, inv, v)
	default:
		reader := judge.Reader(pol.settings.Load().Shell)
		requests = policy.AsWritten(inv, reader, policy.NoSession)
		if inv.Input.Access(reader).Named() {
			v.Notes = append(v.Notes, "paths are taken as they stand: without a session there is nothing to resolve them in, and nothing mounted beside the worktree")
		}
	}
	var closed []string
	tenant := v.Tenant
	if s != nil {
		closed, tenant = s.Row().Closed, s.tenant.Name
	}
	pol.judge(v, rules, requests, closed, v.Tool == policy.PermissionNetwork && pol.settings.Load().network(tenant).Learn)
	return v, nil
}

// rulesFor gives the rules that are asked about, with the session whose they are, nil for none,
// and says in v which profile's they are.
func (pol *Policy) rulesFor(ctx context.Context, p auth.Principal, r *client.PolicyExplain, v *client.PolicyVerdict) (*Session, *judge.Rules, error) {
	if r.Session == "" {
		v.Profile = cmp.Or(r.Profile, policy.DefaultProfile)
		rules, err := pol.court.RulesWithout(p.Tenant, v.Profile, nil)
		return nil, rules, err
	}
	s, err := pol.notOver(ctx, p, r.Session)
	if err != nil {
		return nil, nil, fault.In(err, "session")
	}
	v.Profile = cmp.Or(r.Profile, s.Row().Profile)
	return s, s.judge.Rules(v.Profile), pol.court.Check(s.tenant.Name, v.Profile)
}

// judge fills in what the rules say of requests. learn: what no line is about is allowed.
func (pol *Policy) judge(v *client.PolicyVerdict, rules *judge.Rules, requests []policy.Request, closed []string, learn bool) {
	verdict, each := rules.Judge(requests, closed...)
	if learn && len(each) == 1 && call.Learned(&verdict) {
		each[0].Action, each[0].Rule = verdict.Action, verdict.Rule
	}
	v.Action, v.Rule, v.Reason = string(verdict.Action), verdict.Rule, verdict.Reason
	for i := range each {
		requests[i] = each[i].Request // as it was judged in the end
	}
	v.Requests = rules.Explain(requests, each)
	if unseen := rules.Unseen(each, closed); len(unseen) > 0 && verdict.Action != policy.Deny {
		v.Notes = append(v.Notes, plain.EnumerateNames(unseen)+" would be kept from it, since a path of it is only known at run time")
	}
	if verdict.Action == policy.Ask && pol.court.Unanswered() {
		v.Notes = append(v.Notes, `what asks is denied at once: [approvals] approver = "none"`)
	}
}

// requestsIn is what a call would ask for in a session at this moment.
func (pol *Policy) requestsIn(ctx context.Context, s *Session, inv *tool.Invocation, v *client.PolicyVerdict) []policy.Request {
	row := s.Row()
	a := inv.Input.Access(pol.Reader(&row))
	if !a.Prepare {
		return s.judge.Requests(inv, a, nil, nil)
	}
	prep, err := pol.lookUp(ctx, s, inv, a)
	if err != nil {
		v.Notes = append(v.Notes, "the paths could not be resolved in the session: "+plain.Cut(pol.internal("resolve paths", err).Error(), call.MaxNote))
	}
	return s.judge.Requests(inv, a, prep, nil)
}

// lookUp prepares a call that is not made.
func (pol *Policy) lookUp(ctx context.Context, s *Session, inv *tool.Invocation, a tool.Access) (*run.Prepared, error) {
	ctx, cancel := context.WithTimeout(ctx, explainTime)
	defer cancel()
	l, err := s.agent.Link()
	if err != nil {
		return nil, err
	}
	return l.Prepare(ctx, call.PrepareRequest(agent.Request{
		CallID: pol.store.NewID("call_"), Tool: inv.Tool.Name, Input: inv.JSON,
		Settings: pol.settings.Load().ToolSettings[inv.Tool.Name], TimeoutMillis: explainTime.Milliseconds(),
	}, inv, a))
}
