package server

import (
	"net/http"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/session"
)

func (s *Server) listApprovals(x *exchange, r *request) error {
	f, err := r.approvalFilter()
	if err != nil {
		return err
	}
	l, err := s.cfg.API.Approvals(r.Context(), r.who, f)
	if err != nil {
		return err
	}
	return s.reply(x, http.StatusOK, list(l.Items, l.Next))
}

func (s *Server) listSavedApprovals(x *exchange, r *request) error {
	f, err := r.approvalFilter()
	if err != nil {
		return err
	}
	l, err := s.cfg.API.SavedApprovals(r.Context(), r.who, f)
	if err != nil {
		return err
	}
	return s.reply(x, http.StatusOK, list(l.Items, l.Next))
}

func (r *request) approvalFilter() (f session.ApprovalFilter, err error) {
	f.Session = r.query.Get("session")
	f.After, f.Limit, err = r.page()
	return f, err
}

// answerApproval is where a call that waits is allowed or refused. The holder of
// a session's token never gets here (its role), and who else must not answer is
// the session's to say: it knows who made the call.
func (s *Server) answerApproval(x *exchange, r *request) error {
	var req client.ApprovalAnswer
	if err := s.decode(x, r, &req); err != nil {
		return err
	}
	answered, err := s.cfg.API.Answer(r.Context(), r.who, r.id, req)
	if err != nil {
		return err
	}
	return s.reply(x, http.StatusOK, answered)
}

func (s *Server) revokeApproval(x *exchange, r *request) error {
	if err := s.cfg.API.Revoke(r.Context(), r.who, r.id); err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}
