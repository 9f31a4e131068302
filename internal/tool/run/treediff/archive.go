package treediff

import (
	"archive/tar"
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"io"
)

// The records of an archive's entries.
const (
	RecordStatus = "TOOLD.status"
	RecordOld    = "TOOLD.old"
	RecordSHA256 = "TOOLD.oldsha256"
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

func (a *archive) visit(c *change) error {
	if c.unreadable != "" {
		return nil
	}
	hash, err := c.oldHash()
	if err != nil {
		if err = c.spoiled(err); err == nil {
			a.w.totals.Unreadable++
		}
		return err
	}
	h := &tar.Header{
		Format: tar.FormatPAX, Name: c.path, Typeflag: tar.TypeReg,
		PAXRecords: map[string]string{RecordStatus: string(c.status)},
	}
	if k := c.old.kind(); k != "" {
		h.PAXRecords[RecordOld] = string(k)
	}
	if hash != "" {
		h.PAXRecords[RecordSHA256] = hash
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
	case File:
		h.Size = c.new.node.Size
	}
	if err := a.out.WriteHeader(h); err != nil || c.new.kind() != File {
		return err
	}
	return c.stream(&c.new, a.out)
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
