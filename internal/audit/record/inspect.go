package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Inspector looks through a log whose last record is known, and counts the places at
// which it is not as it was written. Unlike Verify it goes on behind the first one, and
// it reads hashes and numbers alone, which is as fast as the hashing. The zero value is
// ready.
type Inspector struct {
	// First and Last are the numbers of the first and the last record that were read; 0 = there is none.
	First, Last uint64
	places      int
	place       string // the first one
	hash        string // of record Last
	loose       bool   // a line before this one could not be read
	said        []string
}

// maxSaid bounds the records about changes whose words are kept.
const maxSaid = 1024

// Line looks at the next line.
func (i *Inspector) Line(l Line) {
	t, err := thread(l)
	if t.seq == 0 {
		i.broken(err.Error())
		i.loose = true
		return
	}
	tampered := i.tampered(&t, l.Text)
	switch want := i.Last + 1; {
	case err != nil:
		i.broken(fmt.Sprintf("record %d: %v", t.seq, err))
	case i.First == 0 && t.seq == 1 && t.prev != Genesis:
		i.broken("record 1 names a record before it")
	case i.First == 0:
	case t.seq < want:
		i.broken(fmt.Sprintf("record %d follows record %d", t.seq, i.Last))
	case t.seq > want && !i.loose && !strings.HasPrefix(tampered, NotHere(want, t.seq-1)):
		i.broken(NotHere(want, t.seq-1))
	case t.seq == want && !i.loose && t.prev != i.hash:
		i.broken(fmt.Sprintf("record %d was not written after the record %d that stands before it", t.seq, i.Last))
	}
	if i.First == 0 {
		i.First = t.seq
	}
	i.Last, i.hash, i.loose = t.seq, t.hash, false
}

// Empty is told a file that begins with a record by its name, and has none.
func (i *Inspector) Empty(name string) { i.broken(filepath.Base(name) + " is empty") }

// tampered is what a record says of a change that was found; "" for all others.
func (i *Inspector) tampered(t *threaded, line []byte) string {
	if !bytes.Contains(line, []byte(`"kind":"`+KindTampered+`"`)) {
		return ""
	}
	r, err := Decode(line)
	if err != nil || r.Tampered == nil {
		return ""
	}
	if len(i.said) < maxSaid {
		i.said = append(i.said, r.Tampered.What)
	}
	return r.Tampered.What
}

func (i *Inspector) broken(what string) {
	if i.places++; i.places == 1 {
		i.place = what
		if i.Last > 0 {
			i.place = fmt.Sprintf("behind record %d: %s", i.Last, what)
		}
	}
}

// Found says how the log is not as it was written; "" where it is. known: a record in it
// says the same already.
func (i *Inspector) Found() (what string, known bool) {
	switch i.places {
	case 0:
		return "", false
	case 1:
		what = "one place is not as it was written, " + i.place
	default:
		what = fmt.Sprintf("%d places are not as they were written, the first %s", i.places, i.place)
	}
	for _, s := range i.said {
		known = known || strings.Contains(s, what)
	}
	return what, known
}

// threaded is what the chain is made of.
type threaded struct {
	seq        uint64 // 0: the line does not have the form
	prev, hash string
}

// thread reads it from a line. With an error and a number the line has the form, and
// another text than was written.
func thread(l Line) (t threaded, err error) {
	line := l.Text
	switch {
	case l.TooLong:
		return t, ErrTooLong
	case !l.Whole:
		return t, errors.New("a line has no end")
	}
	rest, begins := bytes.CutPrefix(line, []byte(beforeSeq))
	digits, rest, cut := bytes.Cut(rest, []byte(beforePrev))
	at := len(line) - tailLen
	if !begins || !cut || len(rest) < hashLen || at < 0 {
		return t, errNoRecord
	}
	t = threaded{prev: string(rest[:hashLen]), hash: string(line[at+len(beforeHash) : at+len(beforeHash)+hashLen])}
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil || !bytes.HasPrefix(line, []byte(head(seq, t.prev))) || string(line[at:]) != tail(t.hash) {
		return t, errNoRecord
	}
	t.seq = seq
	if sum := sha256.Sum256(line[:at]); hex.EncodeToString(sum[:]) != t.hash {
		return t, ErrChanged
	}
	return t, nil
}

var errNoRecord = errors.New("a line is not a record")
