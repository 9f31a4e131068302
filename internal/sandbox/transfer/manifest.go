package transfer

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/toold/toold/internal/worktree/apply"
)

// Manifest is what went in.
type Manifest struct {
	entries map[string]*apply.Entry // by their paths below the directory
	// Skipped are entries that could not be read or copied.
	Skipped int
}

// line is an entry as it is kept. Names are any bytes, and strings of JSON are not.
type line struct {
	Path []byte `json:"path"`
	Link []byte `json:"link,omitempty"`
	*apply.Entry
}

// Write writes the manifest for ReadManifest.
func (m *Manifest) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	enc := json.NewEncoder(b)
	for path, e := range m.entries {
		if err := enc.Encode(line{[]byte(path), []byte(e.Link), e}); err != nil {
			return err
		}
	}
	return b.Flush()
}

// ReadManifest reads what Write has written.
func ReadManifest(r io.Reader) (*Manifest, error) {
	m := &Manifest{entries: map[string]*apply.Entry{}}
	for dec := json.NewDecoder(bufio.NewReader(r)); ; {
		l := line{Entry: new(apply.Entry)}
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return m, nil
		} else if err != nil {
			return nil, fmt.Errorf("read manifest: %w", err)
		}
		l.Entry.Link = string(l.Link)
		m.entries[string(l.Path)] = l.Entry
	}
}
