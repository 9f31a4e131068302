package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/audit/record"
)

// open opens the file and finds the end of the chain.
func (l *Log) open() error {
	f, err := openLocked(l.cfg.Path, 0)
	if err != nil {
		return err
	}
	if err := l.resume(f); err != nil {
		return errors.Join(err, f.Close())
	}
	l.f = f
	return nil
}

// openLocked opens a file of the log for this process alone. A link is refused:
// it would have root write wherever somebody points it.
func openLocked(path string, flags int) (_ *os.File, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK|flags, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file; name one with audit.path")
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.New("another daemon writes to it; give each its own audit.path")
		}
		return nil, fmt.Errorf("lock it: %w", err)
	}
	if fi.Mode().Perm() != 0o600 {
		if err := f.Chmod(0o600); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// resume finds the last record. With nothing in the file that is the last one of
// the file before it, and without such a file the chain begins.
func (l *Log) resume(f *os.File) error {
	end, err := l.cutTorn(f)
	if err != nil {
		return err
	}
	if end > 0 {
		if l.first, err = firstOf(f); err != nil {
			return err
		}
		l.size = end
		l.head, err = lastOf(f, end)
		return err
	}
	l.head = head{hash: record.Genesis}
	files, err := record.Files(l.cfg.Path)
	if err != nil {
		return err
	}
	for _, name := range slices.Backward(files) {
		if name == l.cfg.Path {
			continue
		}
		if l.head, err = lastOfFile(name); err != nil {
			return fmt.Errorf("%s, which came before it: %w", name, err)
		}
		return nil
	}
	return nil
}

// cutTorn cuts off what stands behind the last line's end, and gives the length
// of what is left.
func (l *Log) cutTorn(f *os.File) (int64, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	end, err := lineEndBefore(f, size)
	if err != nil || end == size {
		return end, err
	}
	torn, err := tornAt(f, end, size)
	if err != nil {
		return 0, err
	}
	// The log says it too, for the case that this process dies before the
	// record is written.
	l.log.Warn("the audit log ended in the middle of a record", "bytes", torn.Bytes, "sha256", torn.SHA256, "start", string(torn.Start))
	l.torn = torn
	return end, f.Truncate(end)
}

// lineEndBefore is the offset behind the last line end before at; 0 = there is
// none.
func lineEndBefore(f io.ReaderAt, at int64) (int64, error) {
	buf := make([]byte, 64<<10)
	for at > 0 {
		n := min(at, int64(len(buf)))
		if _, err := f.ReadAt(buf[:n], at-n); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return at - n + int64(i) + 1, nil
		}
		at -= n
	}
	return 0, nil
}

func tornAt(f io.ReaderAt, from, to int64) (*record.Torn, error) {
	t := &record.Torn{Bytes: to - from, Start: make([]byte, min(to-from, record.MaxTorn))}
	if _, err := f.ReadAt(t.Start, from); err != nil {
		return nil, err
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, from, to-from)); err != nil {
		return nil, err
	}
	t.SHA256 = hex.EncodeToString(h.Sum(nil))
	return t, nil
}

// lastOf reads the record that ends at end.
func lastOf(f io.ReaderAt, end int64) (head, error) {
	from, err := lineEndBefore(f, end-1)
	if err != nil {
		return head{}, err
	}
	if end-from > record.MaxLine {
		return head{}, damaged(record.ErrTooLong)
	}
	line := make([]byte, end-1-from)
	if _, err := f.ReadAt(line, from); err != nil {
		return head{}, err
	}
	r, err := record.Decode(line)
	if err != nil {
		return head{}, damaged(err)
	}
	return head{r.Seq, r.Hash}, nil
}

func damaged(err error) error {
	return fmt.Errorf("its last record is damaged: %w; look at it with \"toolctl audit verify\" and put the file aside, and those with a number, to begin a new log", err)
}

// lastOfFile reads the last record of a file that is not written to any more.
func lastOfFile(path string) (head, error) {
	f, err := os.Open(path)
	if err != nil {
		return head{}, err
	}
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	if err != nil {
		return head{}, err
	}
	end, err := lineEndBefore(f, fi.Size())
	if err != nil {
		return head{}, err
	}
	if end != fi.Size() || end == 0 {
		return head{}, damaged(errors.New("it does not end with a record"))
	}
	return lastOf(f, end)
}

// firstOf reads the number of the first record of a file that has one.
func firstOf(f io.ReaderAt) (uint64, error) {
	line, err := record.NewReader("", io.NewSectionReader(f, 0, record.MaxLine+1)).Next()
	if err != nil {
		return 0, err
	}
	r, err := record.Decode(line.Text)
	if err != nil && !errors.Is(err, record.ErrChanged) {
		return 0, fmt.Errorf("its first record is damaged: %w; look at it with \"toolctl audit verify\"", err)
	}
	return r.Seq, nil
}

// turn puts the file aside and begins a new one. A file that cannot be put aside
// goes on to be used: a log that is too long is better than none.
func (l *Log) turn() {
	old := record.OldName(l.cfg.Path, l.first)
	f, err := l.replace(old)
	if err != nil {
		l.errors.Add(1)
		l.turnAt = l.size + l.cfg.Rotate
		l.log.Error("the audit log goes on in its old file", "next_try_at_bytes", l.turnAt, "error", err)
		return
	}
	before := l.f
	l.closing.Go(func() { // a sync may take long, and calls wait for this lock
		if err := errors.Join(before.Sync(), before.Close()); err != nil {
			l.log.Error("the audit log's old file was not closed well", "old", old, "error", err)
		}
	})
	l.log.Info("audit log goes on in a new file", "old", old, "record", l.head.seq, "hash", l.head.hash)
	l.f, l.size, l.first, l.turnAt = f, 0, 0, l.cfg.Rotate
}

// replace renames the file to old and makes a new one.
func (l *Log) replace(old string) (*os.File, error) {
	if _, err := os.Lstat(old); err == nil {
		return nil, fmt.Errorf("put it aside: %s exists", old)
	}
	if err := os.Rename(l.cfg.Path, old); err != nil {
		return nil, fmt.Errorf("put it aside: %w", err)
	}
	f, err := openLocked(l.cfg.Path, os.O_EXCL)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("begin a new one: %w", err), os.Rename(old, l.cfg.Path))
	}
	return f, nil
}
