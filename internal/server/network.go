package server

import (
	"context"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
)

// Networks tells what sessions reached. *session.Networks implements it.
type Networks interface {
	Network(ctx context.Context, p auth.Principal, session string) (*client.SessionNetwork, error)
}

// networkRoutes are the handlers of routes about connections.
type networkRoutes struct{ *Server }

func (s networkRoutes) sessionNetwork(x *exchange, r *request) error {
	return x.answer(s.cfg.API.Networks.Network(r.Context(), r.who, r.id))
}
