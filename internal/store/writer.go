package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/toold/toold/client"
)

// maxBatch bounds one transaction, so that the first caller of a batch does not
// wait for thousands of others.
const maxBatch = 256

const sqlBegin = "BEGIN IMMEDIATE"

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

// writer is the goroutine that owns the writing connection, and what others hand to
// it: the journal, into which they append, and the queue of their transactions.
type writer struct {
	log  *slog.Logger
	conn *sql.Conn
	st   prepared
	ids  *IDs

	journal *journal
	delay   time.Duration // applyDelay
	due     *time.Timer   // tells the writer to apply the journal
	// Frames that the writer has taken from the journal, and that are not in the
	// database yet, the number of the last one, and why that has failed.
	// Only for the writer, which holds journal.mu to change them.
	taken    []byte
	takenSeq uint64
	failing  error

	queue       chan *job
	checkpoints *checkpoints
	failures    atomic.Uint64
	onEvents    atomic.Pointer[func([]client.Event)]
}

// run serves until the queue is closed, and empties the journal then.
func (w *writer) run() error {
	batch := make([]*job, 0, maxBatch)
	for {
		select {
		case <-w.due.C:
			_ = w.apply() // it has said so, and tries again
		case j, ok := <-w.queue:
			if !ok {
				return w.empty()
			}
			batch = w.drain(append(batch[:0], j))
			w.serve(batch)
			clear(batch)
		}
		if w.checkpoints.truncate.CompareAndSwap(true, false) {
			w.truncateLog()
		}
	}
}

