package transfer

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
)

// Kind is what an entry is.
type Kind = beneath.Kind

// The kinds that are copied.
const (
	File = beneath.File
	Dir  = beneath.Dir
	Link = beneath.Link
)

// Entry is one file, directory or link as it went in.
type Entry struct {
	Path string `json:"-"` // below the directory
	Kind Kind   `json:"kind"`
	Perm uint32 `json:"perm"`
	// Link is where a link leads; SHA256 is of a file's content.
	Link   string            `json:"-"`
	SHA256 [sha256.Size]byte `json:"sha256"`
	// Size, Ino, MTime and CTime (ns) tell whether it was changed on this side.
	Size  int64  `json:"size"`
	Ino   uint64 `json:"ino"`
	MTime int64  `json:"mtime"`
	CTime int64  `json:"ctime"`
}

// Manifest is what went in.
type Manifest struct {
	entries map[string]*Entry
	// Skipped are entries that could not be read or copied.
	Skipped int
}

// Len is how many entries there are.
func (m *Manifest) Len() int { return len(m.entries) }

// line is an entry as it is kept. Names are any bytes, and strings of JSON are not.
type line struct {
	Path []byte `json:"path"`
	Link []byte `json:"link,omitempty"`
	*Entry
}

// Write writes the manifest for ReadManifest.
func (m *Manifest) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	enc := json.NewEncoder(b)
	for _, e := range m.entries {
		if err := enc.Encode(line{[]byte(e.Path), []byte(e.Link), e}); err != nil {
			return err
		}
	}
	return b.Flush()
}

// ReadManifest reads what Write has written.
func ReadManifest(r io.Reader) (*Manifest, error) {
	m := &Manifest{entries: map[string]*Entry{}}
	for dec := json.NewDecoder(bufio.NewReader(r)); ; {
		l := line{Entry: new(Entry)}
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return m, nil
		} else if err != nil {
			return nil, fmt.Errorf("read manifest: %w", err)
		}
		l.Entry.Path, l.Entry.Link = string(l.Path), string(l.Link)
		m.entries[l.Entry.Path] = l.Entry
	}
}

// fill takes what tells whether an entry was changed.
func (e *Entry) fill(st *unix.Stat_t) {
	e.Perm, e.Size, e.Ino = st.Mode&0o777, st.Size, st.Ino
	e.MTime, e.CTime = st.Mtim.Nano(), st.Ctim.Nano()
}

// untouched says whether the entry is still as it was when it went in.
func (e *Entry) untouched(st *unix.Stat_t) bool {
	if beneath.KindOf(st.Mode) != e.Kind {
		return false
	}
	if e.Kind == Dir {
		return true // what is in it counts by itself
	}
	return e.Size == st.Size && e.Ino == st.Ino && e.MTime == st.Mtim.Nano() && e.CTime == st.Ctim.Nano()
}
