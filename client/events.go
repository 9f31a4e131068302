package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"
)

// EventQuery selects events. Type is exact, or a prefix with a trailing "*".
// After resumes after an event's id; empty begins with what happens now.
type EventQuery struct {
	Session, Type, After string
	// Stored asks for what is on record and for nothing that happens later; then
	// an empty After begins with the first event that there is.
	Stored bool
	// AllTenants asks for those of all tenants, for admins.
	AllTenants bool
	// Opened, when set, is called each time that the daemon has begun the stream:
	// what happens from then on is in it. It is called from the loop's goroutine.
	Opened func()
}

// Events streams what happens in the daemon until ctx ends or the loop is left, or
// until what is on record has been given, where only that is wanted.
// A stream that breaks is taken up again after the last event that was seen, for
// at most Options.Reconnect. An error is yielded last.
func (c *Client) Events(ctx context.Context, q EventQuery) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		v := url.Values{}
		setNonEmpty(v, "session", q.Session)
		setNonEmpty(v, "type", q.Type)
		setFlag(v, "stored", q.Stored)
		setAllTenants(v, q.AllTenants)
		last, retry := q.After, c.newRetry()
		take := func(m message) error {
			if q.Stored && m.event == EventEnd {
				return errStop
			}
			var e Event
			if err := json.Unmarshal(m.data, &e); err != nil {
				return fmt.Errorf("event %q is not the JSON expected: %w", m.id, err)
			}
			retry.arrived()
			if m.id != "" { // events that are not stored have none
				last = m.id
			}
			if !yield(e, nil) {
				return errStop
			}
			return nil
		}
		for {
			err := c.stream(ctx, request{method: "GET", path: "/v1/events", query: v, lastEventID: last, opened: q.Opened}, take)
			if errors.Is(err, errStop) {
				return
			}
			if !retry.again(ctx, err) {
				yield(Event{}, err)
				return
			}
		}
	}
}
