package apply

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"strings"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
)

// Entry is what a worktree had at a path when it was copied.
type Entry struct {
	Kind beneath.Kind `json:"kind"`
	Perm uint32       `json:"perm"`
	// Link is where a link leads; SHA256 is of a file's content.
	Link   string            `json:"-"`
	SHA256 [sha256.Size]byte `json:"sha256"`
	CTime  int64             `json:"ctime"` // ns; a later one tells that it was changed on this side
}

func (e *Entry) sum() string {
	switch e.Kind {
	case beneath.File:
		return string(e.SHA256[:])
	case beneath.Link:
		return sumOf(e.Link)
	}
	return ""
}

// Copy is a worktree that was copied, and comes back as a whole. What differs from how it
// was are its changes.
type Copy struct {
	// Archive is the path of a tar archive, on the file system of the job's Dir. It is
	// hostile.
	Archive string
	Top     string // the worktree's name in it
	Was     map[string]*Entry
	// Refused is told the name of each entry that cannot be copied: devices, names that
	// lead out and the like. It is any bytes.
	Refused func(name string)
}

// ErrNoTop: the archive does not even hold the worktree itself. It was not taken as it
// should have been: by an Engine on its way down, for one.
var ErrNoTop = errors.New("the archive does not hold the worktree")

// comparison finds the changes of a copy.
type comparison struct {
	*Copy
	spool   *spool
	top     bool // the worktree is there
	total   int64
	has     map[string]part // all that the archive has so far
	changes []*change
}

// part is where the archive has a file's content; zero for what is none.
type part struct {
	at, size int64
	sum      string
}

// compare gives the changes of a copy, whose archive the spool has: a directory before
// what is in it.
func (s *spool) compare(ctx context.Context, of *Copy) ([]*change, error) {
	c := comparison{Copy: of, spool: s, has: make(map[string]part)}
	if err := s.each(ctx, s.f, c.entry); err != nil {
		return nil, err
	}
	if !c.top {
		return nil, ErrNoTop
	}
	for name := range c.Was {
		if _, ok := c.has[name]; !ok {
			c.add(&change{path: name})
		}
	}
	return c.changes, arrange(c.changes)
}

// add adds a change, unless it is none.
func (c *comparison) add(new *change) {
	was := c.Was[new.path]
	switch {
	case was == nil:
		was, new.status = &Entry{}, client.ChangeAdded
	case !new.put():
		new.status = client.ChangeDeleted
	case new.kind != was.Kind:
		new.status = client.ChangeType
	case new.sum == was.sum() && (new.perm == was.Perm || new.kind == beneath.Link):
		return
	default:
		new.status = client.ChangeModified
	}
	new.old, new.oldSum, new.since = was.Kind, was.sum(), was.CTime
	c.changes = append(c.changes, new)
}

// below is the path below the worktree of a name in the archive.
func (c *comparison) below(name string) (rel string, ok bool) {
	rel, ok = strings.CutPrefix("/"+strings.Trim(name, "/")+"/", "/"+c.Top+"/")
	return strings.TrimSuffix(rel, "/"), ok
}

func isTarget(s string) bool {
	return s != "" && len(s) <= beneath.MaxPath && strings.IndexByte(s, 0) < 0
}

var copiedKinds = map[byte]beneath.Kind{
	tar.TypeReg: beneath.File, tar.TypeLink: beneath.File, tar.TypeDir: beneath.Dir, tar.TypeSymlink: beneath.Link,
}

func (c *comparison) entry(h *tar.Header, r io.Reader, in *source) error {
	rel, ok := c.below(h.Name)
	if ok && rel == "" {
		c.top = h.Typeflag == tar.TypeDir
		return nil
	}
	new := &change{path: rel, kind: copiedKinds[h.Typeflag], perm: uint32(h.Mode) & 0o777, mtime: h.ModTime.UnixNano()}
	if !ok || checkPath(rel) != nil || new.kind == "" || new.kind == beneath.Link && !isTarget(h.Linkname) {
		c.Refused(h.Name)
		return nil
	}
	if _, twice := c.has[rel]; twice {
		return broken("%s is there twice", shown(rel))
	}
	has, err := c.content(h, r, in)
	if err != nil {
		return err
	}
	if c.total += has.size; has.size < 0 || c.total > c.spool.limits.Bytes {
		return tooLarge("more than %d MiB came back", c.spool.limits.Bytes>>20)
	}
	c.has[rel] = has
	new.at, new.size, new.sum = has.at, has.size, has.sum
	switch {
	case new.kind == beneath.Link:
		new.link, new.sum = h.Linkname, sumOf(h.Linkname)
	case new.kind == beneath.File && has.sum == "":
		new.why = string(errNoTarget)
	}
	c.add(new)
	return nil
}

// content is that of an entry. A hard link has that of a file before it.
func (c *comparison) content(h *tar.Header, r io.Reader, in *source) (has part, err error) {
	switch h.Typeflag {
	case tar.TypeLink:
		to, _ := c.below(h.Linkname)
		return c.has[to], nil
	case tar.TypeReg:
		has = part{at: in.at, size: h.Size}
		sum := sha256.New()
		if _, err := c.spool.buf.copy(sum, r); err != nil {
			return has, readError(err)
		}
		if in.at-has.at != has.size {
			return has, broken("%s: it has holes", shown(h.Name))
		}
		has.sum = string(sum.Sum(nil))
	}
	return has, nil
}
