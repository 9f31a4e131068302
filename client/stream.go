package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
)

// maxEvent bounds one event of a stream: a finished call carries its input and
// its attachments.
const maxEvent = 128 << 20

// errStop is what the consumer of a stream returns to leave it.
var errStop = errors.New("stop")

// message is one event of a text/event-stream.
type message struct {
	id, event string
	data      []byte
}

// stream opens an event stream and gives each message to fn. It ends with fn's
// error, the daemon's *Error, or ErrDisconnected: event streams have no end of
// their own. m.data is valid until fn returns.
func (c *Client) stream(ctx context.Context, r request, fn func(message) error) error {
	r.accept = "text/event-stream"
	resp, err := c.do(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != r.accept {
		return fmt.Errorf("%s %s: the answer is %q, not an event stream", r.method, r.path, kind)
	}
	if r.opened != nil {
		r.opened()
	}
	err = readMessages(resp.Body, maxEvent, fn)
	if errors.Is(err, ErrDisconnected) {
		return c.transportError(ctx, r, io.ErrUnexpectedEOF)
	}
	return err
}

// following sends r and takes the events of its answer: those of how it goes on, which
// have this name, and at the end completed, which has the answer, or error.
func following[T, P any](ctx context.Context, c *Client, r request, name string, tell func(P)) (*T, error) {
	out := new(T)
	err := c.stream(ctx, r, func(m message) error {
		var err error
		switch m.event { // one of a later version is passed over
		case name:
			var step P
			if err = json.Unmarshal(m.data, &step); err == nil {
				tell(step)
			}
		case "completed":
			if err = json.Unmarshal(m.data, out); err == nil {
				return errStop
			}
		case "error":
			var p Problem
			if err = json.Unmarshal(m.data, &p); err == nil {
				return &Error{Code: p.Code, Message: p.Detail, Hint: p.Hint, Violations: p.Violations, Status: p.Status}
			}
		}
		if err != nil {
			return fmt.Errorf("%s %s: the event %s is not the JSON expected: %w", r.method, r.path, m.event, err)
		}
		return nil
	})
	if errors.Is(err, errStop) {
		return out, nil
	}
	return nil, err
}

// readMessages parses an event stream as the WHATWG standard has it, with "\n"
// and "\r\n" line ends and at most limit bytes in a line and of data in one. It returns
// ErrDisconnected at the end of the stream, and where it breaks; an event that the end cuts
// off is dropped.
func readMessages(r io.Reader, limit int, fn func(message) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 4<<10), limit) // most are short; it grows
	var m message
	var hasData bool
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			if hasData {
				if err := fn(m); err != nil {
					return err
				}
			}
			m, hasData = message{data: m.data[:0]}, false
			continue
		}
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "id":
			m.id = string(value)
		case "event":
			m.event = string(value)
		case "data":
			if len(m.data)+len(value) > limit {
				return fmt.Errorf("an event is longer than %d bytes", limit)
			}
			if hasData {
				m.data = append(m.data, '\n')
			}
			m.data, hasData = append(m.data, value...), true
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("a line of the event stream is longer than %d bytes", limit)
	}
	return ErrDisconnected
}
