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
	inv, err := pol.tools.Parse(r.Tool, r.Input)
	if err != nil {
		return nil, err
	}
	v := &client.PolicyVerdict{Tool: inv.Tool.Name, Profile: r.Profile, Tenant: p.Tenant}
	var rules *judge.Rules
	var requests []policy.Request
	if r.Session != "" {
		rules, requests, err = pol.explainIn(ctx, p, r.Session, inv, v)
	} else {
		v.Profile = cmp.Or(v.Profile, judge.DefaultProfile)
		if rules, err = pol.court.RulesWithout(p.Tenant, v.Profile, nil); err != nil {
			err = fault.Invalid.Errorf("%v", err)
		}
		shell := pol.settings.Load().Shell
		requests = policy.AsWritten(inv, shell, policy.Workspace)
		if len(inv.Input.Access(shell).Paths()) > 0 {
			v.Notes = append(v.Notes, "paths are taken as they stand: without a session there is nothing to resolve them in, and nothing mounted beside the worktree")
		}
	}
	if err != nil {
		return nil, err
	}
	verdict, each := rules.Judge(requests)
	v.Action, v.Rule, v.Reason = string(verdict.Action), verdict.Rule, verdict.Reason
	v.Requests = rules.Explain(requests, each)
	if verdict.Action == policy.Ask && pol.court.Unanswered() {
		v.Notes = append(v.Notes, `what asks is denied at once: [approvals] approver = "none"`)
	}
	v.Notes = append(v.Notes, "a call that repeats others asks for doom_loop as well, which only the session's history can tell")
	return v, nil
}

// explainIn judges as a session would do it at this moment.
func (pol *Policy) explainIn(ctx context.Context, p auth.Principal, session string, inv *tool.Invocation, v *client.PolicyVerdict) (*judge.Rules, []policy.Request, error) {
	s, err := pol.find(p, session)
	if err != nil {
		row, e := pol.stored(ctx, p, session)
		if e != nil {
			return nil, nil, err
		}
		return nil, nil, call.OverError(row)
	}
	v.Profile = cmp.Or(v.Profile, s.Row().Profile)
	if err := pol.checkProfile(s.tenant.Name, v.Profile); err != nil {
		return nil, nil, err
	}
	rules := s.judge.Rules(v.Profile)
	row := s.Row()
	a := inv.Input.Access(pol.Shell(&row))
	if !a.Prepare {
		return rules, s.judge.Requests(inv, a, nil), nil
	}
	prep, err := pol.lookUp(ctx, s, inv, a)
	if err != nil {
		v.Notes = append(v.Notes, "the paths could not be resolved in the session: "+plain.Cut(pol.internal("resolve paths", err).Error(), call.MaxNote))
	}
	return rules, s.judge.Requests(inv, a, prep), nil
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
