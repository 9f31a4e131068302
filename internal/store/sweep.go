package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// sweepRows bounds one step of a sweep, so that writers never wait long for it.
const sweepRows = 500

// Rows are found by their ids, which begin with the time: no index on times is
// needed, and only old rows are looked at.
const (
	sqlSweepEvents = "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE id < ? LIMIT ?)"
	// Calls of live sessions go too: history is bounded by age alone.
	sqlSweepCalls    = "DELETE FROM calls WHERE id IN (SELECT id FROM calls WHERE id < ? AND ended > 0 AND ended < ? LIMIT ?)" + sqlRemoved
	sqlRemoveCalls   = "DELETE FROM calls WHERE id IN (SELECT id FROM calls WHERE tenant = ? AND ended > 0 ORDER BY id LIMIT ?)" + sqlRemoved
	sqlRemoved       = " RETURNING session, id, out_file, tenant, " + recordBytes
	sqlSweepSessions = `DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE live = 0 AND ended < ?
		AND NOT EXISTS (SELECT 1 FROM calls WHERE calls.session = sessions.id) LIMIT ?)`
)

// Sweep removes events, finished calls and ended sessions that are older than
// age. It returns the number of rows that went, and tells gone the calls.
func (s *Store) Sweep(ctx context.Context, age time.Duration, gone func([]Removed)) (int64, error) {
	before := time.Now().Add(-age)
	ms := before.UnixMilli()
	var total int64
	for _, step := range []func() (int64, error){
		func() (int64, error) {
			return s.sweepStep(func(st *statements) (sql.Result, error) { return st.sweepEvents.Exec(idAt("evt_", before), sweepRows) })
		},
		func() (int64, error) {
			calls, err := s.removeCalls(func(st *statements) (*sql.Rows, error) {
				return st.sweepCalls.Query(idAt("call_", before), ms, sweepRows)
			})
			gone(calls)
			return int64(len(calls)), err
		},
		func() (int64, error) {
			return s.sweepStep(func(st *statements) (sql.Result, error) { return st.sweepSessions.Exec(ms, sweepRows) })
		},
	} {
		n, err := sweep(ctx, step)
		total += n
		if err != nil {
			return total, fmt.Errorf("sweep: %w", err)
		}
	}
	return total, nil
}

// sweepStep does one step and counts the rows that went.
func (s *Store) sweepStep(step func(*statements) (sql.Result, error)) (n int64, err error) {
	err = s.Write(func(tx *Tx) error {
		r, err := step(tx.st)
		if err != nil {
			return err
		}
		n, err = r.RowsAffected()
		return err
	})
	return n, err
}

// sweep repeats a step until nothing is left to do.
func sweep(ctx context.Context, step func() (int64, error)) (total int64, err error) {
	for {
		n, err := step()
		if err != nil {
			return total, err
		}
		if total += n; n < sweepRows {
			return total, nil
		}
		if err := ctx.Err(); err != nil {
			return total, err
		}
	}
}

// OutputRef names the output file of a call.
type OutputRef struct{ Session, Call string }

// OldOutputs lists calls that ended before age and have an output file.
func (s *Store) OldOutputs(ctx context.Context, age time.Duration, limit int) ([]OutputRef, error) {
	if err := s.flush(ctx); err != nil {
		return nil, fmt.Errorf("list old outputs: %w", err)
	}
	before := time.Now().Add(-age)
	all, err := list(ctx, s.rd.oldOutputs.QueryContext, func(scan scanner) (OutputRef, error) {
		var r OutputRef
		err := scan(&r.Session, &r.Call)
		return r, err
	}, idAt("call_", before), before.UnixMilli(), limit)
	if err != nil {
		return nil, fmt.Errorf("list old outputs: %w", err)
	}
	return all, nil
}

// DropOutput says that the output file of a call is gone.
func (tx *Tx) DropOutput(call string) error {
	_, err := tx.st.dropOutput.Exec(call)
	return err
}