// drain adds what is queued already, without waiting.
func (w *writer) drain(batch []*job) []*job {
	for len(batch) < maxBatch {
		select {
		case j, ok := <-w.queue:
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
func (w *writer) serve(batch []*job) {
	err := w.apply()
	writes := batch[:0:0]
	for _, j := range batch {
		if err != nil || j.fn == nil {
			j.done <- err
		} else {
			writes = append(writes, j)
		}
	}
	if len(writes) > 0 {
		w.commit(writes)
	}
}

// commit does a batch in one transaction, of which a job that refuses takes back its own
// part. When the whole fails, each job is done alone, so that nobody fails for another.
func (w *writer) commit(batch []*job) {
	err := w.transact(batch)
	if err != nil && len(batch) > 1 {
		for _, j := range batch {
			w.commit([]*job{j})
		}
		return
	}
	if err == nil {
		w.checkpoints.committed.Add(int64(len(batch)))
	}
	for _, j := range batch {
		j.done <- cmp.Or(err, j.refused)
	}
}

func (w *writer) transact(batch []*job) error {
	if _, err := w.st.exec(sqlBegin); err != nil {
		return fmt.Errorf("begin: %w", classify(err))
	}
	tx := &Tx{st: &w.st}
	for _, j := range batch {
		err := w.part(tx, j, len(batch) > 1)
		if err != nil {
			w.rollback()
			return classify(err)
		}
	}
	if len(tx.events) == 0 {
		return w.end(nil)
	}
	return w.endWithEvents(tx.events)
}

// part does one job of a transaction. Beside others it takes back what it did when it
// refuses; an error is one of the whole.
func (w *writer) part(tx *Tx, j *job, beside bool) error {
	if !beside {
		j.refused = nil
		return j.fn(tx)
	}
	if _, err := w.st.exec("SAVEPOINT job"); err != nil {
		return err
	}
	events := len(tx.events)
	if j.refused = classify(j.fn(tx)); j.refused != nil {
		if _, err := w.st.exec("ROLLBACK TO job"); err != nil {
			return j.refused // SQLite has undone it all
		}
		tx.events = tx.events[:events]
	}
	_, err := w.st.exec("RELEASE job")
	return err
}

// endWithEvents inserts the events of a transaction and commits it. From the ids
// of the events to their commit nothing is appended, and what was appended before
// goes first: whoever sees an event in the database sees all that are older.
func (w *writer) endWithEvents(events []client.Event) error {
	w.journal.mu.Lock()
	defer w.journal.mu.Unlock()
	w.takeLocked()
	n, err := w.applyTaken()
	a := applier{st: &w.st}
	for i := range events {
		e := &events[i]
		e.ID = w.ids.New("evt_")
		if err == nil {
			err = a.event(&eventRow{e.ID, e.Type, e.Tenant, e.Session, e.Call, e.Time.UnixMicro(), e.Data})
		}
	}
	if err = w.end(err); err != nil {
		return err
	}
	w.appliedLocked(n)
	if fn := w.onEvents.Load(); fn != nil {
		(*fn)(events)
	}
	return nil
}

// end commits the transaction, or undoes it when there was an error.
func (w *writer) end(err error) error {
	if err == nil {
		if _, err = w.st.exec("COMMIT"); err == nil {
			return nil
		}
		err = fmt.Errorf("commit: %w", err)
	}
	w.rollback()
	return classify(err)
}

func (w *writer) rollback() {
	// SQLite has undone the transaction by itself after a full disk or an I/O
	// error; there is nothing to roll back then.
	_, _ = w.st.exec("ROLLBACK")
}

// apply moves what was appended into the database, and empties the journal when
// it has become long.
func (w *writer) apply() error {
	j := w.journal
	j.mu.Lock()
	w.takeLocked()
	j.mu.Unlock()
	n, err := w.applyAlone()
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		return w.failedLocked(err)
	}
	w.appliedLocked(n)
	if j.size < cutJournal {
		return nil
	}
	return w.cutLocked()
}

// applyAlone applies what was taken in a transaction of its own.
func (w *writer) applyAlone() (n int, err error) {
	if len(w.taken) == 0 {
		return 0, nil
	}
	if _, err := w.st.exec(sqlBegin); err != nil {
		return 0, fmt.Errorf("begin: %w", classify(err))
	}
	n, err = w.applyTaken()
	return n, w.end(err)
}

func (w *writer) applyTaken() (n int, err error) {
	if len(w.taken) == 0 {
		return 0, nil
	}
	return applyFrames(&w.st, w.log, w.taken)
}

// takeLocked takes what waits in the journal.
func (w *writer) takeLocked() {
	j := w.journal
	if len(w.taken) == 0 {
		w.taken, j.waiting = j.waiting, w.taken[:0]
	} else {
		w.taken, j.waiting = append(w.taken, j.waiting...), j.waiting[:0]
	}
	w.takenSeq = j.seq
}

// keepBuffer bounds the memory that is kept for the next frames.
const keepBuffer = 1 << 20

// appliedLocked says that what was taken, n frames, is in the database.
func (w *writer) appliedLocked(n int) {
	w.journal.applied = w.takenSeq
	w.checkpoints.committed.Add(int64(n))
	if w.taken = w.taken[:0]; cap(w.taken) > keepBuffer {
		w.taken = nil
	}
	w.failing = nil
}

// failedLocked has the writer try again. What was appended is safe meanwhile.
func (w *writer) failedLocked(err error) error {
	w.due.Reset(applyAgain)
	err = w.counted(err)
	first := w.failing == nil
	if w.failing = err; first {
		w.log.Error("the journal cannot be moved into the database; it is tried again", "error", err)
	}
	return err
}

// cutLocked empties the journal, after what has come into it in the meantime was
// applied: those who append wait for that.
func (w *writer) cutLocked() error {
	w.takeLocked()
	n, err := w.applyAlone()
	if err != nil {
		return w.failedLocked(err)
	}
	w.appliedLocked(n)
	return w.journal.cutLocked()
}

// empty applies and empties the journal for good.
func (w *writer) empty() error {
	w.journal.mu.Lock()
	defer w.journal.mu.Unlock()
	w.journal.refuse = ErrClosed
	return w.cutLocked()
}

func (w *writer) truncateLog() {
	if _, err := w.conn.ExecContext(context.Background(), "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		w.log.Error("truncate the store's log", "error", err)
	}
}

// counted counts the failures that Store.Errors tells.
func (w *writer) counted(err error) error {
	if errors.Is(err, ErrFull) || errors.Is(err, ErrCorrupt) {
		w.failures.Add(1)
	}
	return err
}
