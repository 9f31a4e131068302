package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call/output"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/store"
)

// resumable refuses to take a stream up again whose call does not exist: to make
// it would be a second run for who has read output of the first.
func (s *Session) resumable(ctx context.Context, key string) error {
	if key == "" {
		return &client.Error{
			Code: client.CodeInvalidRequest, Message: "Last-Event-ID goes on with the call that has the key, and there is no key",
			Hint: "send the key that the call was made with, or leave Last-Event-ID out",
		}
	}
	_, err := s.m.store.CallByKey(ctx, s.id, key)
	if errors.Is(err, store.ErrNotFound) {
		return &client.Error{
			Code: client.CodeNotFound, Message: fmt.Sprintf("no call of session %s has the key %q", s.id, shown(key)),
			Hint: "leave Last-Event-ID out to make the call",
		}
	}
	return err
}

// again streams a call to somebody who asks for it once more by its key: where it
// is, its output from where they have it, what happens meanwhile, and its end.
func (m *Manager) again(ctx context.Context, t *twin, o CallOptions) (*client.Call, error) {
	r := &rerun{send: o.OnEvent, told: make(map[string]string)}
	if t.live == nil {
		if err := r.begin(o.After, m.streamsOf(t.row), t.row.Output.Total); err != nil {
			return nil, err
		}
		r.base = client.Event{Tenant: t.row.Tenant, Session: t.row.SessionID, Call: t.row.ID}
		if def, ok := m.tools.Get(t.row.Tool); ok && def.Streams {
			if err := r.saved(m, t.row); err != nil {
				return &t.row.Call, err
			}
		}
		r.end(&t.row.Call)
		return &t.row.Call, nil
	}
	c := t.live
	if err := r.begin(o.After, splitIf(c.split), c.out.Offset()); err != nil {
		return nil, err
	}
	o.keep(c)
	r.base = client.Event{Tenant: c.s.tenant.name, Session: c.s.id, Call: c.id}
	now := c.snapshot()
	r.event(r.made(string(now.Status), now)) // before any output
	l := c.follow(r.event)
	defer c.unfollow(l)
	for _, p := range m.approvals.PendingOf(c.id) {
		r.event(r.made(client.EventApprovalAsked, &p.Row.Approval))
	}
	if c.streams {
		if err := r.live(ctx, c.out); err != nil && ctx.Err() == nil {
			return c.snapshot(), err
		}
	}
	v, err := c.await(ctx, nil, o.AbortOnDisconnect, l)
	c.unfollow(l) // what is before the end
	if err == nil {
		r.end(v)
	}
	return v, err
}

// streams says whether an output is one or two.
type streams int

const (
	anyStreams streams = iota // it is not known any more
	oneStream
	twoStreams
)

func splitIf(split bool) streams {
	if split {
		return twoStreams
	}
	return oneStream
}

// streamsOf looks at what is kept of the output of a call that is over.
func (m *Manager) streamsOf(row *store.Call) streams {
	if !row.Output.File { // two have one, unless there is nothing in them
		return oneStream
	}
	file := m.savedPath(row)
	if _, err := os.Lstat(file); err != nil {
		return anyStreams
	}
	return splitIf(output.IsSplit(file))
}

// rerun sends the events of a call again.
type rerun struct {
	at    output.Position // of the next byte to send
	carry [2][]byte
	split bool
	base  client.Event // what all events have in common

	mu   sync.Mutex // held while an event is sent; guards told
	send func(client.Event)
	told map[string]string // the last data that was sent, by type
}

// begin sets where the output begins, "" for its beginning.
func (r *rerun) begin(after string, kind streams, total int64) error {
	r.split = kind == twoStreams
	if after == "" {
		return nil
	}
	at, split, err := output.ParsePosition(after)
	if err != nil || kind != anyStreams && split != r.split || at[0] > total || at[1] > total-at[0] {
		return &client.Error{
			Code:    client.CodeInvalidRequest,
			Message: fmt.Sprintf("Last-Event-ID %q is not from the stream of this call; its output has %d bytes so far", shown(after), total),
			Hint:    "leave it out to get the output from its beginning",
		}
	}
	r.at, r.split = at, split
	return nil
}

// made is an event of the call.
func (r *rerun) made(typ string, data any) client.Event {
	e := r.base
	e.Type, e.Time = typ, time.Now().UTC()
	e.Data, _ = json.Marshal(data) // only our own plain structs come here
	return e
}

// pass sends an event, one at a time.
func (r *rerun) pass(e client.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.send(e)
}

// event passes on what is neither output nor the end, and nothing twice in a row.
func (r *rerun) event(e client.Event) {
	switch e.Type {
	case "output", string(client.CallCompleted), string(client.CallError):
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.told[e.Type]; !ok || last != string(e.Data) {
		r.told[e.Type] = string(e.Data)
		r.send(e)
	}
}

// end sends the end of the call, if it has ended.
func (r *rerun) end(v *client.Call) {
	if v.Finished() {
		r.pass(r.made(string(v.Status), v))
	}
}

// give sends the next bytes of a stream. A UTF-8 sequence that is cut by the end
// of p waits for its rest.
func (r *rerun) give(i int, p []byte) {
	p = append(r.carry[i], p...)
	n := len(p) - plain.PartialRune(p)
	r.carry[i] = append([]byte(nil), p[n:]...)
	r.output(i, p[:n])
}

// output sends bytes of a stream.
func (r *rerun) output(i int, p []byte) {
	if len(p) == 0 {
		return
	}
	stream := ""
	if r.split {
		stream = streamNames[i]
	}
	e := r.made("output", client.NewOutput(stream, r.at[i], p))
	r.at[i] += int64(len(p))
	e.ID = r.at.ID(r.split)
	r.pass(e)
}

// ended sends what give held back, and how much of the whole was not kept.
func (r *rerun) ended(total int64) {
	for i, p := range r.carry {
		r.output(i, p)
	}
	have := r.at[0] + r.at[1]
	if have >= total {
		return
	}
	e := r.made("output", client.Output{Offset: have, Missing: total - have})
	if !r.split {
		e.ID = output.Position{total}.ID(false)
	}
	r.pass(e)
}

// live sends an output that may still grow, until its end.
func (r *rerun) live(ctx context.Context, o *output.Output) error {
	err := o.Follow(ctx, r.at, r.give)
	if err == nil {
		r.ended(o.Offset())
	}
	return err
}

// saved sends the output of a call that is over.
func (r *rerun) saved(m *Manager, row *store.Call) error {
	var err error
	if r.split {
		err = output.PassSaved(m.savedPath(row), r.at, r.give)
	} else {
		var body io.ReadCloser
		if body, _, err = m.savedOutput(row, OutputOptions{Offset: r.at[0]}); err == nil {
			err = errors.Join(output.Pass(body, r.give), body.Close())
		}
	}
	if ce, ok := errors.AsType[*client.Error](err); err != nil && !errors.Is(err, os.ErrNotExist) && (!ok || ce.Code != client.CodeNotFound) {
		return err
	}
	r.ended(row.Output.Total)
	return nil
}
