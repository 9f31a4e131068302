package server

import (
	"context"
	"fmt"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/plain"
)

// Sessions makes, shows, changes and ends sessions. *session.Manager implements it.
type Sessions interface {
	Create(ctx context.Context, p auth.Principal, r client.SessionCreate) (*client.Session, error)
	// CreateQueued is Create that tells where a request stands in the queue for a
	// place, when that changes; queued may block only for a bounded time.
	CreateQueued(ctx context.Context, p auth.Principal, r client.SessionCreate, queued func(position int)) (*client.Session, error)
	Get(ctx context.Context, p auth.Principal, id string) (*client.Session, error)
	List(ctx context.Context, p auth.Principal, f client.SessionQuery) (client.List[client.Session], error)
	Patch(ctx context.Context, p auth.Principal, id string, r client.SessionPatch) (*client.Session, error)
	// End ends a session. force skips the grace of running calls; keep keeps
	// its output files until retention.
	End(ctx context.Context, p auth.Principal, id string, o client.EndOptions) (*client.Session, error)
	// TokenSession gives whom a session's token stands for: the session and its tenant. One of
	// a session that is over stands for nobody, and the error says so to who has it.
	TokenSession(ctx context.Context, token string) (holder auth.Principal, err error)
}

// sessionRoutes are the handlers of routes about sessions.
type sessionRoutes struct{ *Server }

func (s sessionRoutes) createSession(x *exchange, r *request, req client.SessionCreate) error {
	if wantsEvents(r.Request) {
		release, err := s.stream(r)
		if err != nil {
			return err
		}
		defer release()
		return s.streamProgress(x, r, func(ctx context.Context, tell func(string, any)) (any, error) {
			return s.cfg.API.Sessions.CreateQueued(ctx, r.who, req, func(position int) { tell("queued", client.SessionQueued{Position: position}) })
		})
	}
	made, err := s.cfg.API.Sessions.Create(r.Context(), r.who, req)
	if err == nil {
		x.Header().Set("Location", "/v1/sessions/"+made.ID)
	}
	return x.answer(made, err)
}

func (s sessionRoutes) listSessions(x *exchange, r *request) error {
	f := client.SessionQuery{State: client.SessionState(r.query.Get("state")), All: r.flag("all")}
	var err error
	if f.After, f.Limit, err = r.page(); err != nil {
		return err
	}
	if f.Labels, err = parseLabels(r.query["label"]); err != nil {
		return err
	}
	return x.answer(page(s.cfg.API.Sessions.List(r.Context(), r.who, f)))
}

func parseLabels(values []string) (map[string]string, error) {
	if len(values) == 0 {
		return nil, nil
	}
	labels := make(map[string]string, len(values))
	for _, v := range values {
		key, value, ok := strings.Cut(v, "=")
		if !ok || key == "" {
			return nil, invalid(fmt.Sprintf("label=%q has no key before a =", plain.Cut(v, maxShown)), "write label=key=value")
		}
		if had, ok := labels[key]; ok && had != value {
			return nil, invalid(fmt.Sprintf("label %q is asked for with two values", key), "no session has both")
		}
		labels[key] = value
	}
	return labels, nil
}

func (s sessionRoutes) getSession(x *exchange, r *request) error {
	return x.answer(s.cfg.API.Sessions.Get(r.Context(), r.who, r.id))
}

func (s sessionRoutes) endSession(x *exchange, r *request) error {
	o := client.EndOptions{Force: r.flag("force"), Keep: r.flag("keep"), Discard: r.flag("discard")}
	return x.answer(s.cfg.API.Sessions.End(r.Context(), r.who, r.id, o))
}
