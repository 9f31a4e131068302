// Package store keeps sessions, calls, events and uid leases on disk, in one
// SQLite database. A write that returned survives the death of the daemon.
//
// There are two ways to write. What happens to calls is appended to a journal, a
// file beside the database, by whoever it happens to, with one write(2); a
// goroutine moves it into the database a moment later, many records at a time.
// What the database must decide (names and keys that may be taken, leases) is a
// transaction, which the same goroutine does after all that was appended before;
// it puts whatever is queued into one (group commit). Readers have connections
// of their own; those who read calls or events wait for the journal to be moved,
// so they see all that was acknowledged.
//
// The database is in WAL mode with synchronous=NORMAL, and neither a commit nor
// the journal waits for an fsync, so a killed daemon loses nothing, and a machine
// that loses power may lose the last moments but never its consistency.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/toold/toold/client"
)

// Errors that callers tell apart.
var (
	// ErrNotFound: there is no such row.
	ErrNotFound = errors.New("not found")
	// ErrExists: a row with this name or key exists already.
	ErrExists = errors.New("exists already")
	// ErrFull: the file system that holds the database has no room, or cannot
	// be written. Nothing of the write is kept.
	ErrFull = errors.New("the disk that holds toold's state is full or cannot be written")
	// ErrCorrupt: the file is not a database, or a damaged one.
	ErrCorrupt = errors.New("damaged, or not a database of toold")
	// ErrNewer: a later version of toold wrote the database.
	ErrNewer = errors.New("written by a newer version of toold")
	// ErrLocked: another daemon has the database open.
	ErrLocked = errors.New("in use by another toold")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store is closed")
)

// Config is what Open needs.
type Config struct {
	// Path of the database file. It is created with mode 0600 where it does
	// not exist; its directory must exist. The journal has the same path with
	// ".journal" behind it.
	Path string
	Log  *slog.Logger

	delay time.Duration // instead of applyDelay, for tests
}

// Store is the database. All methods may be called from any goroutine.
type Store struct {
	path  string
	log   *slog.Logger
	lock  *os.File
	write *sql.DB // one connection, of the writer alone
	read  *sql.DB
	rd    prepared // of read

	w           writer
	checkpoints checkpoints

	closing   chan struct{}
	closeOnce sync.Once
	closeErr  error
	senders   sync.RWMutex // held for reading while a job is being queued
	closed    bool         // guarded by senders
	done      sync.WaitGroup
}

// maxQueue bounds the writes that wait at once; callers block past it.
const maxQueue = 1024

// Open opens the database, creates it where there is none, and brings an older
// one up to date. A database of a newer version, a damaged one, and one that
// another daemon has open are refused.
func Open(cfg Config) (*Store, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.delay <= 0 {
		cfg.delay = applyDelay
	}
	s := &Store{path: cfg.Path, log: cfg.Log, closing: make(chan struct{})}
	s.checkpoints.log = cfg.Log
	s.w.log, s.w.checkpoints = cfg.Log, &s.checkpoints
	s.w.delay, s.w.due, s.w.queue = cfg.delay, time.NewTimer(cfg.delay), make(chan *job, maxQueue)
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", cfg.Path, hint(classify(err))), s.release())
	}
	s.done.Go(func() { s.closeErr = s.w.run() })
	s.done.Go(func() { s.checkpoints.run(s.closing) })
	return s, nil
}

func (s *Store) open() error {
	if err := s.takeLock(); err != nil {
		return err
	}
	// SQLite gives its -wal and -shm files the mode of the database.
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Chmod(0o600), f.Close()); err != nil {
		return err
	}
	ctx := context.Background()
	if s.write, err = s.connect(1, false); err != nil {
		return err
	}
	if s.w.conn, err = s.write.Conn(ctx); err != nil {
		return err
	}
	if err := migrate(ctx, s.w.conn); err != nil {
		return err
	}
	s.w.st.on = s.w.conn
	if s.checkpoints.db, err = s.connect(1, false); err != nil {
		return err
	}
	if s.read, err = s.connect(4, true); err != nil {
		return err
	}
	s.rd.on = s.read
	if err := s.recoverJournal(ctx); err != nil {
		return err
	}
	last, err := s.lastID(ctx)
	if err != nil {
		return err
	}
	s.w.ids = NewIDs(last)
	s.setClosed(0)
	if _, err := s.w.conn.ExecContext(ctx, sqlSetMeta, metaRelease, releaseNumber(client.Release)); err != nil {
		s.log.Warn("note which release has the database", "file", s.path, "error", err)
	}
	return nil
}

// setClosed says whether the next Open may trust that nothing was under way; only while no
// writer runs. A disk that is full is no reason not to start or to stop.
func (s *Store) setClosed(v int) {
	if _, err := s.w.conn.ExecContext(context.Background(), sqlSetMeta, metaClean, v); err != nil {
		s.log.Warn("note that the database is open or closed", "file", s.path, "error", err)
	}
}

