package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/call/stream"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool/run"
)

// Call implements server.Calls.
func (m *Manager) Call(ctx context.Context, p auth.Principal, sessionID string, r client.CallCreate, o CallOptions) (*client.Call, error) {
	return m.call(ctx, p, sessionID, r, o, false)
}

func (m *Manager) call(ctx context.Context, p auth.Principal, sessionID string, r client.CallCreate, o CallOptions, hidden bool) (*client.Call, error) {
	if err := m.Accepting(); err != nil {
		return nil, err
	}
	s, err := m.find(p, sessionID)
	if err != nil {
		if row, e := m.stored(ctx, p, sessionID); e == nil {
			return nil, overError(row)
		}
		return nil, err
	}
	if r.Typed && p.Session != "" {
		return nil, &client.Error{
			Code:    client.CodeForbidden,
			Message: "typed is for calls that a person makes; a session's token is for an agent",
			Hint:    "leave typed out, or make the call without the token",
		}
	}
	if o.After != "" {
		if err := s.resumable(ctx, r.Key); err != nil {
			return nil, m.internal("find a call by its key", err)
		}
	}
	c := s.newCall(r, hidden, o.Split)
	c.by, c.probe = p, o.probe
	o.keep(c)
	l := c.stream.Follow(o.OnEvent, c.snapshot)
	defer c.stream.Unfollow(l)
	if !s.begin(c) {
		c.cancel(nil)
		return nil, s.notReady()
	}
	v, err := c.await(ctx, r.WaitMillis, o.AbortOnDisconnect, l)
	switch {
	case c.twin != nil && o.OnEvent != nil:
		v, err := m.again(ctx, c.twin, o)
		if err != nil {
			err = m.internal("stream a call again", err)
		}
		return v, err
	case c.twin != nil && c.twin.live != nil:
		twin := c.twin.live
		o.keep(twin)
		return twin.await(ctx, r.WaitMillis, o.AbortOnDisconnect, nil)
	case c.twin != nil:
		return &c.twin.row.Call, nil
	case c.err != nil:
		return nil, m.internal("call a tool", c.err)
	}
	return v, err
}

// keep keeps the memory of the call's result counted for who asked for that.
func (o *CallOptions) keep(c *call) {
	if o.Hold != nil {
		o.Hold(c.hold())
	}
}

func overError(row *store.Session) error {
	e := &client.Error{Code: client.CodeSessionLost, Message: "session " + row.ID + " is over", Hint: "create another session"}
	if row.Reason != "" {
		e.Message += ": " + row.Reason
	}
	return e
}

// errTooSlow says that a listener was cut off; what it missed is in the output.
var errTooSlow = &client.Error{
	Code: client.CodeOverloaded, Message: "the call's events were not read fast enough",
	Hint: "the call goes on; ask for it and for its output",
}

// begin starts the call's goroutine, unless the session is ending or not made.
func (s *Session) begin(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending || s.row.State != client.SessionReady {
		return false
	}
	return s.work.Go(func() { growStack(); s.Call(c) })
}

// notReady says why a session takes no calls.
func (s *Session) notReady() error {
	row := s.snapshotRow()
	if row.State == client.SessionCreating {
		return &client.Error{Code: client.CodeConflict, Message: "session " + s.id + " is still being made", Hint: "try again in a moment"}
	}
	return overError(&row)
}

// await returns the call when it has ended, or as it is when nobody waits any
// longer, but not before it has a record or will never have one: with an error if
// nobody waits because l was too slow.
func (c *call) await(ctx context.Context, waitMillis *int64, abort bool, l *stream.Listener) (*client.Call, error) {
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
		return c.snapshot(), errTooSlow
	default:
		return c.snapshot(), nil
	}
}

// awaitEnd gives a call whose context has ended a moment to be recorded.
func (c *call) awaitEnd(ctx context.Context) {
	if errors.Is(context.Cause(c.ctx), errLeaving) {
		return
	}
	select {
	case <-c.done:
	case <-ctx.Done():
	case <-c.s.m.ctx.Done():
	}
}

// GetCall implements server.Calls.
func (m *Manager) GetCall(ctx context.Context, p auth.Principal, id string) (*client.Call, error) {
	row, live, err := m.lookup(ctx, p, id)
	if err != nil {
		return nil, err
	}
	if live != nil {
		return live.snapshot(), nil
	}
	return &row.Call, nil
}

