package store

import (
	"context"
	"time"
)

// sweepRows bounds one step of a sweep, so that writers never wait long for it.
const sweepRows = 500

// Rows are found by their ids, which begin with the time: no index on times is
// needed, and only old rows are looked at.
const (
	sqlOrphans = `SELECT id FROM events WHERE id > ? AND tenant = ? AND call <> ''
		AND NOT EXISTS (SELECT 1 FROM calls WHERE calls.id = events.call) ORDER BY id LIMIT ?`
	// Calls of live sessions go too: history is bounded by age alone.
	sqlSweepCalls  = "DELETE FROM calls WHERE id IN (SELECT id FROM calls WHERE id < ? AND ended > 0 AND ended < ? LIMIT ?)" + sqlRemoved
	sqlRemoveCalls = "DELETE FROM calls WHERE id IN (SELECT id FROM calls WHERE tenant = ? AND ended > 0 ORDER BY id LIMIT ?)" + sqlRemoved
	sqlRemoved     = " RETURNING session, id, out_file, tenant, " + recordBytes
	sqlOldSessions = `SELECT id FROM sessions WHERE id > ? AND live = 0 AND ended < ?
		AND NOT EXISTS (SELECT 1 FROM calls WHERE calls.session = sessions.id) ORDER BY id LIMIT ?`
)

// Sweep removes events and finished calls that are older than before. It returns the
// number of rows that went, and tells gone the calls. Sessions go by RemoveSessions, after
// what they have left on the disk.
func (s *Store) Sweep(ctx context.Context, before time.Time, gone func([]Removed)) (_ int64, err error) {
	defer naming(&err, "sweep")
	ms := before.UnixMilli()
	return sweep(
		ctx,
		s.deletion("DELETE FROM events WHERE id IN (SELECT id FROM events WHERE id < ? LIMIT ?)", idAt("evt_", before), sweepRows),
		func() (int64, error) {
			calls, err := s.removeCalls(sqlSweepCalls, idAt("call_", before), ms, sweepRows)
			gone(calls)
			return int64(len(calls)), err
		},
	)
}

// OldSessions lists sessions that ended before a time and have no calls on record, a
// step of a sweep at a time: those with ids behind after, in their order.
func (s *Store) OldSessions(ctx context.Context, before time.Time, after string) (_ []string, err error) {
	defer naming(&err, "list old sessions")
	if err := s.flush(ctx); err != nil {
		return nil, err
	}
	return list(ctx, &s.rd, sqlOldSessions, column[string], after, before.UnixMilli(), sweepRows)
}

// RemoveSessions removes the records of sessions that are over.
func (s *Store) RemoveSessions(ids []string) error {
	return s.Write(func(tx *Tx) error {
		for _, id := range ids {
			if _, err := tx.st.exec("DELETE FROM sessions WHERE id = ? AND live = 0", id); err != nil {
				return err
			}
		}
		return nil
	})
}

// deletion is a step that counts the rows that went.
func (s *Store) deletion(text string, args ...any) func() (int64, error) {
	return func() (n int64, err error) {
		err = s.Write(func(tx *Tx) error {
			r, err := tx.st.exec(text, args...)
			if err != nil {
				return err
			}
			n, err = r.RowsAffected()
			return err
		})
		return n, err
	}
}

// sweep repeats each step until nothing is left for it to do.
func sweep(ctx context.Context, steps ...func() (int64, error)) (total int64, err error) {
	for _, step := range steps {
		for n := int64(sweepRows); n >= sweepRows; total += n {
			if err := ctx.Err(); err != nil {
				return total, err
			}
			if n, err = step(); err != nil {
				return total, err
			}
		}
	}
	return total, nil
}

// OutputRef names the output file of a call.
type OutputRef struct{ Session, Call string }

// OldOutputs lists calls that ended before a time and have an output file.
func (s *Store) OldOutputs(ctx context.Context, before time.Time, limit int) (_ []OutputRef, err error) {
	defer naming(&err, "list old outputs")
	if err := s.flush(ctx); err != nil {
		return nil, err
	}
	return list(ctx, &s.rd, "SELECT session, id FROM calls WHERE id < ? AND out_file = 1 AND ended > 0 AND ended < ? ORDER BY id LIMIT ?", func(scan scanner) (OutputRef, error) {
		var r OutputRef
		err := scan(&r.Session, &r.Call)
		return r, err
	}, idAt("call_", before), before.UnixMilli(), limit)
}

// DropOutput says that the output file of a call is gone.
func (tx *Tx) DropOutput(call string) error {
	_, err := tx.st.exec("UPDATE calls SET out_file = 0 WHERE id = ?", call)
	return err
}
