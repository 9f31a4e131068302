package store

import (
	"cmp"
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

// applyDelay is how long an entry may wait in the journal. It is long enough for
// most calls to be over, and to make a batch of those that come one after another.
const (
	applyDelay = 200 * time.Millisecond
	// applyBytes is how many bytes may wait.
	applyBytes = 512 << 10
	// applyAgain is the pause after which a database that could not be written
	// is tried again.
	applyAgain = time.Second
)

// Append writes the changes of entries, of which each may be nil, and returns
// when they survive the death of the daemon: all of them, or none when there is
// an error. It is for changes that no other change can forbid; what the database
// must decide (a key that may be taken) goes through Write. Who reads sees them
// as soon as Append has returned.
func (s *Store) Append(entries ...*Entry) error { return s.counted(s.appendAll(entries)) }

func (s *Store) appendAll(entries []*Entry) error {
	n, err := measure(entries)
	if err != nil {
		return err
	}
	if n > maxFrame {
		return s.do(func(tx *Tx) error {
			for _, e := range entries {
				if err := tx.Put(e); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for {
		if err = s.append(entries, n); !errors.Is(err, errNoRoom) {
			return err
		}
		// Also where all is applied: the file may be as long as ever, because it
		// could not be cut.
		if err := <-s.enqueue(&job{done: make(chan error, 1)}); err != nil {
			return err
		}
	}
}

func (s *Store) append(entries []*Entry, n int) error {
	j := s.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	first, err := j.appendLocked(entries, n, s.ids.New)
	if err != nil {
		return err
	}
	if first {
		s.due.Reset(s.delay)
	} else if len(j.waiting) > applyBytes {
		s.due.Reset(0)
	}
	if fn := s.onEvents.Load(); fn != nil {
		(*fn)(eventsOf(entries))
	}
	return nil
}

// Tx is the part of a transaction that one Write does. It is valid inside the
// function that got it.
type Tx struct {
	st     *statements
	events []client.Event
}

// Put makes the changes of an entry, which may be nil. ErrExists when it inserts
// a call whose session has one with its key.
func (tx *Tx) Put(e *Entry) error {
	if e == nil {
		return nil
	}
	if e.err != nil {
		return e.err
	}
	a := applier{st: tx.st, noEvents: true}
	if err := a.records(e.buf); err != nil {
		return err
	}
	tx.events = append(tx.events, eventsOf([]*Entry{e})...)
	return a.finish()
}

// job is one Write, or one flush, that waits for the writer.
type job struct {
	fn   func(*Tx) error // nil for a flush
	done chan error      // buffered: the writer never waits for a caller
}

// Write runs fn in a transaction, after everything that was appended before, and
// returns when its effects are on disk. All that fn did is kept or, when it
// returns an error, nothing. fn runs on the writer's goroutine, maybe more than
// once (each time as if the first), so it must not block and must not touch the
// store other than by tx.
func (s *Store) Write(fn func(tx *Tx) error) error { return s.counted(s.do(fn)) }

func (s *Store) do(fn func(tx *Tx) error) error {
	return <-s.enqueue(&job{fn: fn, done: make(chan error, 1)})
}

// Errors is how often something could not be written: because the disk is full or
// fails, or because the database is damaged. What a caller or a constraint has
// refused is not counted.
func (s *Store) Errors() uint64 { return s.failures.Load() }

func (s *Store) counted(err error) error {
	if errors.Is(err, ErrFull) || errors.Is(err, ErrCorrupt) {
		s.failures.Add(1)
	}
	return err
}

// Ready says why nothing can be stored; nil where it can as far as is known. After a
// failed write it tries another.
func (s *Store) Ready() error {
	j := s.journal
	j.mu.Lock()
	refuse, failed, failing := j.refuse, j.failed, s.failing
	j.mu.Unlock()
	if refuse == nil && failed {
		refuse = s.Append(&Entry{})
	}
	return cmp.Or(refuse, failing)
}

// flush waits until what was appended is in the database: readers look there.
func (s *Store) flush(ctx context.Context) error {
	j := s.journal
	j.mu.Lock()
	all := j.applied == j.seq
	j.mu.Unlock()
	if all {
		return nil
	}
	select {
	case err := <-s.enqueue(&job{done: make(chan error, 1)}):
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Store) enqueue(j *job) <-chan error {
	s.senders.RLock()
	defer s.senders.RUnlock()
	if s.closed {
		j.done <- ErrClosed
	} else {
		s.queue <- j
	}
	return j.done
}

// writer is the goroutine that owns the writing connection.
func (s *Store) writer() {
	defer s.done.Done()
	batch := make([]*job, 0, maxBatch)
	for {
		select {
		case <-s.due.C:
			_ = s.apply() // it has said so, and tries again
		case j, ok := <-s.queue:
			if !ok {
				s.closeErr = s.empty()
				return
			}
			batch = s.drain(append(batch[:0], j))
			s.serve(batch)
			clear(batch)
		}
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

// serve does a batch of jobs, after what was appended before them.
func (s *Store) serve(batch []*job) {
	err := s.apply()
	writes := batch[:0:0]
	for _, j := range batch {
		if err != nil || j.fn == nil {
			j.done <- err
		} else {
			writes = append(writes, j)
		}
	}
	if len(writes) > 0 {
		s.commit(writes)
	}
}

// commit does a batch in one transaction. When one of several jobs refuses, the
// batch is undone and each is done alone, so that nobody fails for another.
func (s *Store) commit(batch []*job) {
	err := s.transact(batch)
	if err != nil && len(batch) > 1 {
		for _, j := range batch {
			s.commit([]*job{j})
		}
		return
	}
	if err == nil {
		s.committed.Add(int64(len(batch)))
	}
	for _, j := range batch {
		j.done <- err
	}
}

func (s *Store) transact(batch []*job) error {
	if _, err := s.st.begin.Exec(); err != nil {
		return fmt.Errorf("begin: %w", classify(err))
	}
	tx := &Tx{st: s.st}
	for _, j := range batch {
		if err := j.fn(tx); err != nil {
			s.rollback()
			return classify(err)
		}
	}
	if len(tx.events) == 0 {
		return s.end(nil)
	}
	return s.endWithEvents(tx.events)
}

// endWithEvents inserts the events of a transaction and commits it. From the ids
// of the events to their commit nothing is appended, and what was appended before
// goes first: whoever sees an event in the database sees all that are older.
func (s *Store) endWithEvents(events []client.Event) error {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	s.takeLocked()
	n, err := s.applyTaken()
	a := applier{st: s.st}
	for i := range events {
		e := &events[i]
		e.ID = s.ids.New("evt_")
		if err == nil {
			err = a.event(&eventRow{e.ID, e.Type, e.Tenant, e.Session, e.Call, e.Time.UnixMicro(), e.Data})
		}
	}
	if err = s.end(err); err != nil {
		return err
	}
	s.appliedLocked(n)
	if fn := s.onEvents.Load(); fn != nil {
		(*fn)(events)
	}
	return nil
}

// end commits the transaction, or undoes it when there was an error.
func (s *Store) end(err error) error {
	if err == nil {
		if _, err = s.st.commit.Exec(); err == nil {
			return nil
		}
		err = fmt.Errorf("commit: %w", err)
	}
	s.rollback()
	return classify(err)
}

func (s *Store) rollback() {
	// SQLite has undone the transaction by itself after a full disk or an I/O
	// error; there is nothing to roll back then.
	_, _ = s.st.rollback.Exec()
}

// apply moves what was appended into the database, and empties the journal when
// it has become long.
func (s *Store) apply() error {
	j := s.journal
	j.mu.Lock()
	s.takeLocked()
	j.mu.Unlock()
	n, err := s.applyAlone()
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		return s.failedLocked(err)
	}
	s.appliedLocked(n)
	if j.size < cutJournal {
		return nil
	}
	return s.cutLocked()
}

// applyAlone applies what was taken in a transaction of its own.
func (s *Store) applyAlone() (n int, err error) {
	if len(s.taken) == 0 {
		return 0, nil
	}
	if _, err := s.st.begin.Exec(); err != nil {
		return 0, fmt.Errorf("begin: %w", classify(err))
	}
	n, err = s.applyTaken()
	return n, s.end(err)
}

func (s *Store) applyTaken() (n int, err error) {
	if len(s.taken) == 0 {
		return 0, nil
	}
	return applyFrames(s.st, s.log, s.taken)
}

// takeLocked takes what waits in the journal.
func (s *Store) takeLocked() {
	j := s.journal
	if len(s.taken) == 0 {
		s.taken, j.waiting = j.waiting, s.taken[:0]
	} else {
		s.taken, j.waiting = append(s.taken, j.waiting...), j.waiting[:0]
	}
	s.takenSeq = j.seq
}

// keepBuffer bounds the memory that is kept for the next frames.
const keepBuffer = 1 << 20

// appliedLocked says that what was taken, n frames, is in the database.
func (s *Store) appliedLocked(n int) {
	s.journal.applied = s.takenSeq
	s.committed.Add(int64(n))
	if s.taken = s.taken[:0]; cap(s.taken) > keepBuffer {
		s.taken = nil
	}
	s.failing = nil
}

// failedLocked has the writer try again. What was appended is safe meanwhile.
func (s *Store) failedLocked(err error) error {
	s.due.Reset(applyAgain)
	err = s.counted(err)
	first := s.failing == nil
	if s.failing = err; first {
		s.log.Error("the journal cannot be moved into the database; it is tried again", "error", err)
	}
	return err
}

// cutLocked empties the journal, after what has come into it in the meantime was
// applied: those who append wait for that.
func (s *Store) cutLocked() error {
	s.takeLocked()
	n, err := s.applyAlone()
	if err != nil {
		return s.failedLocked(err)
	}
	s.appliedLocked(n)
	return s.journal.cutLocked()
}

// empty applies and empties the journal for good.
func (s *Store) empty() error {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	s.journal.refuse = ErrClosed
	return s.cutLocked()
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
	insertApproval, answerApproval, sweepApprovals     *sql.Stmt
	insertSaved, dropSaved, dropSavedOf, sweepSaved    *sql.Stmt
	replaceInput, requeueCall                          *sql.Stmt
	dropInput, shortenCall, recordSize, removeCalls    *sql.Stmt
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
		{&st.insertApproval, sqlInsertApproval},
		{&st.answerApproval, sqlAnswerApproval},
		{&st.sweepApprovals, sqlSweepApprovals},
		{&st.insertSaved, sqlInsertSaved},
		{&st.dropSaved, "DELETE FROM saved_approvals WHERE id = ?"},
		{&st.dropSavedOf, "DELETE FROM saved_approvals WHERE session = ? AND session <> ''"},
		{&st.sweepSaved, sqlSweepSaved},
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
