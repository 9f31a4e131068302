package treediff

import (
	"archive/tar"
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"io"

	"github.com/toold/toold/internal/tool/run/root"
)

// The records of an archive's entries.
const (
	RecordStatus = "TOOLD.status"
	RecordOld    = "TOOLD.old"
	RecordSHA256 = "TOOLD.oldsha256"
	RecordLeft   = "TOOLD.left"
	RecordSize   = "TOOLD.size"
	RecordData   = "TOOLD.data"
)

// archive writes entries.
type archive struct {
	forward
	w   *walk
	buf *bufio.Writer
	out *tar.Writer
}

func newArchive(w *walk, out io.Writer) *archive {
	buf := bufio.NewWriterSize(out, chunk)
	return &archive{w: w, buf: buf, out: tar.NewWriter(buf)}
}

func (a *archive) ordered() bool { return false }

func (a *archive) end() error {
	if err := a.out.Close(); err != nil {
		return err
	}
	return a.buf.Flush()
}

func (a *archive) reads(c *change) bool { return !c.left }

func (a *archive) visit(c *change) error {
	h := &tar.Header{
		Format: tar.FormatPAX, Name: c.path, Typeflag: tar.TypeReg,
		PAXRecords: map[string]string{RecordStatus: string(c.status)},
	}
	if k := c.old.kind(); k != "" {
		h.PAXRecords[RecordOld] = string(k)
	}
	if c.new.node != nil {
		h.Mode = int64(c.new.node.Mode)
	}
	switch c.new.kind() {
	case Dir:
		h.Typeflag = tar.TypeDir
	case Link:
		h.Typeflag, h.Linkname = tar.TypeSymlink, string(c.new.data)
	case Other:
		h.Typeflag = tar.TypeFifo
	}
	content := &content{c: c}
	defer content.close()
	left, err := a.left(c, h, content)
	if err != nil {
		return err
	}
	if left != "" {
		h.PAXRecords[RecordLeft], h.Size = string(left), 0
		delete(h.PAXRecords, RecordSize)
		delete(h.PAXRecords, RecordData)
		if h.Typeflag == tar.TypeSymlink && h.Linkname == "" {
			h.Linkname = "." // it was not read
		}
		return a.out.WriteHeader(h)
	}
	if err := a.out.WriteHeader(h); err != nil || c.new.kind() != File {
		return err
	}
	return content.write(a.out)
}

// left says why there is no content of a change, and opens what there is.
func (a *archive) left(c *change, h *tar.Header, content *content) (Left, error) {
	if c.left {
		return LeftExcluded, nil
	}
	switch {
	case c.new.kind() == Other:
		return otherKinds[c.new.node.Kind], nil
	case c.new.node == nil && c.old.kind() == Other:
		return otherKinds[c.old.node.Kind], nil
	}
	if c.unreadable != "" {
		return LeftUnreadable, nil
	}
	if c.new.size() > MaxContent {
		return LeftTooLarge, nil
	}
	hash, err := c.oldHash()
	if err == nil {
		err = content.open(h)
	}
	if err != nil {
		if err = c.spoiled(err); err == nil {
			a.w.totals.Unreadable++
		}
		return LeftUnreadable, err
	}
	if hash != "" {
		h.PAXRecords[RecordSHA256] = hash
	}
	return "", nil
}

// otherKinds are those of Other.
var otherKinds = map[root.Kind]Left{
	root.KindSocket: LeftSocket, root.KindFIFO: LeftFIFO, root.KindDevice: LeftDevice, root.KindUnknown: LeftUnreadable,
}

// oldHash is of what was there; "" where that has no content.
func (c *change) oldHash() (string, error) {
	sum := sha256.New()
	switch c.old.kind() {
	case File:
		if err := c.stream(&c.old, sum); err != nil {
			return "", err
		}
	case Link:
		sum.Write(c.old.data)
	default:
		return "", nil
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
