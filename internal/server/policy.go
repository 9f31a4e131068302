package server

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
)

// Policy explains rules. *session.Policy implements it.
type Policy interface {
	Explain(ctx context.Context, p auth.Principal, r client.PolicyExplain) (*client.PolicyVerdict, error)
}

// policyRoutes are the handlers of routes about rules.
type policyRoutes struct{ *Server }

// explainPolicy says how a call would be judged. Everybody may ask for their own
// tenant: a refusal points here.
func (s policyRoutes) explainPolicy(x *exchange, r *request, req client.PolicyExplain) error {
	req.Tenant = cmp.Or(req.Tenant, r.who.Tenant)
	if err := s.actFor(&r.who, req.Tenant, `leave "tenant" out`); err != nil {
		return err
	}
	verdict, err := s.cfg.API.Policy.Explain(r.Context(), r.who, req)
	if err != nil {
		return err
	}
	if verdict.Requests == nil {
		verdict.Requests = []client.PolicyRequest{}
	}
	return s.reply(x, http.StatusOK, verdict)
}

func (s policyRoutes) replayPolicy(x *exchange, r *request, req client.PolicyReplay) error {
	if req.Limit < 0 {
		return invalid(fmt.Sprintf("limit %d is negative", req.Limit), "0 is the default")
	}
	replayed, err := s.cfg.API.Replay.Replay(r.Context(), r.who, req)
	if err != nil {
		return err
	}
	if replayed.Changes == nil {
		replayed.Changes = []client.PolicyChange{}
	}
	return s.reply(x, http.StatusOK, replayed)
}

func (s daemonRoutes) usage(x *exchange, r *request) error {
	list, err := s.cfg.API.Usage.Usage(r.Context())
	if !r.who.Admin { // their own
		list = slices.DeleteFunc(list, func(u client.TenantUsage) bool { return u.Tenant != r.who.Tenant })
	}
	return x.answer(all(list, err))
}
