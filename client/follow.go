package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"
)

// StreamCall runs a tool and streams its events, with the short types pending,
// running, metadata, output, completed and error; the last one is completed or
// error and carries the finished call. A call that must be approved also has
// approval.asked and approval.replied. The data of an output event is an Output,
// that of the approvals' an Approval and an ApprovalReply, that of the others a
// Call, and for metadata an object.
//
// A stream that breaks after the call began is taken up again by the call's id:
// output goes on at the byte where it broke. Before that it is repeated only
// when r.Key is set, since only then it cannot run twice; a daemon that is away by
// then is waited for, as with any stream that breaks.
func (c *Client) StreamCall(ctx context.Context, session string, r CallCreate, o CallOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f := newFollower(c, yield, o.Split)
		f.session = session
		f.end(f.create(ctx, r, o))
	}
}

// FollowCall streams a call that was created before, from this byte of its
// output on, until it has finished: output events, and then completed or error.
func (c *Client) FollowCall(ctx context.Context, id string, offset int64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f := newFollower(c, yield, false)
		f.call, f.offset[""] = id, offset
		f.end(f.follow(ctx))
	}
}

// follower takes one call to its end, over as many connections as that needs.
type follower struct {
	c       *Client
	yield   func(Event, error) bool
	retry   *retry
	session string
	call    string // its id, "" until the daemon has said it
	split   bool
	offset  map[string]int64 // of the next byte, by stream
	done    bool
}

func newFollower(c *Client, yield func(Event, error) bool, split bool) *follower {
	return &follower{c: c, yield: yield, retry: c.newRetry(), split: split, offset: map[string]int64{}}
}

// end yields the error that ended the stream, if one did.
func (f *follower) end(err error) {
	if err != nil && !errors.Is(err, errStop) {
		f.yield(Event{}, err)
	}
}

// create makes the call and takes its events; when that breaks it follows.
func (f *follower) create(ctx context.Context, r CallCreate, o CallOptions) error {
	req := request{method: "POST", path: sessionPath(f.session, "calls"), query: o.values(), body: r}
	for {
		err := f.c.stream(ctx, req, f.take)
		switch {
		case f.done || errors.Is(err, errStop):
			return nil
		case f.call != "" && temporary(err) && f.retry.again(ctx, err):
			return f.follow(ctx)
		case f.call != "" || r.Key == "":
			return err
		case errors.Is(err, ErrDisconnected):
			f.retry.worked = true // a daemon was there, and may be back
		}
		if !f.retry.again(ctx, err) {
			return err
		}
	}
}

// follow takes the rest of the output and then the result, as often as it takes.
func (f *follower) follow(ctx context.Context) error {
	for {
		err := f.once(ctx)
		if f.done || errors.Is(err, errStop) {
			return nil
		}
		if !f.retry.again(ctx, err) {
			return err
		}
	}
}

func (f *follower) once(ctx context.Context) error {
	if !f.split {
		if err := f.output(ctx, OutputQuery{Offset: f.offset[""], Follow: true}); err != nil {
			return err
		}
	}
	c, err := f.ended(ctx)
	if err != nil {
		return err
	}
	if f.split {
		for _, stream := range []string{"stdout", "stderr"} {
			if err := f.output(ctx, OutputQuery{Offset: f.offset[stream], Stream: stream}); err != nil {
				return err
			}
		}
	}
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("call %s: %w", c.ID, err)
	}
	f.done = true
	return f.give(Event{Type: string(c.Status), Time: time.Now().UTC(), Session: c.SessionID, Call: c.ID, Data: data})
}

// pollEvery is the pause between looks at a call that cannot be followed.
const pollEvery = 250 * time.Millisecond

// ended gets the call when it has finished. The daemon follows only whole
// outputs, so for one whose streams are apart this is the way to wait.
func (f *follower) ended(ctx context.Context) (*Call, error) {
	for {
		c, err := f.c.GetCall(ctx, f.call)
		if err != nil {
			return nil, err
		}
		f.retry.arrived()
		switch {
		case c.Finished():
			return c, nil
		case !f.split:
			// Its output ended before the call did: the daemon is going away.
			return nil, fmt.Errorf("call %s is still %s: %w", c.ID, c.Status, ErrDisconnected)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pollEvery):
		}
	}
}

// output takes one stream's bytes from where it broke to its end.
func (f *follower) output(ctx context.Context, q OutputQuery) error {
	body, err := f.c.CallOutput(ctx, f.call, q)
	if err != nil {
		return err
	}
	defer body.Close()
	f.retry.arrived()
	buf := make([]byte, 32<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			data, jerr := json.Marshal(NewOutput(q.Stream, f.offset[q.Stream], buf[:n]))
			if jerr != nil {
				return jerr
			}
			f.offset[q.Stream] += int64(n)
			if err := f.give(Event{Type: "output", Time: time.Now().UTC(), Session: f.session, Call: f.call, Data: data}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return f.c.transportError(ctx, request{method: "GET", path: callPath(f.call, "output")}, err)
		}
	}
}

// take handles one message of the call's own stream.
func (f *follower) take(m message) error {
	f.retry.arrived()
	e := Event{ID: m.id, Type: m.event, Time: time.Now().UTC(), Data: append(json.RawMessage(nil), m.data...)}
	switch m.event {
	case "output":
		var o Output
		if err := json.Unmarshal(m.data, &o); err != nil {
			return fmt.Errorf("output of call %s is not the JSON expected: %w", f.call, err)
		}
		f.offset[o.Stream] = o.Offset + int64(len(o.Bytes()))
	case "pending", "running", "completed", "error":
		var c struct {
			ID      string `json:"id"`
			Session string `json:"session_id"`
		}
		if err := json.Unmarshal(m.data, &c); err != nil {
			return fmt.Errorf("%s of call %s is not the JSON expected: %w", m.event, f.call, err)
		}
		f.call = c.ID
		if c.Session != "" {
			f.session = c.Session // it was asked for by its name, perhaps
		}
		f.done = m.event == "completed" || m.event == "error"
	}
	e.Session, e.Call = f.session, f.call
	if err := f.give(e); err != nil {
		return err
	}
	if f.done {
		return errStop
	}
	return nil
}

func (f *follower) give(e Event) error {
	if !f.yield(e, nil) {
		f.done = true // the reader has left
		return errStop
	}
	return nil
}