// lookup finds a call, live or stored.
func (m *Manager) lookup(ctx context.Context, p auth.Principal, id string) (*store.Call, *call, error) {
	if v, ok := m.calls.Load(id); ok {
		c := v.(*call)
		if !p.Sees(c.s.tenant.name, c.s.id) {
			return nil, nil, noCall(id)
		}
		return nil, c, nil
	}
	if !store.ValidID("call_", id) {
		return nil, nil, noCall(id)
	}
	row, err := m.store.Call(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil, noCall(id)
	case err != nil:
		return nil, nil, m.internal("read call "+id, err)
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

func listLimit(n int) int {
	if n <= 0 {
		return defaultList
	}
	return min(n, maxList)
}

// ListCalls implements server.Calls.
func (m *Manager) ListCalls(ctx context.Context, p auth.Principal, sessionID string, f CallFilter) (client.List[client.Call], error) {
	var list client.List[client.Call]
	id, err := m.SessionID(ctx, p, sessionID)
	if err != nil {
		return list, err
	}
	if f.After != "" && !store.ValidID("call_", f.After) {
		return list, invalidRequest("after %q is not the id of a call", shown(f.After))
	}
	if s, err := m.find(p, id); err == nil {
		s.awaitTold()
	}
	rows, more, err := m.store.Calls(ctx, store.CallFilter{
		Session: id, Status: f.Status, Tool: f.Tool, After: f.After, Limit: listLimit(f.Limit), MaxBytes: maxListBytes,
	})
	if err != nil {
		return list, m.internal("list calls", err)
	}
	list.Items = make([]client.Call, 0, len(rows))
	for _, row := range rows {
		v := &row.Call
		v.Metadata = asObject(v.Metadata)
		if c, ok := m.calls.Load(row.ID); ok {
			v = c.(*call).snapshot()
		}
		list.Items = append(list.Items, *v)
	}
	if more && len(rows) > 0 {
		list.Next = rows[len(rows)-1].ID
	}
	return list, nil
}

// awaitTold waits until the ends of calls that somebody has been told are in the
// store.
func (s *Session) awaitTold() {
	s.telling.Lock()
	s.telling.Unlock() //nolint:staticcheck // to wait is all
}

// AwaitTold waits until the ends of calls that somebody has been told are in the
// store, for all sessions.
func (m *Manager) AwaitTold() {
	m.mu.RLock()
	all := slices.Collect(maps.Values(m.sessions))
	m.mu.RUnlock()
	for _, s := range all {
		s.awaitTold()
	}
}

// AbortCall implements server.Calls. The call is given back when it has ended, or as it
// is when ctx ends first.
func (m *Manager) AbortCall(ctx context.Context, p auth.Principal, id string) (*client.Call, error) {
	row, c, err := m.lookup(ctx, p, id)
	if err != nil {
		return nil, err
	}
	if c == nil {
		return &row.Call, nil
	}
	c.abort(run.ReasonAborted)
	return c.await(ctx, nil, false, nil)
}

// Output implements server.Calls.
func (m *Manager) Output(ctx context.Context, p auth.Principal, callID string, o OutputOptions) (io.ReadCloser, int64, error) {
	if o.Offset < 0 {
		return nil, 0, invalidRequest("offset is %d; give 0 or more", o.Offset)
	}
	if o.Stream != "" && o.Stream != "stdout" && o.Stream != "stderr" {
		return nil, 0, invalidRequest("stream %q: use stdout or stderr, or leave it out", shown(o.Stream))
	}
	row, c, err := m.lookup(ctx, p, callID)
	if err != nil {
		return nil, 0, err
	}
	if c != nil && o.Stream == "" {
		return c.out.Reader(ctx, o.Offset, o.Follow), c.out.Available(), nil
	}
	if c != nil {
		if o.Follow {
			return nil, 0, invalidRequest("one stream of a running call cannot be followed; follow the whole output, or wait for the end")
		}
		v := c.snapshot()
		row = &store.Call{Call: *v, Output: store.Output{File: !v.Finished() || c.out.Kept() > 0, Total: c.out.Offset()}}
	}
	return m.savedOutput(row, o)
}

// savedOutput serves the output of a call that is over.
func (m *Manager) savedOutput(row *store.Call, o OutputOptions) (io.ReadCloser, int64, error) {
	file := m.savedPath(row)
	if o.Stream != "" && row.Output.Total == 0 && !row.Output.File {
		return io.NopCloser(strings.NewReader("")), 0, nil // neither stream had anything
	}
	if o.Stream != "" {
		r, err := output.OpenStream(file, o.Stream == "stderr", o.Offset)
		if err != nil {
			return nil, 0, m.savedError(row.ID, err)
		}
		return r, row.Output.Total, nil
	}
	if !row.Output.File && row.Output.Inline != row.Output.Total { // cut, or not as it was
		return nil, 0, errNotKept(row.ID)
	}
	if !row.Output.File {
		whole := row.Call.Output[:min(int64(len(row.Call.Output)), row.Output.Inline)]
		return io.NopCloser(strings.NewReader(whole[min(o.Offset, int64(len(whole))):])), int64(len(whole)), nil
	}
	f, size, err := output.OpenSaved(file, o.Offset)
	if err != nil {
		return nil, 0, m.savedError(row.ID, err)
	}
	return f, size, nil
}

// savedPath is the file of the output of a call.
func (m *Manager) savedPath(row *store.Call) string {
	return filepath.Join(m.cfg.OutputDir, row.SessionID, row.ID)
}

func errNotKept(call string) error {
	return &client.Error{
		Code:    client.CodeNotFound,
		Message: "the whole output of call " + call + " is not kept, or no longer",
		Hint:    "what the call shows of it is in its record",
	}
}

// savedError is an error of package output as one of the API.
func (m *Manager) savedError(call string, err error) error {
	switch {
	case errors.Is(err, output.ErrNotKept):
		return errNotKept(call)
	case errors.Is(err, output.ErrNoStreams):
		return &client.Error{
			Code:    client.CodeInvalidRequest,
			Message: fmt.Sprintf("the output of call %s was not kept as two streams", call),
			Hint:    "ask for it without stream=, or make the call with streams=split",
		}
	}
	return m.internal("read output", err)
}
