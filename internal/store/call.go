package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/toold/toold/client"
)

// Call is a call's row.
type Call struct {
	// Call is what clients see.
	client.Call
	Tenant string
	// Hash is the SHA-256 of what was asked, in canonical form: a key that
	// comes again must come with the same one.
	Hash []byte
	// Output says where the whole output is.
	Output Output
}

// Output says where the raw output of a call is.
type Output struct {
	// File: in a file of its own, named for the call, in the session's output
	// directory.
	File bool
	// Total is the number of bytes of the whole output, kept or not.
	Total int64
	// Inline is the number of bytes at the start of Call.Output that are the
	// whole raw output, for outputs without a file.
	Inline int64
}

// origin is what the caller said about where a call comes from.
type origin struct {
	MessageID string          `json:"message_id,omitempty"`
	Agent     string          `json:"agent,omitempty"`
	Model     string          `json:"model,omitempty"`
	Extra     json.RawMessage `json:"extra,omitempty"`
}

// result is all that a call has once it is finished.
type result struct {
	Title       string                 `json:"title,omitempty"`
	Output      string                 `json:"output,omitempty"`
	IsError     bool                   `json:"is_error,omitempty"`
	Metadata    map[string]any         `json:"metadata,omitempty"`
	Attachments []client.Attachment    `json:"attachments,omitempty"`
	Error       *client.Error          `json:"error,omitempty"`
	Permission  *client.CallPermission `json:"permission,omitempty"`
	Usage       client.CallUsage       `json:"usage,omitzero"`
}

const (
	sqlInsertCall = `INSERT INTO calls (id, session, tenant, key, hash, tool, status, queued, started, ended, input, origin, result,
		out_file, out_total, out_inline) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	// A call that has ended is not changed.
	sqlFinishCall = `UPDATE calls SET status = ?, started = ?, ended = ?, result = ?, out_file = ?, out_total = ?, out_inline = ?
		WHERE id = ? AND status IN ('pending', 'running')`
)

const sqlCallColumns = `SELECT id, session, tenant, key, hash, tool, status, queued, started, ended, input, origin, result,
	out_file, out_total, out_inline FROM calls `

// CallFilter selects calls of one session, oldest first.
type CallFilter struct {
	Session string
	Status  client.CallStatus
	Tool    string
	After   string // an id
	Limit   int
	// MaxBytes ends the list early, after the first row past it; 0 = never.
	MaxBytes int
}

// Call reads one call.
func (s *Store) Call(ctx context.Context, id string) (*Call, error) {
	if err := s.flush(ctx); err != nil {
		return nil, fmt.Errorf("read call: %w", err)
	}
	c, _, err := scanCall(s.rd.call.QueryRowContext(ctx, id).Scan)
	if err != nil {
		return nil, fmt.Errorf("read call: %w", classify(err))
	}
	return c, nil
}

// CallByKey reads the call of a session that has this key.
func (s *Store) CallByKey(ctx context.Context, session, key string) (*Call, error) {
	if err := s.flush(ctx); err != nil {
		return nil, fmt.Errorf("read call: %w", err)
	}
	c, _, err := scanCall(s.rd.callByKey.QueryRowContext(ctx, session, key).Scan)
	if err != nil {
		return nil, fmt.Errorf("read call by key: %w", classify(err))
	}
	return c, nil
}

// Calls lists calls. more says that there are further ones after the last.
func (s *Store) Calls(ctx context.Context, f CallFilter) (calls []*Call, more bool, err error) {
	if err := s.flush(ctx); err != nil {
		return nil, false, fmt.Errorf("list calls: %w", err)
	}
	rows, err := s.rd.calls.QueryContext(ctx, f.Session, f.After, string(f.Status), string(f.Status), f.Tool, f.Tool, f.Limit+1)
	if err != nil {
		return nil, false, fmt.Errorf("list calls: %w", classify(err))
	}
	defer func() { _ = rows.Close() }()
	total := 0
	for rows.Next() {
		if len(calls) == f.Limit || f.MaxBytes > 0 && total > f.MaxBytes {
			return calls, true, nil
		}
		c, size, err := scanCall(rows.Scan)
		if err != nil {
			return nil, false, fmt.Errorf("list calls: %w", classify(err))
		}
		total += size
		calls = append(calls, c)
	}
	return calls, false, classify(rows.Err())
}

// OpenCalls lists the calls of a session that have not ended.
func (s *Store) OpenCalls(ctx context.Context, session string) ([]*Call, error) {
	if err := s.flush(ctx); err != nil {
		return nil, fmt.Errorf("list open calls: %w", err)
	}
	rows, err := s.rd.openCalls.QueryContext(ctx, session)
	if err != nil {
		return nil, fmt.Errorf("list open calls: %w", classify(err))
	}
	defer func() { _ = rows.Close() }()
	var calls []*Call
	for rows.Next() {
		c, _, err := scanCall(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("list open calls: %w", classify(err))
		}
		calls = append(calls, c)
	}
	return calls, classify(rows.Err())
}

func scanCall(scan func(...any) error) (c *Call, size int, err error) {
	c = &Call{}
	var status string
	var queued, started, ended int64
	var input, from, res []byte
	if err := scan(&c.ID, &c.SessionID, &c.Tenant, &c.Key, &c.Hash, &c.Tool, &status, &queued, &started, &ended,
		&input, &from, &res, &c.Output.File, &c.Output.Total, &c.Output.Inline); err != nil {
		return nil, 0, err
	}
	c.Status, c.Input = client.CallStatus(status), input
	c.Time = client.CallTime{Queued: time.UnixMilli(queued).UTC(), Started: fromMillis(started), Ended: fromMillis(ended)}
	if err := unmarshalMaybe(from, func(o origin) {
		c.MessageID, c.Agent, c.Model, c.Extra = o.MessageID, o.Agent, o.Model, o.Extra
	}); err != nil {
		return nil, 0, err
	}
	if err := unmarshalMaybe(res, func(r result) {
		c.Title, c.Call.Output, c.IsError, c.Metadata = r.Title, r.Output, r.IsError, r.Metadata
		c.Attachments, c.Error, c.Permission, c.Usage = r.Attachments, r.Error, r.Permission, r.Usage
	}); err != nil {
		return nil, 0, err
	}
	return c, len(input) + len(from) + len(res), nil
}

func unmarshalMaybe[T any](b []byte, use func(T)) error {
	if len(b) == 0 {
		return nil
	}
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	use(v)
	return nil
}
