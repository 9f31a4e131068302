package record

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// Break is the first place at which a log is not as it was written.
type Break struct {
	File string `json:"file"`
	Line int    `json:"line"`
	// Kind is changed, missing, reordered, repeated or truncated.
	Kind string `json:"kind"`
	What string `json:"what"` // in words
}

// Error implements error: file:line, and what is wrong.
func (b *Break) Error() string { return fmt.Sprintf("%s:%d: %s: %s", b.File, b.Line, b.Kind, b.What) }

// The kinds of breaks.
const (
	BreakChanged   = "changed"
	BreakMissing   = "missing"
	BreakReordered = "reordered"
	BreakRepeated  = "repeated"
	BreakTruncated = "truncated"
)

// Summary is what a check has seen.
type Summary struct {
	Files    int    `json:"files"`
	Records  uint64 `json:"records"`
	First    uint64 `json:"first"`     // number of the first record; 0 = there is none
	Last     uint64 `json:"last"`      // number of the last good record
	Hash     string `json:"last_hash"` // its hash: keep it to ask for later
	Torn     uint64 `json:"torn"`      // records about torn lines
	Gaps     uint64 `json:"gaps"`      // records about times without a log
	Tampered uint64 `json:"tampered"`  // records about files that were found changed
	Break    *Break `json:"break,omitempty"`
}

// Options say what a check is to demand besides an unbroken chain.
type Options struct {
	// Whole: the log begins with record 1.
	Whole bool
	// Expect is the hash of a record that the log must have; "" = none.
	Expect string
}

// Verify checks the files of a log, oldest first. The error is one of reading;
// what is wrong with the log is in Summary.Break.
func Verify(files []string, o Options) (*Summary, error) {
	v := &verifier{opts: o, sum: Summary{Files: len(files)}}
	err := Read(files, v.line)
	if err != nil && !errors.Is(err, errStop) {
		return nil, err
	}
	v.finish()
	return &v.sum, nil
}

// Line is one line of a log's files.
type Line struct {
	File   string
	Number int    // from 1
	Text   []byte // without its end; valid until the next line is read
	// Whole: it has its end. Only the last line of a file may be without.
	Whole bool
	// TooLong: Text is its beginning alone.
	TooLong bool
}

// Read gives the lines of files in their order to fn until that fails.
func Read(files []string, fn func(Line) error) error {
	for _, name := range files {
		if err := readFile(name, fn); err != nil {
			return err
		}
	}
	return nil
}

func readFile(name string, fn func(Line) error) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return NewReader(name, f).Rest(fn)
}

// Reader reads the lines of one file. Its memory is bounded by MaxLine.
type Reader struct {
	name string
	r    *bufio.Reader
	buf  []byte
	n    int
	open bool // buf is the beginning of a line whose end was not there yet
}

// NewReader reads lines from r, which is called name in what it gives.
func NewReader(name string, r io.Reader) *Reader {
	return &Reader{name: name, r: bufio.NewReaderSize(r, 64<<10)}
}

// Next gives the next line. At the end it is io.EOF, also with the beginning of
// a line there: that one has been given then, without its end.
func (r *Reader) Next() (Line, error) {
	if !r.open {
		r.buf = r.buf[:0]
		r.n++
	}
	l := Line{File: r.name, Number: r.n}
	fresh := false
	for {
		part, err := r.r.ReadSlice('\n')
		fresh = fresh || len(part) > 0
		if room := MaxLine - len(r.buf); len(part) > room {
			r.buf, l.TooLong = append(r.buf, part[:room]...), true
		} else {
			r.buf = append(r.buf, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && !fresh:
			r.open = true
			return l, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return l, fmt.Errorf("read %s: %w", r.name, err)
		}
		l.Whole = err == nil
		r.open = !l.Whole
		l.Text = r.buf
		if n := len(l.Text); l.Whole && !l.TooLong && n > 0 {
			l.Text = l.Text[:n-1]
		}
		return l, nil
	}
}

// Rest gives the lines up to the end to fn until that fails.
func (r *Reader) Rest(fn func(Line) error) error {
	for {
		l, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = fn(l)
		}
		if err != nil {
			return err
		}
	}
}

