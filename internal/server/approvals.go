package server

import (
	"context"
	"net/http"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/session"
)

// Approvals shows what waits for an answer, and what was answered for always.
// *session.Approvals implements it.
type Approvals interface {
	Approvals(ctx context.Context, p auth.Principal, f session.ApprovalFilter) (client.List[client.Approval], error)
	// Answer answers a pending approval.
	Answer(ctx context.Context, p auth.Principal, id string, a client.ApprovalAnswer) (*client.Approval, error)
	SavedApprovals(ctx context.Context, p auth.Principal, f session.ApprovalFilter) (client.List[client.SavedApproval], error)
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

func (r *request) approvalFilter() (f session.ApprovalFilter, err error) {
	f.Session = r.query.Get("session")
	f.After, f.Limit, err = r.page()
	return f, err
}

// answerApproval is where a call that waits is allowed or refused. The holder of
// a session's token never gets here (its role), and who else must not answer is
// the session's to say: it knows who made the call.
func (s approvalRoutes) answerApproval(x *exchange, r *request) error {
	var req client.ApprovalAnswer
	if err := s.decode(x, r, &req); err != nil {
		return err
	}
	return x.answer(s.cfg.API.Approvals.Answer(r.Context(), r.who, r.id, req))
}

func (s approvalRoutes) revokeApproval(x *exchange, r *request) error {
	if err := s.cfg.API.Approvals.Revoke(r.Context(), r.who, r.id); err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}
