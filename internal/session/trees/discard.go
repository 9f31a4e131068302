package trees

import (
	"context"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
)

// Discard implements server.Trees.
func (s *Service) Discard(ctx context.Context, p auth.Principal, id string, r client.DiscardRequest) (*client.Discarded, error) {
	x, err := s.take(ctx, p, id)
	if err != nil {
		return nil, s.sessions.Internal("discard changes", err)
	}
	defer x.release()
	if err := s.discardAll(ctx, x); err != nil {
		return nil, s.sessions.Internal("discard the changes of session "+x.row.ID, err)
	}
	v := &client.Discarded{}
	s.sessions.Publish(x.row, client.EventWorktreeDiscarded, v)
	return v, nil
}
