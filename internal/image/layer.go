package image

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the memory that a zstd stream may ask for. 128 MiB is what
// the highest levels of the zstd program use.
const maxWindow = 128 << 20

var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
	// A zstd stream may begin with a frame to skip, of sixteen kinds.
	zstdSkipMagic = []byte{0x2a, 0x4d, 0x18}
)

// expand gives what r holds, uncompressed. What r is follows from its first
// bytes: media types and names of files say what somebody believes. The result
// is bounded by the ratio of limits, and reading ends with ctx.
func expand(ctx context.Context, r io.Reader, limits Limits) (io.ReadCloser, error) {
	in := &countingReader{ctx: ctx, r: r}
	buffered := bufio.NewReaderSize(in, 64<<10)
	head, err := buffered.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	out := &expanded{in: in, limits: limits}
	switch {
	case bytes.HasPrefix(head, gzipMagic):
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("%w: gzip: %w", ErrInvalid, err)
		}
		out.r, out.close = z, z.Close
	case bytes.Equal(head, zstdMagic), len(head) == 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:], zstdSkipMagic):
		z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, fmt.Errorf("%w: zstd: %w", ErrInvalid, err)
		}
		out.r, out.close = z, func() error { z.Close(); return nil }
	default:
		out.r = buffered
	}
	return out, nil
}

// countingReader counts what is read from r, and stops when ctx ends.
type countingReader struct {
	ctx context.Context
	r   io.Reader
	n   int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// expanded is an uncompressed stream that notices when it is a bomb.
type expanded struct {
	in     *countingReader
	r      io.Reader
	close  func() error // of the decoder; may be nil
	limits Limits
	n      int64
}

func (e *expanded) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	e.n += int64(n)
	if e.close != nil && e.n > ratioGrace+e.in.n*e.limits.Ratio {
		return n, fmt.Errorf("%w: it unpacks to more than %d times its size, as only bombs do", ErrTooLarge, e.limits.Ratio)
	}
	if e.close != nil && err != nil && !errors.Is(err, io.EOF) && e.in.ctx.Err() == nil {
		err = fmt.Errorf("%w: damaged compression: %w", ErrInvalid, err)
	}
	return n, err
}

func (e *expanded) Close() error {
	if e.close == nil {
		return nil
	}
	return e.close()
}

// digester computes the digest of what passes.
type digester struct {
	r io.Reader
	h hash.Hash
	n int64

	tell func(n int64) // may be nil; called every tellEvery bytes
	told int64
}

// tellEvery is how many bytes pass between two reports of progress.
const tellEvery = 4 << 20

func digesting(r io.Reader, tell func(int64)) *digester {
	return &digester{r: r, h: sha256.New(), tell: tell}
}

func (d *digester) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	d.h.Write(p[:n])
	d.n += int64(n)
	if d.tell != nil && d.n-d.told >= tellEvery {
		d.told = d.n
		d.tell(d.n)
	}
	return n, err
}

func (d *digester) digest() string { return "sha256:" + hex.EncodeToString(d.h.Sum(nil)) }

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}
