package trees

import (
	"context"
	"io"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/tool/run/treediff"
)

func (s *Service) Diff(ctx context.Context, p auth.Principal, id string, q client.DiffQuery) (io.ReadCloser, error) {
	x, err := s.take(ctx, p, id)
	if err != nil {
		return nil, err
	}
	e, err := x.live.Errand()
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	go func() {
		defer x.release()
		_, err := e.TreeDiff(ctx, run.DiffQuery{Format: treediff.Patch, Paths: q.Paths}, 0, w)
		w.CloseWithError(err)
	}()
	return r, nil
}

func (s *Service) Changes(ctx context.Context, p auth.Principal, id string, q client.DiffQuery) (*client.Changes, error) {
	x, err := s.take(ctx, p, id)
	if err != nil {
		return nil, err
	}
	defer x.release()
	e, err := x.live.Errand()
	if err != nil {
		return nil, err
	}
	q.Against = ""
	return e.TreeChanges(ctx, q)
}

func (s *Service) Apply(ctx context.Context, p auth.Principal, id string, r client.ApplyRequest) (*client.Applied, error) {
	return nil, fault.Invalid.Errorf("not yet")
}
