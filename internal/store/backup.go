package store

import (
	"context"
	"fmt"
	"os"
)

// Backup writes a copy of the database into a file, which is made and must not be there: all that was
// written when it begins, and nothing of the journal, which is empty then. It takes as much
// room as the database.
func (s *Store) Backup(ctx context.Context, file string) (err error) {
	defer naming(&err, "copy the database")
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // SQLite keeps the mode of an empty file
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := s.flush(ctx); err != nil {
		return err
	}
	db, err := s.connect(1, false) // one that only reads may write no copy either
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // the copy is whole, or there is an error
	if _, err := db.ExecContext(ctx, "VACUUM INTO ?", file); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}