// recoverJournal opens the journal and applies what an earlier daemon has left in
// it: records that the database has already are passed over.
func (s *Store) recoverJournal(ctx context.Context) error {
	var id, applied int64
	for key, into := range map[string]*int64{metaJournal: &id, metaApplied: &applied} {
		if err := s.w.conn.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = ?", key).Scan(into); err != nil {
			return fmt.Errorf("%w: meta has no %s: %w", ErrCorrupt, key, err)
		}
	}
	j, frames, err := openJournal(s.path+".journal", uint64(id))
	if err != nil {
		return err
	}
	s.w.journal = j
	if j.torn > 0 {
		s.log.Warn("the end of the journal was unfinished and is dropped: nobody was told of it", "file", j.path, "bytes", j.torn)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.applied, j.seq = uint64(applied), uint64(applied)
	first := j.applied + 1
	for len(frames) > 0 {
		f, err := parseFrame(frames)
		if err != nil {
			return err // it was checked
		}
		if f.seq > j.applied {
			first, j.seq = f.seq, lastSeq(frames)
			break
		}
		frames = frames[f.size:]
	}
	if first > j.applied+1 {
		s.log.Error("records are missing between the database and its journal: the machine lost power, or the database is an old copy",
			"database", s.path, "has", j.applied, "journal_begins", first)
	}
	j.waiting = frames
	return s.w.cutLocked()
}

// takeLock makes sure that two daemons never share a database: each would adopt
// and end the sessions of the other. The lock goes with the process.
func (s *Store) takeLock() error {
	f, err := os.OpenFile(filepath.Clean(s.path)+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	s.lock = f
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return ErrLocked
		}
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}

func (s *Store) connect(conns int, readOnly bool) (*sql.DB, error) {
	q := url.Values{"_pragma": {
		"busy_timeout(5000)",
		"journal_mode(WAL)",
		"synchronous(NORMAL)",
		"wal_autocheckpoint(0)",
		"journal_size_limit(67108864)",
		"trusted_schema(OFF)",
	}}
	if readOnly {
		q.Set("mode", "ro")
		q["_pragma"] = []string{"busy_timeout(5000)", "query_only(ON)", "trusted_schema(OFF)"}
	}
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: s.path}).EscapedPath(), RawQuery: q.Encode()}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// OnEvents sets who is told about events: fn is called when they are on disk, in
// the order of their ids, one call at a time, and must neither block nor write to
// the store.
func (s *Store) OnEvents(fn func([]client.Event)) { s.w.onEvents.Store(&fn) }

// NewID makes an id such as "ses_…" that sorts after all that were made before.
func (s *Store) NewID(kind string) string { return s.w.ids.New(kind) }

// Close writes what is queued, empties the journal and closes the database.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.senders.Lock()
		s.closed = true
		s.senders.Unlock()
		close(s.closing)
		close(s.w.queue)
		s.done.Wait()
		if s.closeErr == nil {
			s.setClosed(1)
		}
		s.closeErr = errors.Join(s.closeErr, s.release())
	})
	return s.closeErr
}

// release closes whatever open got to.
func (s *Store) release() error {
	errs := []error{s.rd.close(), s.w.st.close()}
	for _, db := range []*sql.DB{s.read, s.checkpoints.db} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if s.w.conn != nil {
		errs = append(errs, s.w.conn.Close())
	}
	if s.write != nil {
		errs = append(errs, s.write.Close())
	}
	if s.w.journal != nil {
		errs = append(errs, s.w.journal.file.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// classify turns SQLite's result codes into the errors of this package.
func classify(err error) error {
	var se *sqlite.Error
	if !errors.As(err, &se) {
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		return err
	}
	kind := err
	switch se.Code() & 0xff {
	case lib.SQLITE_FULL, lib.SQLITE_IOERR, lib.SQLITE_READONLY:
		kind = ErrFull
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
		kind = ErrCorrupt
	case lib.SQLITE_CONSTRAINT:
		kind = ErrExists
	}
	if errors.Is(err, kind) { // no other kind, or it says so already
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// hint adds what to do about a database that cannot be opened.
func hint(err error) error {
	switch {
	case errors.Is(err, ErrLocked):
		return fmt.Errorf("%w: stop it, or give this one another state directory", err)
	case errors.Is(err, ErrNewer):
		return fmt.Errorf("%w: run that version or a later one, restore a backup of this one (toolctl backup restore), or give this one another state directory", err)
	case errors.Is(err, errDamaged):
		return fmt.Errorf("%w: move the journal away; what happened to calls in the last moment is lost with it", err)
	case errors.Is(err, ErrCorrupt):
		return fmt.Errorf("%w: move the file away, and the journal with it, or restore a copy; what sessions have here that it does not know is put aside for worktrees.keep", err)
	}
	return err
}

// millis and fromMillis keep times as milliseconds since 1970, 0 for none.
func millis(t *time.Time) int64 {
	if t == nil || t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMillis(ms int64) *time.Time {
	if ms == 0 {
		return nil
	}
	t := time.UnixMilli(ms).UTC()
	return &t
}
