package store

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/toold/toold/client"
)

// applier makes the changes of records in the transaction that is open. What
// happens to a call from its insertion to its end becomes one row when it is in
// the same batch, as it is for all calls that are short.
type applier struct {
	st       *prepared
	noEvents bool // they are inserted by somebody else
	// log, where it is not nil, takes note of what a constraint forbids, which is
	// then left out: a journal that cannot be applied would hold up everything.
	log *slog.Logger

	calls map[string]*callRow // inserted by this batch, and not written yet
	order []*callRow
	audit *AuditEnd // the newest of this batch, not written yet
}

// records makes the changes of a payload, whose bytes are kept until finish.
func (a *applier) records(payload []byte) error {
	for len(payload) > 0 {
		r, rest, err := decodeRecord(payload)
		if err != nil {
			return err
		}
		payload = rest
		row := a.calls[r.call.id]
		switch {
		case r.kind == recordInsertCall:
			if a.calls == nil {
				a.calls = make(map[string]*callRow)
			}
			a.calls[r.call.id], a.order = &r.call, append(a.order, &r.call)
		case r.kind == recordEvent && a.noEvents:
		case r.kind == recordEvent:
			err = a.event(&r.event)
		case r.kind == recordAuditEnd:
			err = a.auditEnd(&r.audit)
		case row != nil:
			r.change(row)
		default:
			err = a.update(&r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// change makes the change of a record in the row of its call.
func (r *record) change(row *callRow) {
	c := &r.call
	pending, running := row.status == string(client.CallPending), row.status == string(client.CallRunning)
	switch {
	case r.kind == recordStartCall && pending:
		row.status, row.started = c.status, c.started
	case r.kind == recordFinishCall && (pending || running):
		row.status, row.started, row.ended, row.result = c.status, c.started, c.ended, c.result
		row.file, row.total, row.inline = c.file, c.total, c.inline
	case r.kind == recordDropInput:
		row.input = c.input
	}
}

// update is change for a row that is in the database.
func (a *applier) update(r *record) error {
	c := &r.call
	switch r.kind {
	case recordStartCall:
		return a.exec("UPDATE calls SET status = 'running', started = ? WHERE id = ? AND status = 'pending'", c.started, c.id)
	case recordFinishCall:
		return a.exec(sqlFinishCall, c.status, c.started, c.ended, c.result, c.file, c.total, c.inline, c.id)
	case recordDropInput:
		return a.exec("UPDATE calls SET input = ? WHERE id = ?", filled(c.input), c.id)
	}
	return nil
}

func (a *applier) event(e *eventRow) error {
	var data any // NULL where there is none
	if len(e.data) > 0 {
		data = e.data
	}
	return a.exec("INSERT INTO events (id, time, type, tenant, session, call, data) VALUES (?, ?, ?, ?, ?, ?, ?)",
		e.id, e.time, e.typ, e.tenant, e.session, e.call, data)
}

// finish writes the calls that were inserted.
func (a *applier) finish() error {
	for _, c := range a.order {
		err := a.exec(sqlInsertCall, c.id, c.session, c.tenant, c.key, filled(c.hash), c.tool, c.status,
			c.queued, c.started, c.ended, filled(c.input), c.origin, c.result, c.file, c.total, c.inline)
		if err != nil {
			return err
		}
	}
	return a.writeAuditEnd()
}

// filled is b as the value of a column that may be empty and not NULL.
func filled(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func (a *applier) exec(text string, args ...any) error {
	_, err := a.st.exec(text, args...)
	if err != nil && a.log != nil && errors.Is(classify(err), ErrExists) {
		a.log.Error("a record of the journal does not fit the database", "error", err)
		return nil
	}
	return err
}

// applyFrames makes the changes of the journal's frames and notes the last one.
func applyFrames(st *prepared, log *slog.Logger, frames []byte) (n int, err error) {
	a := applier{st: st, log: log}
	var last uint64
	for len(frames) > 0 {
		f, err := parseFrame(frames)
		if err == nil {
			err = a.records(f.payload)
		}
		if err != nil {
			return 0, fmt.Errorf("apply record %d of the journal: %w", f.seq, err)
		}
		last, frames = f.seq, frames[f.size:]
		n++
	}
	if err := a.finish(); err != nil {
		return 0, err
	}
	_, err = st.exec(sqlSetMeta, metaApplied, int64(last))
	return n, err
}
