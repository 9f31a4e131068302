package treediff

import (
	"archive/tar"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/toold/toold/internal/tool/run/root"
)

// maxExtents bounds the pieces that a file with holes is given in. What has more comes whole.
const maxExtents = 2000

// content is what an archive has of a file.
type content struct {
	c     *change
	f     *root.File // nil for what is in memory
	parts [][2]int64 // begin and end of its bytes; nil where it comes whole
}

// open opens the file of an entry, and says in its header how much comes.
func (o *content) open(h *tar.Header) (err error) {
	if o.c.new.kind() != File {
		return nil
	}
	if h.Size = o.c.new.node.Size; !o.c.new.large() {
		return nil
	}
	if o.f, err = o.c.new.open(o.c.w); err != nil {
		return err
	}
	if o.parts, err = o.extents(h.Size); err != nil || o.parts == nil {
		return err
	}
	var data []string
	h.PAXRecords[RecordSize] = strconv.FormatInt(h.Size, 10)
	h.Size = 0
	for _, p := range o.parts {
		data = append(data, fmt.Sprintf("%d,%d", p[0], p[1]-p[0]))
		h.Size += p[1] - p[0]
	}
	if len(data) > 0 {
		h.PAXRecords[RecordData] = strings.Join(data, " ")
	}
	return nil
}

// extents are where the bytes of a file lie, nil for everywhere.
func (o *content) extents(size int64) ([][2]int64, error) {
	parts := [][2]int64{}
	for at := int64(0); ; {
		begin, end, err := o.f.Extent(o.c.w.ctx, at)
		if err != nil {
			return nil, err
		}
		begin, end = min(begin, size), min(end, size)
		if begin >= size {
			return parts, nil
		}
		if begin == 0 && end == size || len(parts) == maxExtents {
			return nil, nil
		}
		parts = append(parts, [2]int64{begin, end})
		at = end
	}
}

// write writes it.
func (o *content) write(to io.Writer) error {
	if o.f == nil {
		_, err := to.Write(o.c.new.data)
		return err
	}
	parts := o.parts
	if parts == nil {
		parts = [][2]int64{{0, o.c.new.node.Size}}
	}
	buf := make([]byte, chunk)
	for _, p := range parts {
		for at := p[0]; at < p[1]; {
			if err := o.c.w.ctx.Err(); err != nil {
				return err
			}
			n, err := o.f.ReadAt(o.c.w.ctx, buf[:min(int64(len(buf)), p[1]-at)], at)
			if n == 0 {
				return &root.Error{Code: root.Stale, Msg: "it changed while it was read", Err: err}
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
			at += int64(n)
		}
	}
	return nil
}

func (o *content) close() {
	if o.f != nil {
		_ = o.f.Close() // it was only read
	}
}