// errStop ends the reading when all is known.
var errStop = errors.New("stop")

type verifier struct {
	opts   Options
	sum    Summary
	found  bool // the record that is asked for
	last   Line // the last line read, without its text
	wanted uint64
}

// line checks one line. After a gap it only looks whether what is missing comes
// later.
func (v *verifier) line(l Line) error {
	v.last = Line{File: l.File, Number: l.Number}
	if v.wanted > 0 {
		return v.search(l)
	}
	if !l.Whole {
		v.fail(l, BreakTruncated, "the line has no end: a write was cut off; the daemon notes that at its next start")
		return errStop
	}
	if l.TooLong {
		v.fail(l, BreakChanged, fmt.Sprintf("the line is longer than %d bytes", MaxLine))
		return errStop
	}
	r, err := Decode(l.Text)
	if err != nil {
		v.fail(l, BreakChanged, err.Error())
		return errStop
	}
	if err := v.chain(l, r); err != nil {
		return err
	}
	v.accept(r)
	return nil
}

// chain checks that r is what follows.
func (v *verifier) chain(l Line, r *Record) error {
	if v.sum.Records == 0 {
		return v.first(l, r)
	}
	switch want := v.sum.Last + 1; {
	case r.Seq > want:
		v.fail(l, BreakMissing, fmt.Sprintf("record %d follows record %d: %s", r.Seq, v.sum.Last, NotHere(want, r.Seq-1)))
		v.wanted = want
		return nil
	case r.Seq < want && r.Hash == v.sum.Hash:
		v.fail(l, BreakRepeated, fmt.Sprintf("record %d stands here twice", r.Seq))
	case r.Seq < want:
		v.fail(l, BreakReordered, fmt.Sprintf("record %d follows record %d", r.Seq, v.sum.Last))
	case r.Prev != v.sum.Hash:
		v.fail(l, BreakChanged, fmt.Sprintf("record %d was not written after the record %d that stands before it: one of them was replaced", r.Seq, v.sum.Last))
	default:
		return nil
	}
	return errStop
}

// first checks the record that the files begin with.
func (v *verifier) first(l Line, r *Record) error {
	switch {
	case r.Seq == 1 && r.Prev != Genesis:
		v.fail(l, BreakChanged, "record 1 names a record before it")
	case r.Seq > 1 && v.opts.Whole:
		v.fail(l, BreakMissing, fmt.Sprintf("the log begins with record %d: %s", r.Seq, NotHere(1, r.Seq-1)))
	default:
		return nil
	}
	return errStop
}

// NotHere says that records are missing.
func NotHere(from, to uint64) string {
	if from == to {
		return fmt.Sprintf("record %d is not here", from)
	}
	return fmt.Sprintf("records %d to %d are not here", from, to)
}

func (v *verifier) accept(r *Record) {
	if v.sum.Break != nil {
		return
	}
	if v.sum.Records == 0 {
		v.sum.First = r.Seq
	}
	v.sum.Records++
	v.sum.Last, v.sum.Hash = r.Seq, r.Hash
	v.found = v.found || r.Hash == v.opts.Expect
	switch r.Kind {
	case KindTorn:
		v.sum.Torn++
	case KindGap:
		v.sum.Gaps++
	case KindTampered:
		v.sum.Tampered++
	case KindDecision, KindFinished:
	}
}

// search looks for a missing record in the rest of the log: then it was moved.
func (v *verifier) search(l Line) error {
	if r, _ := Decode(l.Text); r != nil && r.Seq == v.wanted {
		v.sum.Break.Kind = BreakReordered
		v.sum.Break.What += fmt.Sprintf("; record %d stands at %s:%d", r.Seq, l.File, l.Number)
		return errStop
	}
	return nil
}

func (v *verifier) fail(l Line, kind, what string) {
	v.sum.Break = &Break{File: l.File, Line: l.Number, Kind: kind, What: what}
}

// finish says at the end whether the record that is asked for was there.
func (v *verifier) finish() {
	if v.sum.Break == nil && v.opts.Expect != "" && !v.found {
		v.fail(v.last, BreakTruncated, "no record has the hash "+v.opts.Expect+": the log was cut off or written anew")
	}
}
