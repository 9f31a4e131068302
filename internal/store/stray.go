package store

import (
	"context"
	"strings"
	"time"
)

// Stray is a session that is not on record and of which something is there all the same:
// the database is damaged, or an older copy. When is the time at which that was noticed.
type Stray struct {
	Session string
	When    time.Time
}

// Strays lists those that were noted.
func (s *Store) Strays(ctx context.Context) (_ []Stray, err error) {
	defer naming(&err, "list sessions that are not on record")
	return list(ctx, &s.rd, "SELECT key, value FROM meta WHERE key >= '"+metaStray+"' AND key < 'stray0'", func(scan scanner) (Stray, error) {
		var key string
		var ms int64
		err := scan(&key, &ms)
		return Stray{strings.TrimPrefix(key, metaStray), time.UnixMilli(ms)}, err
	})
}

// NoteStray notes one.
func (tx *Tx) NoteStray(x Stray) error {
	_, err := tx.st.exec(sqlSetMeta, metaStray+x.Session, x.When.UnixMilli())
	return err
}

// DropStray takes a note back, where there is one.
func (tx *Tx) DropStray(session string) error {
	_, err := tx.st.exec("DELETE FROM meta WHERE key = ?", metaStray+session)
	return err
}
