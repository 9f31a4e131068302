package server

import (
	"context"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
)

// Approvals shows what waits for an answer, and what was answered for always.
// *session.Approvals implements it.
type Approvals interface {
	Approvals(ctx context.Context, p auth.Principal, f client.ApprovalQuery) (client.List[client.Approval], error)
	// Answer answers a pending approval. The holder of a session's token never gets here,
	// and who else must not answer is its to say: it knows who made the call.
	Answer(ctx context.Context, p auth.Principal, id string, a client.ApprovalAnswer) (*client.Approval, error)
	SavedApprovals(ctx context.Context, p auth.Principal, f client.ApprovalQuery) (client.List[client.SavedApproval], error)
	Revoke(ctx context.Context, p auth.Principal, id string) error
}

// approvalRoutes are the handlers of routes about approvals.
type approvalRoutes struct{ *Server }

func (s approvalRoutes) listApprovals(x *exchange, r *request) error {
	f, err := r.approvalFilter()
	if err != nil {
		return err
	}
	return x.answer(page(s.cfg.API.Approvals.Approvals(r.Context(), r.who, f)))
}

func (s approvalRoutes) listSavedApprovals(x *exchange, r *request) error {
	f, err := r.approvalFilter()
	if err != nil {
		return err
	}
	return x.answer(page(s.cfg.API.Approvals.SavedApprovals(r.Context(), r.who, f)))
}

func (r *request) approvalFilter() (f client.ApprovalQuery, err error) {
	f.Session = r.query.Get("session")
	f.After, f.Limit, err = r.page()
	return f, err
}
