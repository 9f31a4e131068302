package treediff

import (
	"bufio"
	"bytes"
	"crypto/sha1" //nolint:gosec // of git; nothing is trusted for it
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"io"
	"slices"
	"strings"
)

// isIndex reports whether a path is that of the index of a git repository or of one of its
// worktrees or submodules.
func isIndex(path string) bool {
	dir, ok := strings.CutSuffix(path, "/index")
	return ok && slices.Contains(strings.Split(dir, "/"), ".git")
}

// maxIndex bounds an index that is looked into, in bytes.
const maxIndex = 256 << 20

// sameIndex reports whether two indexes of git have the same entries: what git remembers of the
// files beside that, so that it need not read them again, is written by commands that only look.
// What is no index is not the same.
func sameIndex(a, b func() (io.ReadCloser, error), sizeA, sizeB int64) (bool, error) {
	if max(sizeA, sizeB) > maxIndex {
		return false, nil
	}
	for _, sum := range []func() hash.Hash{sha1.New, sha256.New} { // no index says which
		x, err := a()
		if err != nil {
			return false, err
		}
		y, err := b()
		if err != nil {
			return false, errors.Join(err, x.Close())
		}
		same := newIndex(x, sizeA, sum()).same(newIndex(y, sizeB, sum()))
		if err := errors.Join(x.Close(), y.Close()); err != nil || same {
			return same, err
		}
	}
	return false, nil
}

// index is one that is read.
type index struct {
	in      *bufio.Reader
	left    int64     // bytes of in
	sum     hash.Hash // of what was read
	end     io.Reader // its sum
	size    int       // of a hash
	version uint32
	entries uint32
}

func newIndex(r io.Reader, bytes int64, sum hash.Hash) *index {
	left := bytes - int64(sum.Size())
	return &index{in: bufio.NewReaderSize(io.TeeReader(io.LimitReader(r, left), sum), 4*MaxPath), left: left, sum: sum, end: r, size: sum.Size()}
}

// same reports whether both are indexes with hashes of that size, and the same.
func (x *index) same(y *index) bool {
	if x.head() != nil || y.head() != nil || x.version != y.version || x.entries != y.entries {
		return false
	}
	for range x.entries {
		a, err := x.entry()
		b, more := y.entry()
		if err != nil || more != nil || !bytes.Equal(a, b) {
			return false
		}
	}
	a, err := x.extensions()
	b, more := y.extensions()
	return err == nil && more == nil && bytes.Equal(a, b)
}

var errNoIndex = errors.New("no index of git")

func (x *index) read(n int) ([]byte, error) {
	if x.left -= int64(n); x.left < 0 {
		return nil, errNoIndex
	}
	b := make([]byte, n)
	_, err := io.ReadFull(x.in, b)
	return b, err
}

func (x *index) head() error {
	b, err := x.read(12)
	if err != nil || string(b[:4]) != "DIRC" {
		return errNoIndex
	}
	x.version, x.entries = binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	if x.version < 2 || x.version > 4 {
		return errNoIndex
	}
	return nil
}

// entry gives what counts of the next one: mode, object, flags, name.
func (x *index) entry() ([]byte, error) {
	const times, mode, stat = 24, 4, 40 // bytes of what comes first, of the mode, and of all until the object
	b, err := x.read(stat + x.size + 2)
	if err != nil {
		return nil, err
	}
	is := append(b[times:times+mode:times+mode], b[stat:]...)
	flags := binary.BigEndian.Uint16(b[stat+x.size:])
	fixed := len(b)
	if flags&0x4000 != 0 { // more flags
		more, err := x.read(2)
		if err != nil || x.version < 3 {
			return nil, errNoIndex
		}
		is, fixed = append(is, more...), fixed+2
	}
	if x.version == 4 { // how much of the name before it goes, in 7 bits each
		for more := true; more; x.left-- {
			c, err := x.in.ReadByte()
			if err != nil {
				return nil, err
			}
			is, more = append(is, c), c >= 0x80
		}
	}
	name, err := x.name()
	if err != nil {
		return nil, err
	}
	is, n := append(is, name...), len(name)
	if x.version < 4 {
		if known := int(flags & 0xfff); known != min(n, 0xfff) {
			return nil, errNoIndex
		}
		pad, err := x.read(7 - (fixed+n)%8) // after the NUL
		if err != nil || len(bytes.Trim(pad, "\x00")) > 0 {
			return nil, errNoIndex
		}
	}
	return is, nil
}

// name reads up to a NUL.
func (x *index) name() ([]byte, error) {
	b, err := x.in.ReadSlice(0)
	if x.left -= int64(len(b)); err != nil || x.left < 0 {
		return nil, errNoIndex
	}
	return b[:len(b)-1], nil
}

// derived are extensions with what can be had from the entries and the files.
var derived = []string{"TREE", "UNTR", "FSMN", "EOIE", "IEOT"}

// maxExtension bounds others, in bytes.
const maxExtension = 1 << 20

// extensions gives those that are not derived.
func (x *index) extensions() (all []byte, err error) {
	for x.left > 0 {
		head, err := x.read(8)
		if err != nil {
			return nil, err
		}
		size := int64(binary.BigEndian.Uint32(head[4:]))
		if slices.Contains(derived, string(head[:4])) {
			if x.left -= size; x.left < 0 {
				return nil, errNoIndex
			}
			if _, err := io.CopyN(io.Discard, x.in, size); err != nil {
				return nil, err
			}
			continue
		}
		if size > maxExtension || int64(len(all)) > maxExtension {
			return nil, errNoIndex
		}
		b, err := x.read(int(size))
		if err != nil {
			return nil, err
		}
		all = append(append(all, head...), b...)
	}
	end := make([]byte, x.size)
	if _, err := io.ReadFull(x.end, end); err != nil || !bytes.Equal(end, x.sum.Sum(nil)) && len(bytes.Trim(end, "\x00")) > 0 { // git may leave it out
		return nil, errNoIndex
	}
	return all, nil
}
