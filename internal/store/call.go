package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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

// Settle makes the end of a call whole for those who read no more of it than
// is_error and output: an error's text stands at the end of the output, and no
// output is empty. It is called once for each call that has ended.
func (c *Call) Settle() {
	if c.Status == client.CallError && c.Error != nil {
		c.IsError = true
		if out := c.Call.Output; out != "" && !strings.HasSuffix(out, "\n") {
			c.Call.Output += "\n"
		}
		c.Call.Output += c.Error.Text()
	}
	if c.IsError && c.Call.Output == "" {
		c.Call.Output = "the tool failed and gave no text; try it in another way"
	}
	if c.Call.Output == "" {
		c.Call.Output = client.NoOutput
	}
}

// origin is what the caller said about where a call comes from.
type origin struct {
	MessageID string          `json:"message_id,omitempty"`
	Agent     string          `json:"agent,omitempty"`
	Model     string          `json:"model,omitempty"`
	Extra     json.RawMessage `json:"extra,omitempty"`
	Typed     bool            `json:"typed,omitempty"`
	Parent    string          `json:"parent,omitempty"`
	ToolSet   string          `json:"set,omitempty"`
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
func (s *Store) Call(ctx context.Context, id string) (_ *Call, err error) {
	defer naming(&err, "read call")
	b, err := s.settle(ctx)
	if err != nil {
		return nil, err
	}
	row, err := one(ctx, &s.rd, sqlCallColumns+"WHERE id = ?", scanRow, id)
	if added, ok := b.one(id); ok && errors.Is(err, ErrNotFound) {
		row, err = added, nil
	}
	if err != nil {
		return nil, err
	}
	b.complete(row)
	return row.decode()
}

// CallByKey reads the call of a session that has this key.
func (s *Store) CallByKey(ctx context.Context, session, key string) (_ *Call, err error) {
	defer naming(&err, "read call by key")
	b, err := s.settle(ctx)
	if err != nil {
		return nil, err
	}
	row, err := one(ctx, &s.rd, sqlCallColumns+"WHERE session = ? AND key = ? AND key <> ''", scanRow, session, key)
	if err != nil {
		return nil, err
	}
	b.complete(row)
	return row.decode()
}

// Calls lists calls. more says that there are further ones after the last.
func (s *Store) Calls(ctx context.Context, f CallFilter) (calls []*Call, more bool, err error) {
	defer naming(&err, "list calls")
	b, err := s.settle(ctx)
	if err != nil {
		return nil, false, err
	}
	status, limit := string(f.Status), f.Limit+1
	if b != nil { // which may have changed any status
		status, limit = "", -1
	}
	rows, err := s.rd.query(ctx, sqlCallColumns+"WHERE session = ? AND id > ? AND (? = '' OR status = ?) AND (? = '' OR tool = ?) ORDER BY id LIMIT ?",
		f.Session, f.After, status, status, f.Tool, f.Tool, limit)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = rows.Close() }()
	total, next := 0, b.merge(rows, b.added(f.Session, f.After))
	for {
		row, err := next()
		if err != nil {
			return nil, false, err
		}
		if row == nil {
			return calls, false, nil
		}
		if f.Status != "" && row.status != string(f.Status) || f.Tool != "" && row.tool != f.Tool {
			continue
		}
		if len(calls) == f.Limit || f.MaxBytes > 0 && total > f.MaxBytes {
			return calls, true, nil
		}
		c, err := row.decode()
		if err != nil {
			return nil, false, err
		}
		total += row.size()
		calls = append(calls, c)
	}
}

// OpenCalls lists the calls of a session that have not ended.
func (s *Store) OpenCalls(ctx context.Context, session string) (_ []*Call, err error) {
	defer naming(&err, "list open calls")
	if err := s.flush(ctx); err != nil {
		return nil, err
	}
	return list(ctx, &s.rd, sqlCallColumns+"WHERE session = ? AND status IN ('pending', 'running') ORDER BY id", scanCall, session)
}

func scanCall(scan scanner) (*Call, error) {
	row, err := scanRow(scan)
	if err != nil {
		return nil, err
	}
	return row.decode()
}

func scanRow(scan scanner) (*callRow, error) {
	r := &callRow{}
	return r, scan(&r.id, &r.session, &r.tenant, &r.key, &r.hash, &r.tool, &r.status, &r.queued, &r.started, &r.ended,
		&r.input, &r.origin, &r.result, &r.file, &r.total, &r.inline)
}

// size is that of the row's record.
func (r *callRow) size() int { return len(r.input) + len(r.origin) + len(r.result) }

// decode gives the call of a row.
func (r *callRow) decode() (*Call, error) {
	c := &Call{Tenant: r.tenant, Hash: r.hash, Output: Output{File: r.file != 0, Total: r.total, Inline: r.inline}}
	c.ID, c.SessionID, c.Key, c.Tool, c.Status = r.id, r.session, r.key, r.tool, client.CallStatus(r.status)
	if err := c.setInput(r.input); err != nil {
		return nil, err
	}
	c.Time = client.CallTime{Queued: time.UnixMilli(r.queued).UTC(), Started: fromMillis(r.started), Ended: fromMillis(r.ended)}
	if len(r.origin) > 0 {
		var o origin
		if err := unmarshal(r.origin, &o); err != nil {
			return nil, err
		}
		c.MessageID, c.Agent, c.Model, c.Extra, c.Typed, c.Parent, c.ToolSet = o.MessageID, o.Agent, o.Model, o.Extra, o.Typed, o.Parent, o.ToolSet
	}
	if len(r.result) > 0 {
		if err := unmarshal(r.result, &c.Call); err != nil { // by the names of result, which are those of a client.Call
			return nil, err
		}
	}
	if c.Status == client.CallError && !c.IsError {
		c.Settle() // an earlier version has stored it
	}
	return c, nil
}

// unmarshal reads a column of JSON.
func unmarshal(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}
