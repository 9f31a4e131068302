package treediff

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/toold/toold/internal/tool/run/textdiff"
)

// Line is one change of a list.
type Line struct {
	// Path has replacement characters for what of it is no UTF-8; Bytes has all of them
	// then.
	Path   string `json:"path"`
	Bytes  []byte `json:"bytes,omitempty"`
	Status Status `json:"status"`
	// Kind and OldKind are what it is and was.
	Kind    Kind `json:"kind,omitempty"`
	OldKind Kind `json:"old_kind,omitempty"`
	// Mode and OldMode are the permissions of a file or directory, such as "0644".
	Mode    string `json:"mode,omitempty"`
	OldMode string `json:"old_mode,omitempty"`
	// Size and OldSize are of files, in bytes.
	Size    int64 `json:"size,omitempty"`
	OldSize int64 `json:"old_size,omitempty"`
	// Added and Removed count lines of text files.
	Added   int  `json:"added,omitempty"`
	Removed int  `json:"removed,omitempty"`
	Binary  bool `json:"binary,omitempty"`
	// Unreadable says why its content could not be compared.
	Unreadable string `json:"unreadable,omitempty"`
}

// Last is the last line of a list.
type Last struct {
	Totals *Totals `json:"totals"`
}

// list writes lines.
type list struct {
	forward
	w   *walk
	out *bufio.Writer
	enc *json.Encoder
	n   int
}

func newList(w *walk, out io.Writer) *list {
	b := bufio.NewWriterSize(out, chunk)
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	return &list{w: w, out: b, enc: enc}
}

func (l *list) ordered() bool { return true }

func (l *list) visit(c *change) error {
	line := c.line()
	l.w.totals.Added += line.Added
	l.w.totals.Removed += line.Removed
	if c.path <= l.w.o.After {
		return nil
	}
	if l.n++; l.w.o.Limit > 0 && l.n > l.w.o.Limit {
		l.w.totals.More = true
		return nil
	}
	return l.enc.Encode(line)
}

func (l *list) end() error {
	if err := l.enc.Encode(Last{&l.w.totals}); err != nil {
		return err
	}
	return l.out.Flush()
}

// line is what a list says of a change.
func (c *change) line() Line {
	l := Line{
		Path: c.path, Status: c.status, Kind: c.new.kind(), OldKind: c.old.kind(),
		Mode: c.new.mode(), OldMode: c.old.mode(), Size: c.new.size(), OldSize: c.old.size(), Unreadable: c.unreadable,
	}
	if !utf8.ValidString(c.path) {
		l.Bytes = []byte(c.path)
	}
	switch {
	case c.unreadable != "" || l.Kind != File && l.OldKind != File:
	case !c.isText():
		l.Binary = true
	default:
		stat := textdiff.Hunks(nil, c.old.text(), c.new.text())
		l.Added, l.Removed = stat.Added, stat.Removed
	}
	return l
}

func (h *half) mode() string {
	if k := h.kind(); k != File && k != Dir {
		return ""
	}
	return fmt.Sprintf("%04o", h.node.Mode)
}

func (h *half) size() int64 {
	if h.kind() != File {
		return 0
	}
	return h.node.Size
}

// text is the content of a text file, and nothing of what is none.
func (h *half) text() []byte {
	if h.kind() != File {
		return nil
	}
	return h.data
}
