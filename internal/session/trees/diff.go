package trees

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync/atomic"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call/errand"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/tool/run/treediff"
)

// Diff implements server.Trees. Of a live session it shows the files as they are while it
// is read: its calls go on.
func (s *Service) Diff(ctx context.Context, p auth.Principal, id string, q client.DiffQuery) (io.ReadCloser, error) {
	over := s.watch(opDiff)
	v, err := s.viewOf(ctx, p, id, q.Against)
	if err != nil {
		err = s.sessions.Internal("compare a worktree", err)
		over(&err)
		return nil, err
	}
	return v.stream(ctx, treediff.Patch, q.Paths, over), nil
}

// Changes implements server.Trees.
func (s *Service) Changes(ctx context.Context, p auth.Principal, id string, q client.DiffQuery) (c *client.Changes, err error) {
	defer s.watch(opDiff)(&err)
	v, err := s.viewOf(ctx, p, id, q.Against)
	if err != nil {
		return nil, s.sessions.Internal("compare a worktree", err)
	}
	defer v.close()
	q.Against = "" // the view has it in the base's place
	if c, err = v.TreeChanges(ctx, q); err != nil {
		return nil, s.sessions.Internal("list the changes of session "+id, asked(err))
	}
	return c, nil
}

// asked is an error of the agent's for who asked: what is wrong with the request, or that
// there is no agent any more.
func asked(err error) error {
	var e *run.Error
	if errors.As(err, &e) && (e.Code == run.CodeInvalidInput || e.Code == run.CodeInvalidPath) {
		return fault.Invalid.Errorf("%s", e.Message).Next(e.Hint)
	}
	if errors.Is(err, errand.ErrLost) {
		return fault.Over.Errorf("the sandbox that had the files has ended in the middle of it").Next("try again: the changes are still there")
	}
	if errors.Is(err, errand.ErrTooLong) {
		return fault.Quota.Errorf("%w", err).Next("name paths, and take them one after the other")
	}
	return err
}

// viewOf is look for who reads alone: nobody has to wait for him.
func (s *Service) viewOf(ctx context.Context, p auth.Principal, id, against string) (*view, error) {
	x, err := s.take(ctx, p, id)
	if err != nil {
		return nil, err
	}
	defer x.release()
	if x.live != nil && against != "" {
		resume, err := x.quiet(ctx)
		if err != nil {
			return nil, err
		}
		defer resume()
	}
	return x.look(ctx, p, against)
}

// stream gives what differs while it is read, and tells over how that ended. It closes the
// view.
func (v *view) stream(ctx context.Context, format treediff.Format, paths []string, over func(*error)) io.ReadCloser {
	ctx, cancel := context.WithCancel(ctx)
	from, to := io.Pipe()
	done := make(chan struct{})
	s := &streamed{PipeReader: from, end: func() {
		cancel()
		<-done
		v.close()
	}}
	go func() {
		defer close(done)
		t, err := v.TreeDiff(ctx, run.DiffQuery{Format: format, Paths: paths}, 0, &stepping{to, v.Step})
		s.totals.Store(&t)
		err = asked(err)
		over(&err)
		to.CloseWithError(err)
	}()
	return s
}

// stepping tells of each part of a stream before it is passed on.
type stepping struct {
	io.Writer
	step func(name string)
}

func (s *stepping) Write(p []byte) (int, error) {
	s.step("streamed")
	return s.Writer.Write(p)
}

// streamed is a stream whose end is waited for.
type streamed struct {
	*io.PipeReader
	totals atomic.Pointer[treediff.Totals] // nil until there are any
	end    func()
}

// Missing says how many changes are not in a patch that was read to its end: those that a
// patch cannot say, and those that could not be compared.
func (s *streamed) Missing() (leftOut, unreadable int) {
	t := cmp.Or(s.totals.Load(), &treediff.Totals{})
	return t.LeftOut, t.Unreadable
}

// Close implements io.Closer.
func (s *streamed) Close() error {
	err := s.PipeReader.Close()
	s.end()
	return err
}
