package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Lease is a range of host uids that a session has, or had and that may still
// be in use by something that would not die.
type Lease struct {
	Base        uint32
	Session     string
	Quarantined bool
	Reason      string // why it is quarantined
}

// TakeLease gives a range to a session and remembers it as the last one given,
// so that the next daemon goes on after it. ErrExists when it is taken.
func (tx *Tx) TakeLease(base uint32, session string) error {
	if _, err := tx.st.takeLease.Exec(int64(base), session); err != nil {
		return err
	}
	_, err := tx.st.setMeta.Exec(metaLastLease, int64(base))
	return err
}

// DropLease gives a range back.
func (tx *Tx) DropLease(base uint32) error {
	_, err := tx.st.dropLease.Exec(int64(base))
	return err
}

// QuarantineLease keeps a range from being used again.
func (tx *Tx) QuarantineLease(base uint32, reason string) error {
	_, err := tx.st.quarantine.Exec(reason, int64(base))
	return err
}

// Leases lists all ranges in use and says which one was given last, 0 if none
// ever was.
func (s *Store) Leases(ctx context.Context) (all []Lease, last uint32, err error) {
	var v int64
	err = s.read.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = ?", metaLastLease).Scan(&v)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, 0, fmt.Errorf("read the last lease: %w", classify(err))
	}
	all, err = list(ctx, s.rd.leases.QueryContext, func(scan scanner) (Lease, error) {
		var l Lease
		err := scan(&l.Base, &l.Session, &l.Quarantined, &l.Reason)
		return l, err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list leases: %w", err)
	}
	return all, uint32(v), nil
}
