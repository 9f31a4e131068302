package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
)

// backlog is what was appended and cannot be moved into the database, because the
// disk is full: readers add it to what they find there. The zero value and nil
// are an empty one.
type backlog struct {
	calls  map[string][]record // by call, in their order
	events []eventRow
	audits []AuditEnd
}

// settle has what was appended moved into the database, which is where readers
// look. What cannot be moved is returned.
func (s *Store) settle(ctx context.Context) (*backlog, error) {
	err := s.flush(ctx)
	if !errors.Is(err, ErrFull) {
		return nil, err
	}
	s.w.journal.mu.Lock()
	frames := slices.Concat(s.w.taken, s.w.journal.waiting)
	s.w.journal.mu.Unlock()
	b := &backlog{calls: make(map[string][]record)}
	for len(frames) > 0 {
		f, err := parseFrame(frames)
		if err != nil {
			return nil, err
		}
		if err := b.add(f.payload); err != nil {
			return nil, err
		}
		frames = frames[f.size:]
	}
	return b, nil
}

func (b *backlog) add(payload []byte) error {
	for len(payload) > 0 {
		r, rest, err := decodeRecord(payload)
		if err != nil {
			return err
		}
		switch r.kind {
		case recordEvent:
			b.events = append(b.events, r.event)
		case recordAuditEnd:
			b.audits = append(b.audits, r.audit)
		default:
			b.calls[r.call.id] = append(b.calls[r.call.id], r)
		}
		payload = rest
	}
	return nil
}

// complete makes the changes of a row of the database. Some of them may have been
// made there since.
func (b *backlog) complete(row *callRow) {
	if b == nil {
		return
	}
	for i := range b.calls[row.id] {
		b.calls[row.id][i].change(row)
	}
}

// added are the calls of a session that are not in the database, by their ids.
func (b *backlog) added(session, after string) []callRow {
	if b == nil {
		return nil
	}
	var rows []callRow
	for id, records := range b.calls {
		if r := records[0]; r.kind == recordInsertCall && r.call.session == session && id > after {
			b.complete(&r.call)
			rows = append(rows, r.call)
		}
	}
	slices.SortFunc(rows, func(a, b callRow) int { return cmp.Compare(a.id, b.id) })
	return rows
}

// merge gives rows of the database and those that are not in there in the order of
// their ids, and nil after the last.
func (b *backlog) merge(rows *sql.Rows, added []callRow) (next func() (*callRow, error)) {
	var held *callRow // read from rows and not given yet
	return func() (*callRow, error) {
		if held == nil && rows.Next() {
			row, err := scanRow(rows.Scan)
			if err != nil {
				return nil, err
			}
			b.complete(row)
			held = row
		}
		if len(added) > 0 && (held == nil || added[0].id <= held.id) {
			first := &added[0]
			if added = added[1:]; held != nil && held.id == first.id {
				held = nil // it has been moved in the meantime
			}
			return first, nil
		}
		row := held
		held = nil
		return row, rows.Err()
	}
}

// one finds a call that is not in the database.
func (b *backlog) one(id string) (*callRow, bool) {
	if b == nil || len(b.calls[id]) == 0 || b.calls[id][0].kind != recordInsertCall {
		return nil, false
	}
	row := b.calls[id][0].call
	b.complete(&row)
	return &row, true
}

// matches says whether a filter selects an event, as sqlEvents does.
func (e *eventRow) matches(f *EventFilter) bool {
	prefix, wild := strings.CutSuffix(f.Type, "*")
	return e.id > f.After && (f.Tenant == "" || e.tenant == f.Tenant) && (f.Session == "" || e.session == f.Session) &&
		(f.Type == "" || e.typ == f.Type || wild && strings.HasPrefix(e.typ, prefix))
}
