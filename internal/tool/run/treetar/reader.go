// Package treetar packs directory trees into tar streams and unpacks them. The agent does that
// inside a sandbox, and toolctl outside. Neither trusts the archive or the tree: a Reader
// gives names that stay below the directory that they are for, kinds that can be unpacked,
// and an end only where the archive has its end marker; and all work is done below a
// root.Root, by paths on which no link is followed. Nothing is held whole.
package treetar

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/toold/toold/internal/plain"
)

// Bounds of every archive.
const (
	MaxEntries = 1_000_000
	MaxName    = 4095 // bytes of a whole name, and of the target of a link
	MaxPart    = 255  // bytes between two slashes
	MaxDepth   = 1000 // names in a name
)

// Kind is what an entry is.
type Kind int

// The kinds. Other is what is never unpacked: devices, FIFOs, and all that tar has beside.
const (
	File Kind = iota
	Dir
	Link
	HardLink
	Other
)

// Entry is one entry of an archive.
type Entry struct {
	// Name is relative and clean: no empty part, no "." or ".." in it. It may have any
	// other bytes but NUL. Only the name "." stands for the directory itself.
	Name string
	Kind Kind
	// Mode has permission bits alone.
	Mode fs.FileMode
	// Size is that of a file in bytes.
	Size int64
	// Target is where a link leads, any text; of a hard link it is the Name of another
	// entry.
	Target string
	// Time is when it was last modified. Unpacking leaves it.
	Time time.Time
}

// Error is an archive that is refused. It has no raw names in it.
type Error struct{ Msg string }

// Error implements error.
func (e *Error) Error() string { return e.Msg }

// badf words an archive that is refused.
func badf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// ErrTooLarge says that an archive has more than it may have.
var ErrTooLarge = errors.New("too large")

// tooLarge is the error for an archive of more than n bytes.
func tooLarge(n int64) error {
	return fmt.Errorf("%w: the archive, or what it unpacks to, has more than %d bytes", ErrTooLarge, n)
}

// Reader reads an archive.
type Reader struct {
	in      *source
	tar     *tar.Reader
	most    int64
	files   int64 // bytes of files so far
	entries int
	plain   bool // no holes, no hard links
}

// source is what an archive is read from: at most left bytes, and whether it has ended.
type source struct {
	r    io.Reader
	left int64
	over bool
	err  error // why it did not end well
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	if s.left <= 0 {
		s.err = ErrTooLarge
		return 0, s.err
	}
	n, err := s.r.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)
	switch {
	case n > 0 && errors.Is(err, io.EOF):
		return n, nil
	case errors.Is(err, io.EOF):
		s.over = true
	case err != nil:
		s.err = err
	}
	return n, err
}

// NewReader reads an archive of at most most bytes from r. Its files have no more together
// either, whatever holes they claim.
func NewReader(r io.Reader, most int64) *Reader {
	in := &source{r: bufio.NewReaderSize(r, gather), left: most}
	return &Reader{in: in, tar: tar.NewReader(in), most: most}
}

// Next gives the next entry. Its error is io.EOF at the end of an archive, an *Error or
// ErrTooLarge for one that is refused, or that of reading.
func (r *Reader) Next() (*Entry, error) {
	for {
		h, err := r.tar.Next()
		if err != nil {
			err = r.failed(err)
			if errors.Is(err, io.EOF) { // others fill up the last block behind it
				_, _ = io.Copy(io.Discard, r.in)
			}
			return nil, err
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if r.entries++; r.entries > MaxEntries {
			return nil, fmt.Errorf("%w: the archive has more than %d entries", ErrTooLarge, MaxEntries)
		}
		e, err := entryOf(h)
		if err != nil {
			return nil, err
		}
		if r.plain && (e.Kind == HardLink || hasHoles(h)) {
			return nil, badf("%s is a hard link or has holes, which this archive may not have", plain.Name(e.Name))
		}
		return e, r.Spend(e.Size)
	}
}

// Spend counts size more bytes of files: those that a hard link makes are copies.
func (r *Reader) Spend(size int64) error {
	if size < 0 || size > r.most-r.files {
		return tooLarge(r.most)
	}
	r.files += size
	return nil
}

// Read reads the file that Next gave.
func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.tar.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.failed(err)
	}
	return n, err
}

// failed says why an archive goes no further. Without its end marker it was cut, though
// that is between two entries.
func (r *Reader) failed(err error) error {
	switch {
	case errors.Is(r.in.err, ErrTooLarge):
		return tooLarge(r.most)
	case r.in.err != nil:
		return r.in.err
	case r.in.over:
		return badf("the archive is cut: it ends without its end marker")
	case errors.Is(err, io.EOF):
		return io.EOF
	}
	return badf("the archive is not a tar that can be read: %v", err)
}

// hasHoles reports whether a file has more bytes than come.
func hasHoles(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}

// entryOf checks what a header says.
func entryOf(h *tar.Header) (*Entry, error) {
	e := &Entry{Kind: kindOf(h.Typeflag), Mode: fs.FileMode(h.Mode) & fs.ModePerm, Size: h.Size, Time: h.ModTime}
	var err error
	if e.Name, err = cleanName(h.Name); err != nil {
		return nil, err
	}
	switch {
	case e.Kind == File && strings.HasSuffix(h.Name, "/"):
		e.Kind = Dir // as tar has had it from of old
	case e.Kind == HardLink:
		e.Target, err = cleanName(h.Linkname)
	case e.Kind == Link && (h.Linkname == "" || len(h.Linkname) > MaxName || strings.IndexByte(h.Linkname, 0) >= 0):
		err = badf("the link %s leads to a path of %d bytes", plain.Name(e.Name), len(h.Linkname))
	case e.Kind == Link:
		e.Target = h.Linkname
	}
	if err == nil && e.Name == "." && e.Kind != Dir {
		err = badf("the archive has something else than a directory for %s", plain.Name(h.Name))
	}
	if e.Kind != File {
		e.Size = 0
	}
	return e, err
}

func kindOf(flag byte) Kind {
	switch flag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		return File
	case tar.TypeDir:
		return Dir
	case tar.TypeSymlink:
		return Link
	case tar.TypeLink:
		return HardLink
	}
	return Other
}

// cleanName is a name without the parts that mean nothing. One that could lead out of the
// directory is refused.
func cleanName(name string) (string, error) {
	switch {
	case len(name) > MaxName:
		return "", badf("the archive has a name of %d bytes; the limit is %d", len(name), MaxName)
	case name == "":
		return "", badf("the archive has an entry without a name")
	case strings.HasPrefix(name, "/"):
		return "", badf("the archive has the absolute name %s; pack it with names relative to the directory (tar -C DIR -c .)", plain.Name(name))
	case strings.IndexByte(name, 0) >= 0:
		return "", badf("the archive has a name with a NUL byte")
	}
	depth := 0
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "..":
			return "", badf("the archive has the name %s, which leads out of its directory", plain.Name(name))
		case len(part) > MaxPart:
			return "", badf("the archive has a name with %d bytes between slashes; the limit is %d", len(part), MaxPart)
		case part != "" && part != ".":
			depth++
		}
	}
	if depth > MaxDepth {
		return "", badf("the archive has a name of %d directories; the limit is %d", depth, MaxDepth)
	}
	return path.Clean(name), nil
}
