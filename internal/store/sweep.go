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
	sqlSweepCalls    = "DELETE FROM calls WHERE id IN (SELECT id FROM calls WHERE id < ? AND ended > 0 AND ended < ? LIMIT ?)" + sqlRemoved
	sqlRemoveCalls   = "DELETE FROM calls WHERE id IN (SELECT id FROM calls WHERE tenant = ? AND ended > 0 ORDER BY id LIMIT ?)" + sqlRemoved
	sqlRemoved       = " RETURNING session, id, out_file, tenant, " + recordBytes
	sqlSweepSessions = `DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE live = 0 AND ended < ?
		AND NOT EXISTS (SELECT 1 FROM calls WHERE calls.session = sessions.id) LIMIT ?)`
)

// Sweep removes events, finished calls and ended sessions that are older than
// age. It returns the number of rows that went, and tells gone the calls.
func (s *Store) Sweep(ctx context.Context, age time.Duration, gone func([]Removed)) (_ int64, err error) {
	defer naming(&err, "sweep")
	before := time.Now().Add(-age)
	ms := before.UnixMilli()
	return sweep(
		ctx,
		s.deletion("DELETE FROM events WHERE id IN (SELECT id FROM events WHERE id < ? LIMIT ?)", idAt("evt_", before), sweepRows),
		func() (int64, error) {
			calls, err := s.removeCalls(sqlSweepCalls, idAt("call_", before), ms, sweepRows)
			gone(calls)
			return int64(len(calls)), err
		},
		s.deletion(sqlSweepSessions, ms, sweepRows),
	)
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

// OldOutputs lists calls that ended before age and have an output file.
func (s *Store) OldOutputs(ctx context.Context, age time.Duration, limit int) (_ []OutputRef, err error) {
	defer naming(&err, "list old outputs")
	if err := s.flush(ctx); err != nil {
		return nil, err
	}
	before := time.Now().Add(-age)
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
