package output

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// ErrNotKept says that the whole of an output is not in a file, or no longer.
var ErrNotKept = errors.New("the whole output is not kept, or no longer")

// ErrNoStreams says that an output was kept as one, and not as two streams.
var ErrNoStreams = errors.New("the output was not kept as two streams")

// Reader reads the output from offset on. It goes on while the output grows if follow is
// set, until ctx ends.
func (o *Output) Reader(ctx context.Context, offset int64, follow bool) io.ReadCloser {
	return &reader{ctx: ctx, o: o, offset: offset, follow: follow}
}

type reader struct {
	ctx    context.Context //nolint:containedctx // an io.Reader has no other place for it
	o      *Output
	f      *os.File // nil until there is one
	offset int64
	follow bool
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if r.f == nil {
		r.f = r.o.file.reader()
	}
	n, err := r.o.read(r.ctx, r.f, p, r.offset, r.follow)
	r.offset += int64(n)
	return n, err
}

// Close implements io.Closer.
func (r *reader) Close() error {
	if r.f != nil {
		return r.f.Close()
	}
	return nil
}

// OpenSaved opens the file of an output at offset and says how large it is. Its error is
// ErrNotKept where there is none.
func OpenSaved(path string, offset int64) (*os.File, int64, error) {
	f, err := openExisting(path, os.O_RDONLY)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrNotKept, err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = f.Seek(min(offset, size), io.SeekStart)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}

// IsSplit reports whether the file at path has two streams.
func IsSplit(path string) bool {
	_, err := os.Lstat(path + indexSuffix)
	return err == nil
}

// Remove takes away a saved output. It returns how many bytes that were; the error is why
// the file stays.
func Remove(path string) (size int64, err error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	_ = os.Remove(path + indexSuffix)
	return fi.Size(), os.Remove(path)
}

// parts reads an output of two streams in the order in which they were printed.
type parts struct {
	data, index *os.File
	from        Position // bytes of each stream that are not wanted
	end         int64    // of what was read
	seen        Position // the same, by stream
}

func openParts(path string, from Position) (*parts, error) {
	index, err := openExisting(path+indexSuffix, os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoStreams, err)
	}
	data, err := openExisting(path, os.O_RDONLY)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrNotKept, err), index.Close())
	}
	return &parts{data: data, index: index, from: from}, nil
}

// Close implements io.Closer.
func (p *parts) Close() error { return errors.Join(p.data.Close(), p.index.Close()) }

// next goes to the next part: what of it is wanted is in the data from at to end. Its
// error is io.EOF where there is none yet.
func (p *parts) next() (stream int, at int64, err error) {
	var rec [8]byte
	if _, err := io.ReadFull(p.index, rec[:]); err != nil {
		return 0, 0, err
	}
	v := binary.BigEndian.Uint64(rec[:])
	i, from, to := int(v>>63), p.end, int64(v&^indexStderr)
	skip := min(max(0, p.from[i]-p.seen[i]), to-from)
	p.end = to
	p.seen[i] += to - from
	return i, from + skip, nil
}

// pass gives all parts that there are and were not read before.
func (p *parts) pass(give func(stream int, p []byte)) error {
	buf := make([]byte, 32<<10)
	for {
		i, at, err := p.next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		for at < p.end {
			n, err := p.data.ReadAt(buf[:min(int64(len(buf)), p.end-at)], at)
			if n == 0 {
				return err
			}
			give(i, buf[:n])
			at += int64(n)
		}
	}
}

// Follow gives the output from that position on, in the order in which it was printed,
// until its end. An output that is one has only stream 0.
func (o *Output) Follow(ctx context.Context, from Position, give func(stream int, p []byte)) error {
	if !o.file.Split {
		body := o.Reader(ctx, from[0], true)
		return errors.Join(Pass(body, give), body.Close())
	}
	var p *parts
	for have := int64(0); ; have = p.end {
		more, err := o.more(ctx, have)
		if err == nil && more && p == nil {
			p, err = openParts(o.file.Path, from)
		}
		if err == nil && more {
			err = p.pass(give)
		}
		if err != nil || !more {
			if p != nil {
				err = errors.Join(err, p.Close())
			}
			return err
		}
	}
}

// PassSaved is Follow for the file of an output of two streams that is over.
func PassSaved(path string, from Position, give func(stream int, p []byte)) error {
	p, err := openParts(path, from)
	if err != nil {
		return err
	}
	return errors.Join(p.pass(give), p.Close())
}

// Pass gives what body has, as stream 0.
func Pass(body io.Reader, give func(stream int, p []byte)) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := body.Read(buf)
		give(0, buf[:n])
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// OpenStream opens one of two streams of a saved output behind its first bytes. Its error
// is ErrNoStreams or ErrNotKept.
func OpenStream(path string, stderr bool, offset int64) (io.ReadCloser, error) {
	p, err := openParts(path, Position{offset, offset})
	if err != nil {
		return nil, err
	}
	r := &streamReader{parts: p}
	if stderr {
		r.stream = 1
	}
	return r, nil
}

// streamReader gives one of two streams out of a file that has both.
type streamReader struct {
	*parts
	stream int
	at     int64 // up to end, what is left of the part that is being read
}

// Read implements io.Reader.
func (r *streamReader) Read(p []byte) (int, error) {
	for r.at >= r.end {
		stream, at, err := r.next()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = io.EOF
		}
		if err != nil {
			return 0, err
		}
		if r.at = at; stream != r.stream {
			r.at = r.end
		}
	}
	n, err := r.data.ReadAt(p[:min(int64(len(p)), r.end-r.at)], r.at)
	r.at += int64(n)
	if n > 0 {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		return 0, io.ErrUnexpectedEOF
	}
	return 0, err
}
