package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/steady"
)

// End is how a log ends, as it is noted outside of the log. The note is made after the
// write, so the log may be ahead of it, but never behind, and never another one.
type End struct {
	First uint64 // number of the oldest record that the log has
	Seq   uint64 // number of the last one; 0 = nothing is noted
	Hash  string // of the last one
	Boot  int64  // the boot of the machine in which it was written
}

// note keeps how the log ends now.
func (l *Log) note() {
	if l.cfg.Note == nil {
		return
	}
	if l.oldest == 0 {
		l.oldest = l.first
	}
	err := l.cfg.Note(End{l.oldest, l.head.seq, l.head.hash, steady.Now().Boot})
	if err != nil && !l.unnoted {
		l.log.Warn("the end of the audit log is not noted: what is cut off of it from here on is not noticed at the next start", "record", l.head.seq, "error", err)
	}
	l.unnoted = err != nil
}

// compare looks whether the log, as it was found, ends with the record that is noted or
// goes on behind it. Otherwise the next record says what is missing, and stands to the
// noted one as if that were there, so that a check of the chain finds the place.
func (l *Log) compare() error {
	last := l.cfg.Last
	l.oldest = last.First
	if last.Seq == 0 {
		return nil
	}
	what, err := l.differs(last)
	if err != nil || what == "" {
		return err
	}
	l.notice(what)
	l.found = &record.Tampered{What: what, LastRecord: last.Seq, LastHash: last.Hash}
	l.head = head{max(l.head.seq, last.Seq), last.Hash}
	return nil
}

// differs says how the log is not the one that is noted; "" where it is.
func (l *Log) differs(last End) (string, error) {
	if l.head.seq < last.Seq {
		what := record.NotHere(l.head.seq+1, last.Seq)
		if last.Boot != steady.Now().Boot {
			what += "; the machine was started anew since, and one that loses its power may lose what it wrote last"
		}
		return what, nil
	}
	at, err := l.find(last.Seq)
	switch {
	case errors.Is(err, errMovedAway):
		return "", nil
	case err != nil && !errors.Is(err, errNotFound):
		return "", err
	case err != nil || at.hash != last.Hash:
		return fmt.Sprintf("record %d is not the one that was written: it was changed, or the log was written anew", last.Seq), nil
	}
	return "", nil
}

var (
	// errMovedAway: the record is older than what the log has.
	errMovedAway = errors.New("it was moved away")
	// errNotFound: the record should be there, and is not.
	errNotFound = errors.New("it is not there")
)

// find looks for a record that is at most the last one, from the end: it is the last
// one, or close to it.
func (l *Log) find(seq uint64) (head, error) {
	if l.head.seq == seq {
		return l.head, nil
	}
	files, err := record.Files(l.cfg.Path)
	if err != nil {
		return head{}, err
	}
	for i, name := range slices.Backward(files) {
		at, err := findIn(name, seq)
		if !errors.Is(err, errMovedAway) || i == 0 {
			return at, err
		}
	}
	return head{}, errMovedAway
}

// findIn is find in one file, which has it if it begins before it.
func findIn(name string, seq uint64) (head, error) {
	f, err := os.Open(name)
	if err != nil {
		return head{}, err
	}
	defer func() { _ = f.Close() }()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil || end == 0 {
		return head{}, errors.Join(err, errMovedAway)
	}
	first, err := firstOf(f)
	if err == nil && first > seq {
		return head{}, errMovedAway
	}
	if end, err = lineEndBefore(f, end); err != nil {
		return head{}, errNotFound
	}
	return search(f, end, seq)
}

