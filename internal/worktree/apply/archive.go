package apply

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
)

// Errors about the archive: it is as no session of ours writes one, or larger than the
// limits. Nothing is written then.
var (
	ErrArchive  = errors.New("the sandbox gave changes that cannot be read")
	ErrTooLarge = errors.New("the changes are too large to be applied")
)

func broken(format string, args ...any) error {
	return fault.Sandbox.Errorf("%w: "+format, append([]any{ErrArchive}, args...)...)
}

func tooLarge(format string, args ...any) error {
	return fault.Quota.Errorf("%w: "+format, append([]any{ErrTooLarge}, args...)...)
}

const maxName = 255

// other is the kind of what has no content here.
const other beneath.Kind = "other"

// change is one entry of the archive.
type change struct {
	path   string
	status client.ChangeStatus
	kind   beneath.Kind // "" for what was deleted
	old    beneath.Kind // "" for what was added
	oldSum string       // SHA-256; "" is not known
	perm   uint32
	sum    string // SHA-256 of the file's content or the link's target
	link   string
	attrs  attributes
	at     int64 // of the file's content in the spool
	size   int64
	since  int64      // in place of the job's; 0 if that counts
	mtime  int64      // ns, that the file gets; 0 is none
	up     *change    // the change of the nearest directory above that has one
	cannot string     // why the archive has no content of it, and it can only be left
	data   [][2]int64 // offset and bytes of what the archive has of a file with holes; nil is all
	found
}

// put says whether something is to be there.
func (c *change) put() bool { return c.kind != "" }

// spool keeps the contents of an archive, one after the other. What is a hole in a file is one
// in the spool.
type spool struct {
	f      *os.File
	at     int64
	data   int64 // bytes that are no holes
	size   int64 // of all files, also of those that are not kept
	attrs  int   // bytes of attributes
	limits Limits
	names  int
	buf    *buffer
	room   func(bytes int64) error // asked before anything is written
	keeps  func(*change) bool      // whether a content is wanted, and not its hash alone
	own    func(path string) (bool, error)
}

// maxPieces bounds those of a file with holes; agents give fewer.
const maxPieces = 4000

// maxHoles bounds the size of all files to that many times their limit, holes among them: all
// of it is read.
const maxHoles = 8

// buffer is for copying many files, one after the other. A file of one hole takes no room, and
// may take hours: all that reads goes through it, and ends with its context.
type buffer struct {
	ctx context.Context //nolint:containedctx // of the one job that it lives for
	b   []byte
}

func newBuffer(ctx context.Context) *buffer { return &buffer{ctx, make([]byte, 64<<10)} }

// copy is io.Copy through the buffer.
func (b *buffer) copy(w io.Writer, r io.Reader) (int64, error) {
	// Files would find ways of their own, with buffers of their own.
	return io.CopyBuffer(struct{ io.Writer }{w}, b.reader(r), b.b)
}

