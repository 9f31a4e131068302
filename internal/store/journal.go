package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// The journal is a file beside the database, to which entries are appended by
// whoever brings them, with one write(2); the writer moves them into the database
// later, many at a time. What a daemon that was killed has left in it is moved
// when the next one opens the store.
//
//	file   = header frame*
//	header = magic id crc(magic id)         the id is that of the database
//	frame  = length seq crc(length seq) crc(payload) payload
//
// Numbers are little-endian, length and the CRC-32Cs of 4 bytes, id and seq of 8.
// A frame is an entry, seq counts them over the life of the database, and the
// payload is records one after the other. The database has the number of the last
// frame that is in it, written in the transaction of the frame itself, so a frame
// is never applied twice.
const (
	journalMagic  = "toolDjn1"
	journalHeader = len(journalMagic) + 8 + 4
	frameHeader   = 4 + 8 + 4 + 4

	// maxFrame bounds a payload. Longer entries go into the database at once:
	// to write them twice would cost more than to wait once.
	maxFrame = 1 << 20
	// cutJournal is from which size on the file is emptied, which makes those
	// who append wait until what is in it has been applied.
	cutJournal = 4 << 20
	// maxJournal bounds the file, and with it the memory for what was not
	// applied. Only a database that cannot be written lets it grow so long.
	maxJournal = 16 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	// errNoRoom: the journal must be applied before there is room for more.
	errNoRoom = errors.New("the journal is full")
	// errDamaged is ErrCorrupt of the journal.
	errDamaged = fmt.Errorf("%w (its journal)", ErrCorrupt)
)

// journal is the open file.
type journal struct {
	path string
	file *os.File
	torn int // bytes of an unfinished frame that were cut off when it was opened

	mu      sync.Mutex // guards the fields below, the file, and the order of event ids
	size    int64      // of the file
	seq     uint64     // of the last frame
	applied uint64     // of the last frame that is in the database
	waiting []byte     // frames that were written and that the writer has not taken
	refuse  error      // why nothing can be appended any more; nil while it can
	failed  bool       // the last write
	uncut   bool       // half a frame stands behind size, which could not be cut off
}

// openJournal opens the journal of the database with this id, or makes one, and
// reads its frames. A last frame that a killed writer left unfinished is cut off.
func openJournal(path string, id uint64) (j *journal, frames []byte, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, nil, err
	}
	j = &journal{path: path, file: f}
	if frames, err = j.read(id); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return j, frames, nil
}

func (j *journal) read(id uint64) ([]byte, error) {
	fi, err := j.file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !fi.Mode().IsRegular():
		return nil, fmt.Errorf("%w: %s is not a regular file", errDamaged, j.path)
	case fi.Size() > maxJournal:
		return nil, fmt.Errorf("%w: %s has %d bytes; a journal never has more than %d", errDamaged, j.path, fi.Size(), maxJournal)
	}
	if err := j.file.Chmod(0o600); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(j.file, maxJournal))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", j.path, err)
	}
	if len(b) < journalHeader { // new, or its maker was killed: nothing was appended
		return nil, j.begin(id)
	}
	if err := checkHeader(b[:journalHeader], id); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errDamaged, j.path, err)
	}
	frames := b[journalHeader:]
	whole, err := checkFrames(frames)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: byte %d: %w", errDamaged, j.path, journalHeader+whole, err)
	}
	j.size = int64(journalHeader + whole)
	if j.torn = len(frames) - whole; j.torn > 0 {
		err = j.file.Truncate(j.size)
	}
	return frames[:whole], err
}

