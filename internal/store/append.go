package store

import (
	"cmp"
	"context"
	"errors"

	"github.com/toold/toold/client"
)

// Append writes the changes of entries, of which each may be nil, and returns
// when they survive the death of the daemon: all of them, or none when there is
// an error. It is for changes that no other change can forbid; what the database
// must decide (a key that may be taken) goes through Write. Who reads sees them
// as soon as Append has returned.
func (s *Store) Append(entries ...*Entry) (err error) {
	defer func() { err = s.w.counted(err) }()
	n := 0
	for _, e := range entries {
		if e == nil {
			continue
		}
		if n += len(e.buf); e.err != nil {
			return e.err
		}
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
	j := s.w.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	first, err := j.appendLocked(entries, n, s.w.ids.New)
	if err != nil {
		return err
	}
	if first {
		s.w.due.Reset(s.w.delay)
	} else if len(j.waiting) > applyBytes {
		s.w.due.Reset(0)
	}
	if fn := s.w.onEvents.Load(); fn != nil {
		(*fn)(eventsOf(entries))
	}
	return nil
}

// Tx is the part of a transaction that one Write does. It is valid inside the
// function that got it.
type Tx struct {
	st     *prepared
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

	refused error // by fn, beside other jobs; the writer's own
}

// Write runs fn in a transaction, after everything that was appended before, and
// returns when its effects are on disk. All that fn did is kept or, when it
// returns an error, nothing. fn runs on the writer's goroutine, maybe more than
// once (each time as if the first), so it must not block and must not touch the
// store other than by tx.
func (s *Store) Write(fn func(tx *Tx) error) error { return s.w.counted(s.do(fn)) }

func (s *Store) do(fn func(tx *Tx) error) error {
	return <-s.enqueue(&job{fn: fn, done: make(chan error, 1)})
}

// Errors is how often something could not be written: because the disk is full or
// fails, or because the database is damaged. What a caller or a constraint has
// refused is not counted.
func (s *Store) Errors() uint64 { return s.w.failures.Load() }

// Ready says why nothing can be stored; nil where it can as far as is known. After a
// failed write it tries another.
func (s *Store) Ready() error {
	j := s.w.journal
	j.mu.Lock()
	refuse, failed, failing := j.refuse, j.failed, s.w.failing
	j.mu.Unlock()
	if refuse == nil && failed {
		refuse = s.Append(&Entry{})
	}
	return cmp.Or(refuse, failing)
}

// flush waits until what was appended is in the database: readers look there.
func (s *Store) flush(ctx context.Context) error {
	j := s.w.journal
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
		s.w.queue <- j
	}
	return j.done
}
