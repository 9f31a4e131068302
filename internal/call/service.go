package call

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/approval"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call/budget"
	"github.com/toold/toold/internal/call/stream"
	"github.com/toold/toold/internal/crew"
	"github.com/toold/toold/internal/event"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/hook"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool/run"
)

// Config is what a Service needs of the daemon. All of it is required, but Auditor.
type Config struct {
	Store     *store.Store
	Tools     Tools
	Hub       *event.Hub
	Approvals *approval.Desk
	Hooks     *hook.Programs
	Sessions  Sessions
	Quota     Quota
	Observers []Observer
	Auditor   Auditor
	Log       *slog.Logger
	Settings  func() *Settings
	// OutputDir is the host directory below which each session has its outputs.
	OutputDir string
	// Memory bounds that of large results of all sessions on their way to the store and
	// to clients. Calls wait for it.
	Memory *budget.Memory
	// Work are goroutines that must have ended before the daemon does, Context its life.
	Work    *crew.Crew
	Context context.Context //nolint:containedctx // the life of the daemon
	// CheckEnv refuses variables that no call may have.
	CheckEnv func(env map[string]string) error
	// Internal makes an error that is our own one that clients may see.
	Internal func(doing string, err error) error
}

// Service is the calls of all sessions of a daemon.
type Service struct {
	Config
	live sync.Map // id → *Call, until its result is in the store
	// returning is set while memory is about to be given back to the system.
	returning atomic.Bool
}

// New makes a Service.
func New(c Config) *Service { return &Service{Config: c} }

// observe tells every observer.
func (s *Service) observe(fn func(Observer)) {
	for _, o := range s.Observers {
		fn(o)
	}
}

// AwaitIdle waits until no call is live that anything but a person can end, or ctx has
// ended.
func (s *Service) AwaitIdle(ctx context.Context) {
	for {
		var busy *Call
		s.live.Range(func(_, v any) bool {
			if c := v.(*Call); !c.waiting.Load() { // those wait for people
				busy = c
			}
			return busy == nil
		})
		if busy == nil {
			return
		}
		select {
		case <-busy.done:
			s.live.CompareAndDelete(busy.id, busy)
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
	// AbortOnDisconnect aborts the call when ctx ends before it does.
	AbortOnDisconnect bool
	// Split keeps stdout and stderr apart (?streams=split).
	Split bool

	// Probe is for a call in a throw-away session, which policy has nothing to say about
	Probe bool
}

// Filter selects calls of a session, oldest first.
type Filter struct {
	Status client.CallStatus
	Tool   string
	After  string
	Limit  int
}

// Call implements server.Calls.
func (s *Service) Call(ctx context.Context, p auth.Principal, sessionID string, r client.CallCreate, o Options) (*client.Call, error) {
	return s.call(ctx, p, sessionID, r, o, false)
}

// Hidden makes a call of a tool that is part of none that a model can name.
func (s *Service) Hidden(ctx context.Context, p auth.Principal, sessionID string, r client.CallCreate, o Options) (*client.Call, error) {
	return s.call(ctx, p, sessionID, r, o, true)
}

func (s *Service) call(ctx context.Context, p auth.Principal, sessionID string, r client.CallCreate, o Options, hidden bool) (*client.Call, error) {
	if err := s.Sessions.Accepting(); err != nil {
		return nil, err
	}
	g, err := s.Sessions.Calls(ctx, p, sessionID)
	if err != nil {
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
	c := g.newCall(r, hidden, o.Split)
	c.by, c.probe = p, o.Probe
	o.keep(c)
	l := c.stream.Follow(o.OnEvent, c.snapshot)
	defer c.stream.Unfollow(l)
	if !g.begin(c) {
		c.cancel(nil)
		return nil, g.notReady()
	}
	v, err := c.await(ctx, r.WaitMillis, o.AbortOnDisconnect, l)
	switch {
	case c.twin != nil && o.OnEvent != nil:
		v, err := s.again(ctx, c.twin, o)
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

// keep keeps the memory of the call's result counted for who asked for that.
func (o *Options) keep(c *Call) {
	if o.Hold != nil {
		o.Hold(c.hold())
	}
}

// ErrTooSlow says that a listener was cut off; what it missed is in the output.
var ErrTooSlow = fault.Overloaded.Errorf("the call's events were not read fast enough").
	Next("the call goes on; ask for it and for its output")

// await returns the call when it has ended, or as it is when nobody waits any
// longer, but not before it has a record or will never have one: with an error if
// nobody waits because l was too slow.
func (c *Call) await(ctx context.Context, waitMillis *int64, abort bool, l *stream.Listener) (*client.Call, error) {
	var late <-chan time.Time
	if waitMillis != nil {
		t := time.NewTimer(time.Duration(min(*waitMillis, maxTTL.Milliseconds())) * time.Millisecond)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-c.done:
	case <-late:
	case <-c.ctx.Done():
		// Its session is over or the daemon leaves; the former ends it at once.
		c.awaitEnd(ctx)
	case <-ctx.Done():
		if abort {
			c.abort(run.ReasonAborted)
		}
	case <-l.TooSlow():
		if abort {
			c.abort(run.ReasonAborted)
		}
	}
	<-c.known
	select {
	case <-l.TooSlow(): // whatever else is so: it has not had all
		return c.snapshot(), ErrTooSlow
	default:
		return c.snapshot(), nil
	}
}

// awaitEnd gives a call whose context has ended a moment to be recorded.
func (c *Call) awaitEnd(ctx context.Context) {
	if errors.Is(context.Cause(c.ctx), ErrLeaving) {
		return
	}
	select {
	case <-c.done:
	case <-ctx.Done():
	case <-c.g.svc.Context.Done():
	}
}

// GetCall implements server.Calls.
func (s *Service) GetCall(ctx context.Context, p auth.Principal, id string) (*client.Call, error) {
	row, live, err := s.lookup(ctx, p, id)
	if err != nil {
		return nil, err
	}
	if live != nil {
		return live.snapshot(), nil
	}
	return &row.Call, nil
}

// lookup finds a call, live or stored.
func (s *Service) lookup(ctx context.Context, p auth.Principal, id string) (*store.Call, *Call, error) {
	if v, ok := s.live.Load(id); ok {
		c := v.(*Call)
		if !p.Sees(c.g.tenant.Name, c.g.id) {
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

// asObject is m, which in JSON is an object and never null.
func asObject(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
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
func (s *Service) ListCalls(ctx context.Context, p auth.Principal, sessionID string, f Filter) (client.List[client.Call], error) {
	var list client.List[client.Call]
	id, err := s.Sessions.SessionID(ctx, p, sessionID)
	if err != nil {
		return list, err
	}
	if f.After != "" && !store.ValidID("call_", f.After) {
		return list, fault.Invalid.Errorf("after %q is not the id of a call", shown(f.After))
	}
	if g, err := s.Sessions.Calls(ctx, p, id); err == nil {
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
		if c, ok := s.live.Load(row.ID); ok {
			v = c.(*Call).snapshot()
		}
		list.Items = append(list.Items, *v)
	}
	if more && len(rows) > 0 {
		list.Next = rows[len(rows)-1].ID
	}
	return list, nil
}

// AbortCall implements server.Calls. The call is given back when it has ended, or as it
// is when ctx ends first.
func (s *Service) AbortCall(ctx context.Context, p auth.Principal, id string) (*client.Call, error) {
	row, c, err := s.lookup(ctx, p, id)
	if err != nil {
		return nil, err
	}
	if c == nil {
		return &row.Call, nil
	}
	c.abort(run.ReasonAborted)
	return c.await(ctx, nil, false, nil)
}