// search is find among the records of f that end at end. It halves what they are in: a log may be
// far ahead of its note. Where that meets a line that is not a record, it looks from the end, since
// what is wrong with a line is for the check of the whole to say.
func search(f io.ReaderAt, end int64, seq uint64) (head, error) {
	for from := int64(0); from < end; {
		start, err := lineEndBefore(f, from+(end-from)/2)
		if err != nil {
			return head{}, errNotFound
		}
		line, err := record.NewReader("", io.NewSectionReader(f, start, end-start)).Next()
		if err != nil {
			break
		}
		r, err := record.Decode(line.Text)
		switch {
		case err != nil:
			return searchBack(f, end, seq)
		case r.Seq == seq:
			return head{r.Seq, r.Hash}, nil
		case r.Seq > seq:
			end = start
		default:
			from = start + int64(len(line.Text)) + 1
		}
	}
	return head{}, errNotFound
}

// searchBack is search, line by line from the end.
func searchBack(f io.ReaderAt, end int64, seq uint64) (head, error) {
	for end > 0 {
		at, err := lastOf(f, end)
		if err == nil && at.seq == seq {
			return at, nil
		}
		if err != nil || at.seq < seq {
			break
		}
		if end, err = lineEndBefore(f, end-1); err != nil {
			break
		}
	}
	return head{}, errNotFound
}

// notice keeps how the log is not as it was left, and says it.
func (l *Log) notice(what string) {
	l.errors.Add(1)
	l.noticed = what
	l.log.Error("the audit log is not as it was left", "what", what, "record", l.head.seq, "hash", l.head.hash)
}

// Noticed says how the log was found changed or cut when it was opened; "" where it is
// as it was left, as far as it is looked through. Calls go on.
func (l *Log) Noticed() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.noticed
}

// beginCheck looks through all that the log has now, while it goes on to be written to.
func (l *Log) beginCheck() error {
	files, err := record.Files(l.cfg.Path)
	if err != nil {
		return err
	}
	current, err := os.Open(l.cfg.Path) // it may get another name meanwhile
	if err != nil {
		return err
	}
	size := l.size
	l.checking.Go(func() {
		defer func() { _ = current.Close() }()
		var i record.Inspector
		var err error
		for _, name := range files {
			if name != l.cfg.Path {
				err = l.inspect(&i, name)
			} else {
				err = l.inspectFrom(&i, name, io.NewSectionReader(current, 0, size))
			}
			if err != nil {
				break
			}
		}
		l.checked(&i, err)
	})
	return nil
}

// errStopped: the daemon stops before all is looked through.
var errStopped = errors.New("stopped")

func (l *Log) inspect(i *record.Inspector, name string) error {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it is just moved away; if it was not the oldest, that is found
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if fi, err := f.Stat(); err == nil && fi.Size() == 0 {
		i.Empty(name)
	}
	return l.inspectFrom(i, name, f)
}

func (l *Log) inspectFrom(i *record.Inspector, name string, r io.Reader) error {
	return record.NewReader(name, r).Rest(func(line record.Line) error {
		if l.stop.Load() {
			return errStopped
		}
		i.Line(line)
		return nil
	})
}

// checked says what was found, in the log too where it does not say so yet.
func (l *Log) checked(i *record.Inspector, err error) {
	if errors.Is(err, errStopped) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	what, known := i.Found()
	if err != nil {
		l.log.Error("the audit log cannot be looked through", "error", err)
		what, known = "it cannot be looked through: "+err.Error(), true
	}
	switch before := l.cfg.Last.First; {
	case what != "" && known:
		l.log.Warn("the audit log is as it was found before, and not as it was left", "what", what)
		l.noticed = cmp.Or(l.noticed, what)
	case what != "":
		l.notice(what)
		l.say(what)
	case l.noticed == "" && before > 0 && i.First > before:
		l.log.Warn("the oldest records of the audit log are not here any more", "first", i.First, "before", before)
	}
	if i.First > 0 {
		l.oldest = i.First
	}
}

// say writes a record of how the log was found.
func (l *Log) say(what string) {
	if l.found != nil { // not written yet
		l.found.What += "; " + what
	} else {
		l.found = &record.Tampered{What: what, LastRecord: l.head.seq, LastHash: l.head.hash}
	}
	if err := l.flush(); err != nil {
		l.failed(err)
	}
}
