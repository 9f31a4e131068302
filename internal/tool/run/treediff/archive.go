package treediff

import (
	"archive/tar"
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"time"

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
	// RecordAttributes is Attributes as JSON.
	RecordAttributes = "TOOLD.attributes"
)

// Attributes are the extended attributes of an entry that belong to its user, names and values in
// base64. Left counts others that it has.
type Attributes struct {
	User []Attribute `json:"user,omitempty"`
	Left int         `json:"left,omitempty"`
}

// Attribute is one of them.
type Attribute struct {
	Name  []byte `json:"name"`
	Value []byte `json:"value"`
}

// maxAttributes bounds the bytes of those of one entry: a reader takes 1 MiB of all its records.
const maxAttributes = 256 << 10

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
		h.Mode, h.ModTime = int64(c.new.node.Mode), time.Unix(0, c.new.node.MTime)
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
	if err := a.attributes(c, h); err != nil {
		return err
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

// attributes gives a file those of its user, and a directory that is new.
func (a *archive) attributes(c *change, h *tar.Header) error {
	if k := c.new.kind(); k != File && (k != Dir || c.old.kind() == Dir) {
		return nil
	}
	var is Attributes
	err := a.w.lent(func() error {
		dir, err := c.new.place.need(a.w.ctx)
		if err != nil {
			return err
		}
		all, left, err := dir.Attributes(a.w.ctx, c.new.node.Name, maxAttributes)
		is.Left = left
		for _, name := range slices.Sorted(maps.Keys(all)) {
			is.User = append(is.User, Attribute{[]byte(name), []byte(all[name])})
		}
		return err
	})
	if err != nil {
		if err := c.spoiled(err); err != nil {
			return err
		}
		is = Attributes{Left: 1} // it has gone meanwhile, for one
	}
	text, err := json.Marshal(is)
	h.PAXRecords[RecordAttributes] = string(text)
	return err
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