// reader ends with the context of the buffer.
func (b *buffer) reader(r io.Reader) io.Reader {
	return readFunc(func(p []byte) (int, error) {
		if b.ctx.Err() != nil {
			return 0, context.Cause(b.ctx)
		}
		return r.Read(p)
	})
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// newSpool makes an empty spool, or one of a copy's archive.
func newSpool(ctx context.Context, d *state, limits Limits, j *Job) (*spool, error) {
	of := j.Copy
	flags := os.O_RDWR | os.O_CREATE | os.O_EXCL
	if of != nil {
		flags = os.O_RDWR
		if err := os.Link(of.Archive, d.path(contentFile)); err != nil {
			return nil, fmt.Errorf("keep the changes: %w", err)
		}
	}
	f, err := os.OpenFile(d.path(contentFile), flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("keep the changes: %w", err)
	}
	step("spool made")
	s := &spool{f: f, limits: limits, buf: newBuffer(ctx), room: j.Room, own: j.Own}
	if s.room == nil {
		s.room = func(int64) error { return nil }
	}
	s.keeps = func(c *change) bool { return !j.Request.DryRun || j.Request.Merge && c.size <= maxMerge }
	return s, nil
}

// sync waits until the contents are on the disk.
func (s *spool) sync() error {
	if err := s.f.Sync(); err != nil {
		return fmt.Errorf("keep the changes: %w", err)
	}
	return nil
}

// source is what an archive is read from, how far it is, and whether that has ended.
type source struct {
	r    io.Reader
	at   int64
	over bool
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.at += int64(n)
	s.over = s.over || errors.Is(err, io.EOF)
	return n, err
}

// read keeps an archive, checks it and gives its changes: a directory before what is in
// it. Those that cannot be the session's own are dropped.
func (s *spool) read(ctx context.Context, archive io.Reader) ([]*change, error) {
	var changes []*change
	err := s.each(ctx, archive, func(h *tar.Header, r io.Reader, _ *source) error {
		c, err := s.entry(h, r)
		is := true
		if err == nil && s.own != nil {
			is, err = s.own(c.path)
		}
		if is {
			changes = append(changes, c)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return changes, arrange(changes)
}

// each visits all entries of an archive, and sees that it is whole.
func (s *spool) each(ctx context.Context, archive io.Reader, visit func(h *tar.Header, r io.Reader, in *source) error) error {
	in := &source{r: bufio.NewReaderSize(archive, 1<<16)}
	t := tar.NewReader(in)
	for n := 0; ; n++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return in.ends()
		}
		if err != nil {
			return readError(err)
		}
		if n >= s.limits.Entries {
			return tooLarge("more than %d files", s.limits.Entries)
		}
		if s.names += len(h.Name) + len(h.Linkname); s.names > s.limits.Names {
			return tooLarge("names of more than %d bytes", s.limits.Names)
		}
		if err := visit(h, t, in); err != nil {
			return err
		}
	}
}

func readError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader) {
		return broken("%v", err)
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return noRoom("there is no room to keep the changes while they are checked: %w", err)
	}
	return fmt.Errorf("read the changes: %w", err)
}

// ends sees that nothing follows the two empty blocks at the end of an archive, and that
// they were there: one that was cut between two entries reads like one that ends there.
func (s *source) ends() error {
	if s.over {
		return broken("its end is missing")
	}
	rest := make([]byte, 64<<10)
	n, err := io.ReadFull(s, rest)
	if err == nil || slices.ContainsFunc(rest[:n], func(b byte) bool { return b != 0 }) {
		return broken("something follows its end")
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return readError(err)
	}
	return nil
}

// records are those that an archive of ours has.
var records = []string{"path", "linkpath", "size", "mtime", "atime", "ctime", "uid", "gid", "uname", "gname", recordStatus, recordOld, recordSum, recordLeft, recordSize, recordData, recordAttributes}

const (
	recordStatus     = "TOOLD.status"
	recordOld        = "TOOLD.old"
	recordSum        = "TOOLD.oldsha256"
	recordLeft       = "TOOLD.left"
	recordSize       = "TOOLD.size"
	recordData       = "TOOLD.data"
	recordAttributes = "TOOLD.attributes"
)

// entry makes a change of an entry and keeps its content.
func (s *spool) entry(h *tar.Header, r io.Reader) (*change, error) {
	c := &change{
		path: h.Name, status: client.ChangeStatus(h.PAXRecords[recordStatus]), old: beneath.Kind(h.PAXRecords[recordOld]),
		perm: uint32(h.Mode) & 0o777, link: h.Linkname, size: h.Size, at: s.at, mtime: h.ModTime.UnixNano(),
	}
	if h.Typeflag == tar.TypeDir {
		c.path = strings.TrimSuffix(c.path, "/")
	}
	if err := checkPath(c.path); err != nil {
		return nil, err
	}
	err := c.describe(h)
	if err == nil {
		err = c.check()
	}
	if err == nil {
		err = c.attrs.read(h.PAXRecords, c.kind)
	}
	if err != nil {
		return nil, broken("%s: %v", shown(c.path), err)
	}
	if s.attrs += c.attrs.size(); s.attrs > maxAllAttributes {
		s.attrs -= c.attrs.size()
		c.attrs = attributes{Left: c.attrs.Left + len(c.attrs.User), Known: true}
	}
	return c, s.keep(c, r)
}

// shown is a path as people see it.
func shown(p string) string { return plain.Name(p[:min(len(p), beneath.MaxPath)]) }