// begin writes the header of an empty journal.
func (j *journal) begin(id uint64) error {
	h := binary.LittleEndian.AppendUint64([]byte(journalMagic), id)
	h = binary.LittleEndian.AppendUint32(h, crc32.Checksum(h, castagnoli))
	if err := j.file.Truncate(0); err != nil {
		return err
	}
	if _, err := j.file.Write(h); err != nil {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	j.size = int64(len(h))
	return nil
}

func checkHeader(h []byte, id uint64) error {
	sum := len(journalMagic) + 8
	switch {
	case string(h[:len(journalMagic)]) != journalMagic:
		return errors.New("it does not begin like a journal of this version")
	case crc32.Checksum(h[:sum], castagnoli) != binary.LittleEndian.Uint32(h[sum:]):
		return errors.New("byte 0: the checksum of its header is wrong")
	case binary.LittleEndian.Uint64(h[len(journalMagic):]) != id:
		return errors.New("it belongs to another database")
	}
	return nil
}

// checkFrames returns how many of the bytes are whole frames. What follows them
// is the frame that was being written when the daemon was killed, or where a
// machine has lost power. Anything else that is wrong is an error.
func checkFrames(b []byte) (whole int, err error) {
	var last uint64
	for whole < len(b) {
		f, err := parseFrame(b[whole:])
		switch {
		case errors.Is(err, errTorn):
			return whole, nil
		case err != nil:
			return whole, err
		case last != 0 && f.seq != last+1:
			return whole, fmt.Errorf("record %d follows record %d", f.seq, last)
		}
		last = f.seq
		for p := f.payload; len(p) > 0; {
			if _, p, err = decodeRecord(p); err != nil {
				return whole, err
			}
		}
		whole += f.size
	}
	return whole, nil
}

// frame is one entry of the file.
type frame struct {
	seq     uint64
	payload []byte
	size    int // with its header
}

// errTorn: the bytes end before the frame does.
var errTorn = errors.New("unfinished")

// parseFrame reads the frame at the beginning of b.
func parseFrame(b []byte) (frame, error) {
	if len(b) < frameHeader || len(bytes.Trim(b, "\x00")) == 0 {
		return frame{}, errTorn // zeros are what some file systems leave after a loss of power
	}
	le := binary.LittleEndian
	n, f := le.Uint32(b), frame{seq: le.Uint64(b[4:])}
	switch {
	case crc32.Checksum(b[:12], castagnoli) != le.Uint32(b[12:]):
		return f, errors.New("the checksum of a record's header is wrong")
	case n > maxFrame || f.seq == 0:
		return f, fmt.Errorf("record %d has %d bytes; allowed are %d", f.seq, n, maxFrame)
	case uint64(n) > uint64(len(b)-frameHeader):
		return f, errTorn
	}
	f.size = frameHeader + int(n)
	f.payload = b[frameHeader:f.size]
	if crc32.Checksum(f.payload, castagnoli) == le.Uint32(b[16:]) {
		return f, nil
	}
	if f.size == len(b) {
		return f, errTorn // its last blocks did not get to the disk
	}
	return f, fmt.Errorf("the checksum of record %d is wrong", f.seq)
}

// appendLocked writes entries, of which each may be nil, as one frame of n bytes,
// after it has given their events ids from newID. first says that nothing else is
// waiting for the writer.
func (j *journal) appendLocked(entries []*Entry, n int, newID func(string) string) (first bool, err error) {
	if j.refuse != nil {
		return false, j.refuse
	}
	if j.uncut {
		if err := j.undoLocked(nil); err != nil {
			return false, err
		}
	}
	if j.size+int64(frameHeader+n) > maxJournal {
		return false, errNoRoom
	}
	start := len(j.waiting)
	b := append(j.waiting, make([]byte, frameHeader)...)
	for _, e := range entries {
		if e == nil {
			continue
		}
		for i := range e.events {
			v := &e.events[i]
			v.event.ID = newID("evt_")
			copy(e.buf[v.at:], v.event.ID)
		}
		b = append(b, e.buf...)
	}
	le, h, payload := binary.LittleEndian, b[start:start+frameHeader], b[start+frameHeader:]
	le.PutUint32(h, uint32(len(payload)))
	le.PutUint64(h[4:], j.seq+1)
	le.PutUint32(h[12:], crc32.Checksum(h[:12], castagnoli))
	le.PutUint32(h[16:], crc32.Checksum(payload, castagnoli))
	_, err = j.file.Write(b[start:])
	if j.failed = err != nil; j.failed {
		j.waiting = b[:start]
		return false, j.undoLocked(err)
	}
	j.waiting = b
	j.seq++
	j.size += int64(len(b) - start)
	return start == 0, nil
}

// undoLocked cuts off what a failed write has left; cause is its error, nil for that of an
// earlier one. Where that fails too, what is appended next would stand behind half a frame: it
// is tried again before.
func (j *journal) undoLocked(cause error) error {
	cut := j.file.Truncate(j.size)
	j.uncut = cut != nil
	switch {
	case cut != nil && cause != nil:
		return fmt.Errorf("%w: %w; nothing is appended until that is undone: %w", ErrFull, cause, cut)
	case cut != nil:
		return fmt.Errorf("%w: a failed write to the journal could not be undone: %w", ErrFull, cut)
	case cause != nil:
		return fmt.Errorf("%w: %w", ErrFull, cause)
	}
	return nil
}

// cutLocked empties the file. All that is in it must have been applied.
func (j *journal) cutLocked() error {
	if j.size == int64(journalHeader) && !j.uncut {
		return nil
	}
	if err := j.file.Truncate(int64(journalHeader)); err != nil {
		return fmt.Errorf("%w: empty the journal: %w", ErrFull, err)
	}
	j.size, j.uncut = int64(journalHeader), false
	return nil
}

// lastSeq is the number of the last of some frames, which were checked.
func lastSeq(frames []byte) (seq uint64) {
	for len(frames) > 0 {
		f, err := parseFrame(frames)
		if err != nil {
			return seq
		}
		seq, frames = f.seq, frames[f.size:]
	}
	return seq
}
