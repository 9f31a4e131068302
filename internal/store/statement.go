package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// statements are those of the writing connection.
type statements struct {
	all []*sql.Stmt

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
	for _, p := range []struct {
		into **sql.Stmt
		sql  string
	}{
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
	} {
		stmt, err := c.PrepareContext(ctx, p.sql)
		if err != nil {
			return st, fmt.Errorf("prepare %q: %w", p.sql, err)
		}
		*p.into = stmt
		st.all = append(st.all, stmt)
	}
	return st, nil
}

func (st *statements) close() error {
	var errs []error
	for _, s := range st.all {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
