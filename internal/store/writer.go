package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/toold/toold/client"
)

// maxBatch bounds one transaction, so that the first caller of a batch does not
// wait for thousands of others.
const maxBatch = 256

// Tx is the part of a transaction that one Write does. It is valid inside the
// function that got it.
type Tx struct {
	st     *statements
	ids    *IDs
	events []client.Event
}

// job is one Write that waits for its batch.
type job struct {
	fn   func(*Tx) error
	done chan error // buffered: the writer never waits for a caller
}

// Write runs fn in a transaction and returns when its effects are on disk. All
// that fn did is kept or, when it returns an error, nothing. fn runs on the
// writer's goroutine, maybe more than once (each time as if the first), so it
// must not block and must not touch the store other than by tx.
func (s *Store) Write(fn func(tx *Tx) error) error { return s.Begin(fn).Wait() }

// Pending is a write that was queued.
type Pending struct{ done chan error }

// Wait returns when the write is on disk or has failed. It is called at most once.
func (p *Pending) Wait() error { return <-p.done }

// Begin queues a write without waiting for it. Writes are done in the order in
// which they were begun, so whoever waits for a later one has waited for all.
func (s *Store) Begin(fn func(tx *Tx) error) *Pending {
	s.senders.RLock()
	defer s.senders.RUnlock()
	j := &job{fn: fn, done: make(chan error, 1)}
	if s.closed {
		j.done <- ErrClosed
	} else {
		s.queue <- j
	}
	return &Pending{done: j.done}
}

// writer is the goroutine that owns the writing connection.
func (s *Store) writer() {
	defer s.done.Done()
	batch := make([]*job, 0, maxBatch)
	for j := range s.queue {
		batch = append(batch[:0], j)
		batch = s.drain(batch)
		s.commit(batch)
		clear(batch)
		if s.truncate.CompareAndSwap(true, false) {
			s.truncateLog()
		}
	}
}

// drain adds what is queued already, without waiting.
func (s *Store) drain(batch []*job) []*job {
	for len(batch) < maxBatch {
		select {
		case j, ok := <-s.queue:
			if !ok {
				return batch
			}
			batch = append(batch, j)
		default:
			return batch
		}
	}
	return batch
}

// commit does a batch in one transaction. When one of several jobs refuses, the
// batch is undone and each is done alone, so that nobody fails for another.
func (s *Store) commit(batch []*job) {
	events, err := s.transact(batch)
	if err != nil && len(batch) > 1 {
		for _, j := range batch {
			s.commit([]*job{j})
		}
		return
	}
	if err == nil {
		s.committed.Add(int64(len(batch)))
		if fn := s.onEvents.Load(); fn != nil && len(events) > 0 {
			(*fn)(events)
		}
	}
	for _, j := range batch {
		j.done <- err
	}
}

func (s *Store) transact(batch []*job) ([]client.Event, error) {
	if _, err := s.st.begin.Exec(); err != nil {
		return nil, fmt.Errorf("begin: %w", classify(err))
	}
	tx := &Tx{st: s.st, ids: s.ids}
	for _, j := range batch {
		if err := j.fn(tx); err != nil {
			s.rollback()
			return nil, classify(err)
		}
	}
	if _, err := s.st.commit.Exec(); err != nil {
		s.rollback()
		return nil, fmt.Errorf("commit: %w", classify(err))
	}
	return tx.events, nil
}

func (s *Store) rollback() {
	// SQLite has undone the transaction by itself after a full disk or an I/O
	// error; there is nothing to roll back then.
	_, _ = s.st.rollback.Exec()
}

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
		{&st.startCall, "UPDATE calls SET status = 'running', started = ? WHERE id = ?"},
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

func (s *Store) checkpointer() {
	defer s.done.Done()
	tick := time.NewTicker(checkpointPoll)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-s.closing:
			return
		case <-tick.C:
		}
		jobs := s.committed.Load()
		if jobs < checkpointJobs && (jobs == 0 || time.Since(last) < checkpointEvery) {
			continue
		}
		last = time.Now()
		s.committed.Add(-jobs)
		s.checkpoint()
	}
}

func (s *Store) checkpoint() {
	var busy, log, moved int
	err := s.check.QueryRowContext(context.Background(), "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &log, &moved)
	if err != nil {
		s.log.Error("checkpoint of the store", "error", err)
		return
	}
	if log > maxLogPages {
		s.truncate.Store(true)
	}
}

func (s *Store) truncateLog() {
	if _, err := s.conn.ExecContext(context.Background(), "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		s.log.Error("truncate the store's log", "error", err)
	}
}
