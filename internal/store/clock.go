package store

import (
	"context"

	"github.com/toold/toold/internal/steady"
)

// markFields are the keys and places of what is kept of a mark.
func markFields(m *steady.Mark) map[string]*int64 {
	return map[string]*int64{"line": &m.Line, "wall": &m.Wall, "boot": &m.Boot, "up": &m.Up, "until": &m.Until, "last": &m.Last}
}

// Clock is the mark of the clock that sweeps go by, zero where there is none yet.
func (s *Store) Clock(ctx context.Context) (m steady.Mark, err error) {
	defer naming(&err, "read the clock of sweeps")
	fields := markFields(&m)
	type pair struct {
		key   string
		value int64
	}
	found, err := list(ctx, &s.rd, "SELECT substr(key, 7), value FROM meta WHERE key >= '"+metaClock+"' AND key < 'clock0'", func(scan scanner) (p pair, err error) {
		err = scan(&p.key, &p.value)
		return p, err
	})
	for _, p := range found {
		if at := fields[p.key]; at != nil {
			*at = p.value
		}
	}
	return m, err
}

// SetClock keeps a mark.
func (tx *Tx) SetClock(m steady.Mark) error {
	for key, value := range markFields(&m) {
		if _, err := tx.st.exec(sqlSetMeta, metaClock+key, *value); err != nil {
			return err
		}
	}
	return nil
}
