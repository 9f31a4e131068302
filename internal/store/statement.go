package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// statements are those of the writing connection.
type statements struct {
	prepared

	begin, commit, rollback                            *sql.Stmt
	putSession, dropSession                            *sql.Stmt
	insertCall, startCall, finishCall                  *sql.Stmt
	insertEvent                                        *sql.Stmt
	takeLease, dropLease, quarantine                   *sql.Stmt
	setMeta                                            *sql.Stmt
	sweepEvents, sweepCalls, sweepSessions, dropOutput *sql.Stmt
	replaceInput, requeueCall                          *sql.Stmt
	dropInput, shortenCall, recordSize, removeCalls    *sql.Stmt
	approvals                                          approvalStatements
}

// approvalStatements are those of the tables approvals and saved_approvals.
type approvalStatements struct {
	insert, answer, sweep                    *sql.Stmt
	save, dropSaved, dropSavedOf, sweepSaved *sql.Stmt
}

func prepareStatements(ctx context.Context, c *sql.Conn) (*statements, error) {
	st := &statements{}
	return st, st.prepare(ctx, c, []statement{
		{&st.begin, "BEGIN IMMEDIATE"},
		{&st.commit, "COMMIT"},
		{&st.rollback, "ROLLBACK"},
		{&st.putSession, sqlPutSession},
		{&st.dropSession, "DELETE FROM sessions WHERE id = ?"},
		{&st.insertCall, sqlInsertCall},
		{&st.startCall, "UPDATE calls SET status = 'running', started = ? WHERE id = ? AND status = 'pending'"},
		{&st.finishCall, sqlFinishCall},
		{&st.insertEvent, "INSERT INTO events (id, time, type, tenant, session, call, data) VALUES (?, ?, ?, ?, ?, ?, ?)"},
		{&st.takeLease, "INSERT INTO leases (base, session, quarantined, reason) VALUES (?, ?, 0, '')"},
		{&st.dropLease, "DELETE FROM leases WHERE base = ?"},
		{&st.quarantine, "UPDATE leases SET quarantined = 1, reason = ? WHERE base = ?"},
		{&st.setMeta, "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"},
		{&st.sweepEvents, sqlSweepEvents},
		{&st.sweepCalls, sqlSweepCalls},
		{&st.sweepSessions, sqlSweepSessions},
		{&st.dropOutput, "UPDATE calls SET out_file = 0 WHERE id = ?"},
		{&st.approvals.insert, sqlInsertApproval},
		{&st.approvals.answer, sqlAnswerApproval},
		{&st.approvals.sweep, sqlSweepApprovals},
		{&st.approvals.save, sqlInsertSaved},
		{&st.approvals.dropSaved, "DELETE FROM saved_approvals WHERE id = ?"},
		{&st.approvals.dropSavedOf, "DELETE FROM saved_approvals WHERE session = ? AND session <> ''"},
		{&st.approvals.sweepSaved, sqlSweepSaved},
		{&st.requeueCall, "UPDATE calls SET status = 'pending', started = 0 WHERE id = ? AND ended = 0"},
		{&st.dropInput, "UPDATE calls SET input = ? WHERE id = ?"},
		{&st.shortenCall, "UPDATE calls SET input = ?, result = ?, out_inline = ? WHERE id = ? AND ended > 0"},
		{&st.recordSize, "SELECT " + recordBytes + " FROM calls WHERE id = ?"},
		{&st.removeCalls, sqlRemoveCalls},
		{&st.replaceInput, "UPDATE calls SET input = ? WHERE id = ? AND ended = 0"},
	})
}

// statement is one that is to be prepared.
type statement struct {
	into **sql.Stmt
	text string
}

// prepared are statements that are closed together.
type prepared []*sql.Stmt

func (p *prepared) prepare(ctx context.Context, on preparer, all []statement) error {
	for _, s := range all {
		stmt, err := on.PrepareContext(ctx, s.text)
		if err != nil {
			return fmt.Errorf("prepare %q: %w", s.text, err)
		}
		*s.into = stmt
		*p = append(*p, stmt)
	}
	return nil
}

// preparer is a connection, or any of several.
type preparer interface {
	PrepareContext(ctx context.Context, text string) (*sql.Stmt, error)
}

func (p prepared) close() error {
	var errs []error
	for _, s := range p {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// query is the QueryContext of a prepared statement.
type query = func(ctx context.Context, args ...any) (*sql.Rows, error)

// scanner is the Scan of a row.
type scanner = func(into ...any) error

// query is one that was not prepared.
func (s *Store) query(text string) query {
	return func(ctx context.Context, args ...any) (*sql.Rows, error) {
		return s.read.QueryContext(ctx, text, args...)
	}
}

// list reads all rows of a query.
func list[T any](ctx context.Context, q query, scan func(scanner) (T, error), args ...any) ([]T, error) {
	rows, err := q(ctx, args...)
	if err != nil {
		return nil, classify(err)
	}
	defer func() { _ = rows.Close() }()
	var all []T
	for rows.Next() {
		v, err := scan(rows.Scan)
		if err != nil {
			return nil, classify(err)
		}
		all = append(all, v)
	}
	return all, classify(rows.Err())
}
