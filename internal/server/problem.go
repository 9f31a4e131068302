package server

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/answer"
)

// statuses has the HTTP status of every code.
var statuses = map[client.Code]int{
	client.CodeInvalidRequest:  http.StatusBadRequest,
	client.CodeInvalidInput:    http.StatusBadRequest,
	client.CodeUnknownTool:     http.StatusNotFound,
	client.CodeNotFound:        http.StatusNotFound,
	client.CodeForbidden:       http.StatusForbidden,
	client.CodeDenied:          http.StatusForbidden,
	client.CodeApprovalTimeout: http.StatusForbidden,
	client.CodeStaleApproval:   http.StatusConflict,
	client.CodeStale:           http.StatusConflict,
	client.CodeDoomLoop:        http.StatusConflict,
	client.CodeConflict:        http.StatusConflict,
	client.CodeQuotaExceeded:   http.StatusTooManyRequests,
	client.CodeOverloaded:      http.StatusServiceUnavailable,
	client.CodeSessionLost:     http.StatusGone,
	client.CodeSandboxFailed:   http.StatusBadGateway,
	client.CodeInvalidPath:     http.StatusBadRequest,
	client.CodeNotRegularFile:  http.StatusBadRequest,
	client.CodeAborted:         http.StatusConflict,
	client.CodeInternal:        http.StatusInternalServerError,
}

// invalid is a request that breaks the rules of the API.
func invalid(message, hint string) *client.Error {
	return &client.Error{Code: client.CodeInvalidRequest, Message: message, Hint: hint}
}

// invalidStatus is invalid with a status of its own.
func invalidStatus(status int, message, hint string) *client.Error {
	return &client.Error{Code: client.CodeInvalidRequest, Message: message, Hint: hint, Status: status}
}

// problemOf says how an error is answered: the one place where errors get their
// code and their status. What is not an API error is nobody's business but the
// operator's: it is logged, and the answer has only a reference to the log line.
func (s *Server) problemOf(r *http.Request, err error) client.Problem {
	e := answer.Of(err)
	switch {
	case e != nil && e.Code != client.CodeInternal && statuses[e.Code] != 0:
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		if !errors.As(context.Cause(r.Context()), &e) {
			e = &client.Error{Code: client.CodeAborted, Message: "the request ended before it was answered", Hint: "try again"}
		}
	default:
		e = s.internal(r, err)
	}
	return problemFor(e)
}

// problemFor is the document for an error that may be shown.
func problemFor(e *client.Error) client.Problem {
	status := e.Status
	if status == 0 {
		status = statuses[e.Code]
	}
	return client.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: e.Message, Code: e.Code, Hint: e.Hint, Violations: e.Violations,
		IsError: true, Output: e.Text(),
	}
}

// internal logs err and gives the error that is shown in its place.
func (s *Server) internal(r *http.Request, err error) *client.Error {
	ref := rand.Text()[:12]
	s.cfg.Log.LogAttrs(r.Context(), slog.LevelError, "request failed",
		slog.String("ref", ref), slog.String("method", r.Method), slog.String("route", r.Pattern), slog.Any("err", err))
	return &client.Error{
		Code: client.CodeInternal, Message: "internal error " + ref,
		Hint: "the daemon's log has the cause under this reference",
	}
}

// fail answers with the problem that err is.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := s.problemOf(r, err)
	body, err := encode(p)
	if err != nil {
		s.cfg.Log.LogAttrs(r.Context(), slog.LevelError, "problem cannot be encoded", slog.Any("err", err))
	}
	s.writeBody(w, p.Status, "application/problem+json", body)
}

// cut ends an answer that has begun and cannot be finished, in a way that the
// client notices: the connection is closed in the middle.
func (s *Server) cut(r *http.Request, err error) {
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		_ = s.internal(r, err)
	}
	panic(http.ErrAbortHandler)
}
