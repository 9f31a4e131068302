package store

import (
	"context"
	"errors"
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
	if _, err := tx.st.exec("INSERT INTO leases (base, session, quarantined, reason) VALUES (?, ?, 0, '')", int64(base), session); err != nil {
		return err
	}
	_, err := tx.st.exec(sqlSetMeta, metaLastLease, int64(base))
	return err
}

// DropLease gives a range back.
func (tx *Tx) DropLease(base uint32) error {
	_, err := tx.st.exec("DELETE FROM leases WHERE base = ?", int64(base))
	return err
}

// QuarantineLease keeps a range from being used again.
func (tx *Tx) QuarantineLease(base uint32, reason string) error {
	_, err := tx.st.exec("UPDATE leases SET quarantined = 1, reason = ? WHERE base = ?", reason, int64(base))
	return err
}

// Leases lists all ranges in use and says which one was given last, 0 if none
// ever was.
func (s *Store) Leases(ctx context.Context) (all []Lease, last uint32, err error) {
	defer naming(&err, "list leases")
	last, err = one(ctx, &s.rd, "SELECT value FROM meta WHERE key = ?", column[uint32], metaLastLease)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, 0, err
	}
	all, err = list(ctx, &s.rd, "SELECT base, session, quarantined, reason FROM leases ORDER BY base", func(scan scanner) (Lease, error) {
		var l Lease
		err := scan(&l.Base, &l.Session, &l.Quarantined, &l.Reason)
		return l, err
	})
	return all, last, err
}