func checkPath(p string) error {
	switch {
	case p == "" || p == "." || path.Clean(p) != p || path.IsAbs(p) || p == ".." || strings.HasPrefix(p, "../") || strings.ContainsRune(p, 0):
		return broken("%s is no name of a file below the worktree", shown(p))
	case len(p) > beneath.MaxPath:
		return broken("a path of %d bytes", len(p))
	}
	for name := range strings.SplitSeq(p, "/") {
		if len(name) > maxName {
			return broken("a name of %d bytes", len(name))
		}
	}
	return nil
}

// describe reads the type and the records of an entry.
func (c *change) describe(h *tar.Header) error {
	for k := range h.PAXRecords {
		if !slices.Contains(records, k) {
			return fmt.Errorf("a record %.40q", k)
		}
	}
	switch h.Typeflag {
	case tar.TypeReg:
		c.kind = beneath.File
	case tar.TypeDir:
		c.kind = beneath.Dir
	case tar.TypeSymlink:
		c.kind = beneath.Link
		c.sum = sumOf(c.link)
	case tar.TypeFifo:
		c.kind = other
	default:
		return fmt.Errorf("an entry of type %q", h.Typeflag)
	}
	if why, ok := h.PAXRecords[recordLeft]; ok {
		if c.cannot = why; why == "" || len(why) > maxWhy {
			return errors.New("a reason that is none")
		}
	}
	if err := c.holes(h); err != nil {
		return err
	}
	if c.size < 0 || (c.kind != beneath.File || c.cannot != "") && c.size != 0 || (c.kind == beneath.Link) != (c.link != "") ||
		len(c.link) > beneath.MaxPath || strings.ContainsRune(c.link, 0) {
		return errors.New("a size or target that its type cannot have")
	}
	if text, ok := h.PAXRecords[recordSum]; ok {
		sum, err := hex.DecodeString(text)
		if err != nil || len(sum) != sha256.Size || c.old != beneath.File && c.old != beneath.Link {
			return errors.New("a hash that is none")
		}
		c.oldSum = string(sum)
	}
	return nil
}

// check sees that what has become of the path fits its types, old and new.
func (c *change) check() error {
	if !slices.Contains([]beneath.Kind{"", beneath.File, beneath.Dir, beneath.Link, other}, c.old) {
		return fmt.Errorf("it was of the type %.40q", c.old)
	}
	ok := false
	switch c.status {
	case client.ChangeAdded:
		ok = c.old == ""
	case client.ChangeModified:
		ok = c.old == c.kind
	case client.ChangeDeleted:
		ok = c.old != "" && c.kind == beneath.File && c.size == 0
		c.kind = ""
	case client.ChangeType:
		ok = c.old != "" && c.old != c.kind
	}
	if !ok {
		return fmt.Errorf("its status is %.40q, its type was %q", c.status, c.old)
	}
	return nil
}

// maxWhy bounds why a content is left out, in bytes.
const maxWhy = 64

// holes reads where the content of a file with holes lies.
func (c *change) holes(h *tar.Header) error {
	text, ok := h.PAXRecords[recordSize]
	if !ok {
		if _, ok := h.PAXRecords[recordData]; ok {
			return errors.New("pieces of no size")
		}
		return nil
	}
	size, err := strconv.ParseInt(text, 10, 64)
	c.size, c.data = size, [][2]int64{}
	left, end := h.Size, int64(0)
	for piece := range strings.FieldsSeq(h.PAXRecords[recordData]) {
		at, n, _ := strings.Cut(piece, ",")
		from, e1 := strconv.ParseInt(at, 10, 64)
		long, e2 := strconv.ParseInt(n, 10, 64)
		if err = cmp.Or(err, e1, e2); err != nil || from < end || long <= 0 || long > left || from > size-long {
			return errors.New("pieces that do not fit")
		}
		end, left = from+long, left-long
		if len(c.data) == maxPieces {
			return errors.New("too many pieces")
		}
		c.data = append(c.data, [2]int64{from, long})
	}
	if err != nil || left != 0 || c.kind != beneath.File {
		return errors.New("a size that its pieces do not have")
	}
	return nil
}

