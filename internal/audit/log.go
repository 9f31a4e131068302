// Package audit keeps the audit log of a daemon: one record for each decision
// and for each call that ended, in files that only grow, chained by hashes. What
// a record is and exactly what is hashed stands in package record.
//
// What was written last is noted where the daemon keeps its other records (Config.Note).
// A log that was removed, cut, changed or replaced while no daemon ran is noticed by that
// at the next start, and a record says so.
//
// A record is one write(2) before its method returns, so a daemon that is killed
// loses none, and the record of a decision is there before its call runs. Nothing
// is synced to the disk for each record: a machine that loses its power loses
// what its kernel had not written yet, and the log then goes on where it ends.
//
// What cannot be written is not forgotten: the records of calls that ran wait in
// memory, within a bound, and when writing works again they come after a record
// that says how much is missing. In strict mode a decision that cannot be
// written is an error, with which the call must not run.
package audit

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/fault"
)

// Config is what a Log needs.
type Config struct {
	// Path is the file that is written to; its directory must exist. Older
	// files stand beside it (see record.OldName).
	Path string
	// Strict makes a decision that cannot be written an error.
	Strict bool
	// Inputs writes the inputs of calls, which may hold secrets.
	Inputs bool
	// Rotate is the size in bytes from which a file is put aside for a new one;
	// 0 = never.
	Rotate int64
	// Last is what was noted last of this log; zero where nothing was.
	Last End
	// Note keeps how the log ends, after each write. Its error is no failure of the log,
	// which is ahead of the note then. Nil keeps nothing.
	Note func(End) error
	Log  *slog.Logger
}

// retryEvery is how often what waits is tried again while nothing else is written.
const retryEvery = 5 * time.Second

// maxWaiting bounds, in bytes, the records that wait for a disk that takes them.
const maxWaiting = 1 << 20

// Log is the audit log. It implements session.Auditor and is safe for concurrent
// use.
type Log struct {
	cfg    Config
	log    *slog.Logger
	errors atomic.Uint64
	now    func() time.Time
	every  time.Duration // retryEvery
	// closing are the files that were put aside and are being synced.
	closing sync.WaitGroup
	// checking is the look at all that the log had when it was opened; stop ends it.
	checking sync.WaitGroup
	stop     atomic.Bool

	mu      sync.Mutex // guards the fields below; held while a record is written
	f       file
	size    int64  // of the file as far as it holds whole records
	turnAt  int64  // the size from which another file is begun; 0 = never
	first   uint64 // number of the file's first record; 0 = it is empty
	head    head
	oldest  uint64 // number of the log's first record, as far as it is known
	unnoted bool   // the last note failed
	noticed string // how the log is not as it was left; "" = nothing is known
	buf     []byte
	dirty   bool             // there may be a piece of a record behind size
	gap     record.Gap       // what was not written since it last worked
	torn    *record.Torn     // what the file ended with, until that is on record
	found   *record.Tampered // how the file was found, until that is on record
	broken  error            // why a strict log takes no decisions until a restart; nil while it does
	waiting [][]byte         // members of records that were not written, oldest first
	held    int              // bytes of waiting
	again   *time.Timer      // writes what waits when nobody calls; nil until it is needed
	closed  bool
}

// head is the last record of the chain.
type head struct {
	seq  uint64
	hash string
}

// file is what a Log needs of an *os.File.
type file interface {
	Write(p []byte) (int, error)
	Truncate(size int64) error
	Stat() (os.FileInfo, error)
	Sync() error
	Close() error
}

// Open opens the log at c.Path, or begins one, and goes on with the chain that
// is there. A file that ends in the middle of a line is cut to its last whole
// record; what is cut off becomes a record of its own. A last record that is not
// as it was written is an error: whatever it was, going on would hide it.
func Open(c Config) (*Log, error) {
	l := &Log{cfg: c, log: c.Log.With("path", c.Path), now: time.Now, every: retryEvery}
	l.mu.Lock() // the check of what is there begins before all is done
	defer l.mu.Unlock()
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("audit log %s: %w", c.Path, err)
	}
	if err := l.compare(); err != nil {
		return nil, errors.Join(fmt.Errorf("audit log %s: compare it with what is noted: %w", c.Path, err), l.f.Close())
	}
	l.turnAt = c.Rotate
	if err := l.beginCheck(); err != nil {
		return nil, errors.Join(fmt.Errorf("audit log %s: %w", c.Path, err), l.f.Close())
	}
	if err := l.flush(); err != nil { // what the file ended with; it waits like any record
		l.failed(err)
	}
	l.log.Info("audit log is open", "record", l.head.seq, "hash", l.head.hash)
	return l, nil
}

// Errors is how many times a record could not be written when it was due.
func (l *Log) Errors() uint64 { return l.errors.Load() }

// Close writes what still waits and closes the file.
func (l *Log) Close() error {
	l.stop.Store(true)
	l.checking.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	if l.again != nil {
		l.again.Stop() // retry does nothing any more if it has begun
	}
	err := l.flush()
	if err != nil {
		l.log.Error("audit log is closed without all of its records", "waiting", len(l.waiting), "refused", l.gap.Refused, "lost", l.gap.Lost, "error", err)
	}
	l.closing.Wait()
	l.log.Info("audit log is closed", "record", l.head.seq, "hash", l.head.hash)
	return errors.Join(err, l.f.Sync(), l.f.Close())
}

