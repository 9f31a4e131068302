package audit

import (
	"errors"
	"fmt"
	"os"

	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/plain"
)

// errTampered: the file is not as this process has left it.
var errTampered = errors.New("the file was changed under the daemon")

// check looks whether the file is the one that stands at its path, with what was
// written to it and nothing else. It costs two system calls a write.
func (l *Log) check() error {
	own, err := l.f.Stat()
	if err != nil {
		return fmt.Errorf("%w: %w", errTampered, err)
	}
	at, err := os.Lstat(l.cfg.Path)
	switch size := own.Size(); {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: it was removed", errTampered)
	case err != nil:
		return err
	case !os.SameFile(own, at):
		return fmt.Errorf("%w: another one has its place", errTampered)
	case size < l.size:
		return fmt.Errorf("%w: it has %d of %d bytes", errTampered, size, l.size)
	case size > l.size && !l.dirty:
		return fmt.Errorf("%w: it has %s that toold has not written", errTampered, plain.Count(size-l.size, "byte", "bytes"))
	}
	return nil
}

// tampered goes on at the path after the file was changed, with a record that says
// so. Its number follows that of the last record, so that whoever checks the log
// sees what is missing. A strict log takes no decision any more: somebody has to
// look at it first.
func (l *Log) tampered(cause error) error {
	if l.found == nil {
		l.errors.Add(1)
		l.log.Error("the audit log is not as it was left", "strict", l.cfg.Strict, "record", l.head.seq, "hash", l.head.hash, "error", cause)
		l.found = &record.Tampered{What: cause.Error(), LastRecord: l.head.seq, LastHash: l.head.hash}
		if l.cfg.Strict {
			l.broken = cause
		}
	}
	_ = l.f.Close() // also to give back its lock, where it is still there
	f, err := openLocked(l.cfg.Path, 0)
	if err != nil {
		return fmt.Errorf("%w; begin another: %w", cause, err)
	}
	l.f, l.dirty, l.first = f, false, 0
	if l.size, err = l.cutTorn(f); err != nil {
		return err
	}
	if l.size > 0 {
		if l.first, err = firstOf(f); err != nil {
			l.first = l.head.seq // of what is no record there is no number
		}
	}
	return nil
}

// Ready says why calls are refused for the log's sake; nil when they are not.
func (l *Log) Ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.cfg.Strict || l.closed {
		return nil
	}
	if l.broken == nil && l.gap.Since.IsZero() {
		if err := l.check(); errors.Is(err, errTampered) {
			_ = l.flush() // says so, in the log too
		}
	}
	switch {
	case l.broken != nil:
		return l.broken
	case !l.gap.Since.IsZero():
		return errors.New(l.gap.Error)
	}
	return nil
}