// keep keeps the content of a file.
func (s *spool) keep(c *change, r io.Reader) error {
	if c.kind != beneath.File || c.cannot != "" {
		return nil
	}
	pieces, sum := c.data, int64(0)
	if pieces == nil {
		pieces = [][2]int64{{0, c.size}}
	}
	for _, p := range pieces {
		sum += p[1]
	}
	if sum > s.limits.Bytes-s.data || c.size > maxHoles*s.limits.Bytes-s.size {
		return tooLarge("more than %d MiB", s.limits.Bytes>>20)
	}
	if s.keeps(c) {
		if err := s.room(sum); err != nil {
			return err
		}
	}
	h, end := sha256.New(), int64(0)
	for _, p := range pieces {
		if err := s.zeros(h, p[0]-end); err != nil {
			return err
		}
		if err := s.piece(c, h, r, p[0], p[1]); err != nil {
			return err
		}
		end = p[0] + p[1]
	}
	if err := s.zeros(h, c.size-end); err != nil {
		return err
	}
	s.data += sum
	s.size += c.size
	c.data = nil // and no more is needed of it
	if s.keeps(c) {
		s.at += c.size
		if err := s.f.Truncate(s.at); err != nil {
			return readError(err)
		}
	}
	c.sum = string(h.Sum(nil))
	step("content kept")
	return nil
}

// piece keeps some bytes of a file. Where nobody has said what of it are holes, zeros are.
func (s *spool) piece(c *change, h io.Writer, r io.Reader, at, size int64) error {
	for left := size; left > 0; {
		b := s.buf.b[:min(int64(len(s.buf.b)), left)]
		n, err := io.ReadFull(r, b)
		if n < len(b) && (err == nil || errors.Is(err, io.EOF)) {
			return broken("%s: %d of its %d bytes", shown(c.path), size-left+int64(n), size)
		}
		if err != nil {
			return readError(err)
		}
		_, _ = h.Write(b) // which never fails
		if s.keeps(c) && (c.data != nil || !allZero(b)) {
			if err := s.write(b, s.at+at+size-left); err != nil {
				return err
			}
		}
		left -= int64(n)
	}
	return nil
}

// write writes to the spool, where there is room for it.
func (s *spool) write(b []byte, at int64) error {
	if err := s.room(int64(len(b))); err != nil {
		return err
	}
	if _, err := s.f.WriteAt(b, at); err != nil {
		return readError(err)
	}
	return nil
}

// spooling writes to a spool from an offset on.
type spooling struct {
	spool *spool
	at    int64
}

func (w *spooling) Write(p []byte) (int, error) {
	if err := w.spool.write(p, w.at); err != nil {
		return 0, err
	}
	w.at += int64(len(p))
	return len(p), nil
}

var noBytes [64 << 10]byte

// zeros writes so many of them to a hash.
func (s *spool) zeros(h io.Writer, n int64) error {
	zero := readFunc(func(p []byte) (int, error) { return copy(p, noBytes[:]), nil })
	_, err := s.buf.copy(h, io.LimitReader(zero, n))
	return err
}

func allZero(b []byte) bool { return bytes.Equal(b, noBytes[:len(b)]) }

func sumOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return string(sum[:])
}

// compare puts a directory before what is in it, and that before all else.
func compare(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			continue
		}
		if a[i] == '/' || b[i] != '/' && a[i] < b[i] {
			return -1
		}
		return 1
	}
	return len(a) - len(b)
}

// arrange sorts changes and sees that they fit each other: nothing twice, and what is or
// was in a directory has or had one above it.
func arrange(changes []*change) error {
	slices.SortFunc(changes, func(a, b *change) int { return compare(a.path, b.path) })
	var above []*change
	for i, c := range changes {
		if i > 0 && changes[i-1].path == c.path {
			return broken("%s is there twice", shown(c.path))
		}
		for len(above) > 0 && !strings.HasPrefix(c.path, above[len(above)-1].path+"/") {
			above = above[:len(above)-1]
		}
		if len(above) > 0 {
			c.up = above[len(above)-1]
			if c.put() && c.up.kind != beneath.Dir || c.old != "" && c.up.old != beneath.Dir {
				return broken("%s lies below %s, which is no directory", shown(c.path), shown(c.up.path))
			}
		}
		above = append(above, c)
	}
	return nil
}
