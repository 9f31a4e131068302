package call

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/call/stream"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/store"
)

// again streams a call to somebody who asks for it once more by its key: where it
// is, its output from where they have it, what happens meanwhile, and its end. An agent, who
// has a session's token, is told of approvals what it may see.
func (s *Service) again(ctx context.Context, t *twin, agent bool, o Options) (*client.Call, error) {
	if t.live == nil {
		r := stream.NewRerun(o.OnEvent, client.Event{Tenant: t.row.Tenant, Session: t.row.SessionID, Call: t.row.ID})
		if err := r.Begin(o.After, s.streamsOf(t.row), t.row.Output.Total); err != nil {
			return nil, notOfThisCall(err)
		}
		if def, ok := s.Tools.Get(t.row.Tool); ok && def.Streams {
			if err := s.sendSaved(r, t.row); err != nil {
				return &t.row.Call, err
			}
		}
		r.End(&t.row.Call)
		return &t.row.Call, nil
	}
	c := t.live
	r := stream.NewRerun(o.OnEvent, client.Event{Tenant: c.at.tenant.Name, Session: c.at.id, Call: c.id})
	if err := r.Begin(o.After, stream.KindOf(c.stream.Split), c.out.Offset()); err != nil {
		return nil, notOfThisCall(err)
	}
	o.keep(c)
	now := c.snapshot()
	r.Event(r.Made(string(now.Status), now)) // before any output
	l := c.stream.Follow(r.Event, agent, c.snapshot)
	defer c.stream.Unfollow(l)
	for _, p := range s.Approvals.PendingOf(c.id) {
		r.Event(r.Made(client.EventApprovalAsked, p.Shown(agent)))
	}
	if c.def.Streams {
		if err := r.Live(ctx, c.out); err != nil && ctx.Err() == nil {
			return c.snapshot(), err
		}
	}
	v, err := c.await(ctx, nil, o.AbortOnDisconnect, l)
	c.stream.Unfollow(l) // what is before the end
	if err == nil {
		r.End(v)
	}
	return v, err
}

// streamsOf looks at what is kept of the output of a call that is over.
func (s *Service) streamsOf(row *store.Call) stream.Kind {
	if !row.Output.File { // two have one, unless there is nothing in them
		return stream.One
	}
	file := s.savedPath(row)
	if _, err := os.Lstat(file); err != nil {
		return stream.Unknown
	}
	return stream.KindOf(output.IsSplit(file))
}

// sendSaved sends the output of a call that is over.
func (s *Service) sendSaved(r *stream.Rerun, row *store.Call) error {
	var err error
	if r.Split() {
		err = output.PassSaved(s.savedPath(row), r.From(), r.Give)
	} else {
		var body io.ReadCloser
		if body, _, err = s.savedOutput(row, client.OutputQuery{Offset: r.From()[0]}); err == nil {
			err = errors.Join(output.Pass(body, r.Give), body.Close())
		}
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, fault.NotFound) {
		return err
	}
	r.Ended(row.Output.Total)
	return nil
}

// notOfThisCall refuses an event id that is from another stream.
func notOfThisCall(err error) error {
	pe, ok := errors.AsType[*stream.PositionError](err)
	if !ok {
		return err
	}
	return fault.Invalid.Errorf("Last-Event-ID %q is not from the stream of this call; its output has %s so far", shown(pe.After), plain.Count(pe.Total, "byte", "bytes")).
		Next("leave it out to get the output from its beginning")
}
