package store

import (
	"context"
	"database/sql"
	"log/slog"
	"sync/atomic"
	"time"
)

// Checkpoints move the log into the database. They cost an fsync or two and are
// therefore done beside the calls, never in their path.
const (
	checkpointEvery = 5 * time.Second
	checkpointJobs  = 2000
	checkpointPoll  = 250 * time.Millisecond
	// maxLogPages is when the log is cut by force, which makes writers wait: a
	// passive checkpoint never catches up with writers that do not pause.
	maxLogPages = 16384
)

// checkpoints is the goroutine that does them.
type checkpoints struct {
	log       *slog.Logger
	db        *sql.DB      // one connection
	committed atomic.Int64 // jobs and entries since the last one
	truncate  atomic.Bool  // ask the writer for a truncating one
}

// run does them until closing is closed.
func (c *checkpoints) run(closing <-chan struct{}) {
	tick := time.NewTicker(checkpointPoll)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-closing:
			return
		case <-tick.C:
		}
		jobs := c.committed.Load()
		if jobs < checkpointJobs && (jobs == 0 || time.Since(last) < checkpointEvery) {
			continue
		}
		last = time.Now()
		c.committed.Add(-jobs)
		c.checkpoint()
	}
}

func (c *checkpoints) checkpoint() {
	var busy, log, moved int
	err := c.db.QueryRowContext(context.Background(), "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &log, &moved)
	if err != nil {
		c.log.Error("checkpoint of the store", "error", err)
		return
	}
	if log > maxLogPages {
		c.truncate.Store(true)
	}
}