// write puts a record at the end of the log. must says that the call which it is
// about does not run without it; the record is dropped then if it cannot be
// written, and waits otherwise. Its error is for a strict log alone.
func (l *Log) write(b *record.Body, must bool) (err error) {
	defer func() {
		if err != nil && l.cfg.Strict {
			err = l.refusal(err)
		} else {
			err = nil
		}
	}()
	members, err := record.Encode(b)
	if err != nil {
		l.errors.Add(1)
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		l.errors.Add(1)
		return os.ErrClosed
	}
	if must && l.broken != nil {
		l.errors.Add(1)
		return l.broken
	}
	l.waiting, l.held = append(l.waiting, members), l.held+len(members)
	err = l.flush()
	if err == nil && must {
		return l.broken // the record is written, and found that out
	}
	if err == nil {
		return nil
	}
	l.failed(err)
	switch {
	case must:
		l.drop()
		l.gap.Refused++
	case l.held > maxWaiting:
		l.drop()
		l.gap.Lost++
	}
	return err
}

// drop forgets the newest of the waiting records.
func (l *Log) drop() {
	n := len(l.waiting) - 1
	l.held -= len(l.waiting[n])
	l.waiting[n] = nil
	l.waiting = l.waiting[:n]
}

// failed counts an error; the first of a row is logged, and begins the retries.
func (l *Log) failed(err error) {
	l.errors.Add(1)
	if !l.gap.Since.IsZero() {
		return
	}
	if l.again == nil {
		l.again = time.AfterFunc(l.every, l.retry)
	} else {
		l.again.Reset(l.every)
	}
	l.gap.Since, l.gap.Error = l.now().UTC(), err.Error()
	l.log.Error("the audit log cannot be written", "strict", l.cfg.Strict, "error", err)
}

// retry writes what waits, so that it does not depend on another call.
func (l *Log) retry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed && !l.gap.Since.IsZero() && l.flush() != nil {
		l.again.Reset(l.every)
	}
}

// flush writes all records that wait, and before them what happened to the log
// itself.
func (l *Log) flush() error {
	if err := l.check(); errors.Is(err, errTampered) {
		if err := l.tampered(err); err != nil {
			return err
		}
	}
	if l.dirty {
		if err := l.f.Truncate(l.size); err != nil {
			return fmt.Errorf("cut off an unfinished record: %w", err)
		}
		l.dirty = false
	}
	if l.turnAt > 0 && l.size >= l.turnAt && l.first > 0 {
		l.turn()
	}
	h, first := l.head, l.head.seq+1
	l.buf = l.buf[:0]
	add := func(members []byte) {
		h.seq++
		l.buf, h.hash = record.AppendLine(l.buf, h.seq, h.hash, members)
	}
	if err := l.addOwn(add); err != nil {
		return err
	}
	for _, members := range l.waiting {
		add(members)
	}
	if len(l.buf) == 0 {
		return nil
	}
	if n, err := l.f.Write(l.buf); err != nil {
		l.dirty = n > 0
		return err
	}
	l.size += int64(len(l.buf))
	l.written(h, first)
	return nil
}

// addOwn adds records about the log itself: how it ended the last time, and what
// is missing.
func (l *Log) addOwn(add func([]byte)) error {
	var own []record.Body
	if l.found != nil { // first: it is at the place of records that are missing
		own = append(own, record.Body{Kind: record.KindTampered, Tampered: l.found})
	}
	if l.torn != nil {
		own = append(own, record.Body{Kind: record.KindTorn, Torn: l.torn})
	}
	if !l.gap.Since.IsZero() {
		own = append(own, record.Body{Kind: record.KindGap, Gap: &l.gap})
	}
	for _, b := range own {
		b.Time = l.now().UTC()
		members, err := record.Encode(&b)
		if err != nil {
			return err
		}
		add(members)
	}
	return nil
}

// maxKeep is the largest buffer that is kept for the next records.
const maxKeep = 256 << 10

// written takes over that everything up to h is in the file.
func (l *Log) written(h head, first uint64) {
	if l.first == 0 {
		l.first = first
	}
	if !l.gap.Since.IsZero() {
		l.log.Warn("the audit log can be written again", "refused", l.gap.Refused, "lost", l.gap.Lost)
	}
	clear(l.waiting)
	l.head, l.torn, l.found, l.gap, l.waiting, l.held = h, nil, nil, record.Gap{}, l.waiting[:0], 0
	if cap(l.buf) > maxKeep {
		l.buf = nil
	}
	l.note()
}

// refusal is what a call ends with whose decision could not be written.
func (l *Log) refusal(err error) error {
	if errors.Is(err, errTampered) {
		return fault.Overloaded.Errorf("no call runs: the audit log %s is not as toold left it (%w)", l.cfg.Path, err).
			Next("an administrator looks who did that (toolctl audit verify), keeps what is left of it, and restarts toold; sessions go on")
	}
	return fault.Overloaded.Errorf("the audit log cannot be written; the call did not run").
		Next("free space on the host, or see the daemon's log for what is wrong with " + l.cfg.Path + ", then try again")
}
