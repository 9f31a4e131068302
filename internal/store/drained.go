package store

import (
	"context"
	"errors"
)

// metaDrained is a key of the table meta: 1 while no new session may begin.
const metaDrained = "drained"

// Drained says whether the daemon is drained: see Tx.SetDrained.
func (s *Store) Drained(ctx context.Context) (is bool, err error) {
	defer naming(&err, "read whether new sessions begin")
	is, err = one(ctx, &s.rd, "SELECT value FROM meta WHERE key = ?", func(scan scanner) (bool, error) {
		var v int64
		err := scan(&v)
		return v != 0, err
	}, metaDrained)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return is, err
}

// SetDrained keeps whether new sessions begin, for the next daemon.
func (tx *Tx) SetDrained(drained bool) error {
	v := 0
	if drained {
		v = 1
	}
	_, err := tx.st.exec(sqlSetMeta, metaDrained, v)
	return err
}
