package call

import (
	"context"
	"errors"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call/stream"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool/run"
)

// Sessions finds sessions for those who may see them.
type Sessions interface {
	// Calls gives those of a live session, or says why it takes none.
	Calls(ctx context.Context, p auth.Principal, idOrName string) (*Group, error)
	// SessionID gives the id of a session, live or not.
	SessionID(ctx context.Context, p auth.Principal, idOrName string) (string, error)
	// Accepting refuses calls while the daemon starts or stops.
	Accepting() error
}

// Service is the calls of all sessions of a daemon.
type Service struct {
	Config
	sessions Sessions
	live     live
}

// New makes a Service.
func New(c Config, sessions Sessions) *Service {
	return &Service{Config: c, sessions: sessions, live: live{began: make(chan struct{}, 1)}}
}

// Live reports whether there are calls, and whether one of them waits for no person.
func (s *Service) Live() (some, busy bool) {
	s.live.each(func(c *Call) bool {
		some, busy = true, !c.waiting.Load()
		return !busy
	})
	return some, busy
}

// Began is for one that waits for calls: it gives a value when some have begun since the last one.
func (s *Service) Began() <-chan struct{} { return s.live.began }

// AwaitIdle waits until no call is live that anything but a person can end, or ctx has
// ended.
func (s *Service) AwaitIdle(ctx context.Context) {
	for {
		var busy *Call
		s.live.each(func(c *Call) bool {
			if !c.waiting.Load() { // those wait for people
				busy = c
			}
			return busy == nil
		})
		if busy == nil {
			return
		}
		select {
		case <-busy.done:
			s.live.drop(busy)
		case <-s.Context.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// Options say how the answer to Call is wanted.
type Options struct {
	// OnEvent, when set, gets the call's own stream: pending, running,
	// metadata, output, completed, error, never two at once. It may block only
	// for a bounded time. When it is too slow for the call, it gets no more and
	// Call returns an error beside the call, which goes on.
	OnEvent func(client.Event)
	// After, with OnEvent, is the id of the last output event that the client has of
	// the call with its key: the output goes on behind it, "" begins with its first
	// byte. A call that does not exist yet is not made then.
	After string
	// Hold, when set, is given what must be called, once, when the answer is
	// written: until then the memory of a large result counts as used. It may be
	// called more than once, with one function for each result.
	Hold func(release func())
	// Input, when set, is called once, when the call does not hold its input any more: until
	// then the memory of a large one counts as used.
	Input func()
	// AbortOnDisconnect aborts the call when ctx ends before it does.
	AbortOnDisconnect bool
	// Split keeps stdout and stderr apart (?streams=split).
	Split bool

	// Hidden is for a call by a route of our own, of a tool that no model can name.
	Hidden bool
	// Pipe joins such a call to the client that made it.
	Pipe *Pipe
	// Lay puts what such a call takes to where the sandbox has it. It is called once, when the call may run.
	Lay func() error

	// Probe is for a call in a throw-away session, which policy has nothing to say about
	Probe bool
}

// Call implements server.Calls.
func (s *Service) Call(ctx context.Context, p auth.Principal, sessionID string, r client.CallCreate, o Options) (*client.Call, error) {
	begun := false
	defer func() {
		if !begun && o.Input != nil {
			o.Input()
		}
	}()
	if err := s.sessions.Accepting(); err != nil {
		return nil, err
	}
	g, err := s.sessions.Calls(ctx, p, sessionID)
	if err != nil {
		row := s.made(ctx, p, sessionID, &r)
		if row != nil {
			if why := s.Unseen(ctx, p, &row.Call); why != "" {
				return nil, errUnseen(row.ID, why)
			}
		}
		if row != nil && o.OnEvent != nil {
			return s.again(ctx, &twin{row: row}, p.Session != "", o)
		} else if row != nil {
			return &row.Call, nil
		}
		return nil, err
	}
	if r.Typed && p.Session != "" {
		return nil, fault.Forbidden.Errorf("typed is for calls that a person makes; a session's token is for an agent").
			Next("leave typed out, or make the call without the token")
	}
	if o.After != "" {
		if err := g.resumable(ctx, r.Key); err != nil {
			return nil, s.Internal("find a call by its key", err)
		}
	}
	c := newCall(g.site, r, o.Hidden, o.Split)
	c.by, c.probe, c.pipe, c.lay = p, o.Probe, o.Pipe, o.Lay
	if c.pipe != nil {
		c.pipe.ID = c.id
	}
	o.keep(c)
	var l *stream.Listener
	if o.OnEvent != nil {
		l = c.stream.Follow(o.OnEvent, p.Session != "", c.snapshot)
		defer c.stream.Unfollow(l)
	}
	c.input = o.Input
	if !g.place.Takes() || !g.work.Go("call "+c.id, func() { growStack(); g.do(c) }) {
		c.cancel(nil)
		return nil, g.notReady()
	}
	begun = true
	v, err := c.await(ctx, r.WaitMillis, o.AbortOnDisconnect, l)
	if c.twin != nil {
		first := c.twin.call()
		if why := s.Unseen(ctx, p, first); why != "" {
			return nil, errUnseen(first.ID, why)
		}
	}
	switch {
	case c.twin != nil && o.OnEvent != nil:
		v, err := s.again(ctx, c.twin, p.Session != "", o)
		if err != nil {
			err = s.Internal("stream a call again", err)
		}
		return v, err
	case c.twin != nil && c.twin.live != nil:
		twin := c.twin.live
		o.keep(twin)
		return twin.await(ctx, r.WaitMillis, o.AbortOnDisconnect, nil)
	case c.twin != nil:
		return &c.twin.row.Call, nil
	case c.err != nil:
		return nil, s.Internal("call a tool", c.err)
	}
	return v, err
}

// made is the call that a request with this key has made before in a session that is over;
// nil for none, and where what is asked for is something else.
func (s *Service) made(ctx context.Context, p auth.Principal, session string, r *client.CallCreate) *store.Call {
	if r.Key == "" {
		return nil
	}
	id, err := s.sessions.SessionID(ctx, p, session)
	if err != nil {
		return nil
	}
	row, err := s.Store.CallByKey(ctx, id, r.Key)
	if err != nil || !row.Finished() {
		return nil
	}
	inv, err := s.Tools.Parse(r.Tool, r.Input)
	if err != nil {
		inv = s.Tools.Malformed(r.Tool, r.Input)
	}
	if of, err := s.Store.Session(ctx, id); err == nil {
		Translate(of, inv)
	}
	if string(hashOf(inv, r.Env)) != string(row.Hash) {
		return nil
	}
	row.Metadata = asObject(row.Metadata)
	return row
}

// keep keeps the memory of the call's result counted for who asked for that.
func (o *Options) keep(c *Call) {
	if o.Hold != nil {
		o.Hold(c.held.hold())
	}
}

// GetCall implements server.Calls.
func (s *Service) GetCall(ctx context.Context, p auth.Principal, id string) (*client.Call, error) {
	row, live, err := s.lookup(ctx, p, id)
	if err != nil {
		return nil, err
	}
	if live != nil {
		return s.seenBy(ctx, p, live.snapshot()), nil
	}
	return s.seenBy(ctx, p, &row.Call), nil
}

// lookupKnown is lookup for those who act on whether the call runs. While the daemon starts, one
// that has not ended on record may run in a session that is not taken over yet.
func (s *Service) lookupKnown(ctx context.Context, p auth.Principal, id string) (*store.Call, *Call, error) {
	row, c, err := s.lookup(ctx, p, id)
	if err == nil && c == nil && !row.Finished() {
		err = s.sessions.Accepting()
	}
	return row, c, err
}

// lookup finds a call, live or stored.
func (s *Service) lookup(ctx context.Context, p auth.Principal, id string) (*store.Call, *Call, error) {
	if c, ok := s.live.find(id); ok {
		if !p.Sees(c.at.tenant.Name, c.at.id) {
			return nil, nil, noCall(id)
		}
		return nil, c, nil
	}
	if !store.ValidID("call_", id) {
		return nil, nil, noCall(id)
	}
	row, err := s.Store.Call(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil, noCall(id)
	case err != nil:
		return nil, nil, s.Internal("read call "+id, err)
	case !p.Sees(row.Tenant, row.SessionID):
		return nil, nil, noCall(id)
	}
	row.Metadata = asObject(row.Metadata)
	return row, nil, nil
}

// Bounds of lists.
const (
	defaultList  = 100
	maxList      = 1000
	maxListBytes = 8 << 20
)

// ListLimit is how many items a list has that was asked for n of them, 0 for the usual number.
func ListLimit(n int) int {
	if n <= 0 {
		return defaultList
	}
	return min(n, maxList)
}

// ListCalls implements server.Calls.
func (s *Service) ListCalls(ctx context.Context, p auth.Principal, sessionID string, f client.CallQuery) (client.List[client.Call], error) {
	var list client.List[client.Call]
	id, err := s.sessions.SessionID(ctx, p, sessionID)
	if err != nil {
		return list, err
	}
	if f.After != "" && !store.ValidID("call_", f.After) {
		return list, fault.Invalid.Errorf("after %q is not the id of a call", shown(f.After))
	}
	if g, err := s.sessions.Calls(ctx, p, id); err == nil {
		g.AwaitTold()
	}
	rows, more, err := s.Store.Calls(ctx, store.CallFilter{
		Session: id, Status: f.Status, Tool: f.Tool, After: f.After, Limit: ListLimit(f.Limit), MaxBytes: maxListBytes,
	})
	if err != nil {
		return list, s.Internal("list calls", err)
	}
	list.Items = make([]client.Call, 0, len(rows))
	for _, row := range rows {
		v := &row.Call
		v.Metadata = asObject(v.Metadata)
		if c, ok := s.live.find(row.ID); ok {
			v = c.snapshot()
		}
		list.Items = append(list.Items, *s.seenBy(ctx, p, v))
	}
	if more && len(rows) > 0 {
		list.Next = rows[len(rows)-1].ID
	}
	return list, nil
}

// AbortCall implements server.Calls. The call is given back when it has ended, or as it
// is when ctx ends first.
func (s *Service) AbortCall(ctx context.Context, p auth.Principal, id string) (*client.Call, error) {
	row, c, err := s.lookupKnown(ctx, p, id)
	if err != nil {
		return nil, err
	}
	if c == nil {
		return s.seenBy(ctx, p, &row.Call), nil
	}
	c.abort(run.ReasonAborted)
	v, err := c.await(ctx, nil, false, nil)
	return s.seenBy(ctx, p, v), err
}
