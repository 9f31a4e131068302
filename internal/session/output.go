package session

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/toold/toold/client"
)

const (
	// unackedBytes is what the agent keeps of one call's output until it is
	// told that the bytes are safe.
	unackedBytes = 256 << 10
	// spillFrom bounds how many bytes of an output are held in memory alone.
	// It must stay well below unackedBytes, or the agent would wait for an
	// acknowledgement that never comes.
	spillFrom = unackedBytes / 2
)

// output takes the output of one call: it keeps as much of both ends as the
// result may show, and puts the whole into a file once it is too long for that.
// Its memory is bounded by the truncation limits, whatever the length.
type output struct {
	trunc     Truncate
	direction string
	spill     *spill
	split     bool

	mu      sync.Mutex // guards the fields below
	head    []byte     // the first bytes, up to holdHead()
	tail    []byte     // the last bytes, at least tailLen of them; not for "head"
	total   int64      // bytes that arrived
	ends    int64      // line ends that arrived
	nuls    int64      // NUL bytes that arrived
	last    byte       // the last byte that arrived
	gap     int64      // bytes that are known to have been, but were not seen
	closed  bool
	changed chan struct{} // closed when something arrives, made by who waits
}

func newOutput(t Truncate, direction string, sp *spill, split bool) *output {
	if t.Direction != "" {
		direction = t.Direction
	}
	return &output{trunc: t, direction: direction, spill: sp, split: split}
}

// begin comes before the call runs. It makes the files of an output with two
// streams: by them a daemon that takes the call up knows that it has two, also
// where nothing was printed before.
func (o *output) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.split && !o.spill.opened() {
		o.spill.open(true)
	}
}

// write takes the next bytes. It returns the offset up to which they are safe
// from the death of this process, or -1 when none are.
func (o *output) write(p []byte, stderr bool) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.store(p, stderr)
	o.total += int64(len(p))
	o.take(p)
	o.wakeLocked()
	return o.safeLocked()
}

// safe is the offset up to which the bytes are safe from the death of this
// process, or -1 when none are.
func (o *output) safe() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.safeLocked()
}

func (o *output) safeLocked() int64 {
	if o.spill.opened() {
		return o.total + o.gap
	}
	return -1
}

// store puts p into the file, which is made when memory alone will not do.
func (o *output) store(p []byte, stderr bool) {
	if !o.spill.opened() {
		if !o.split && o.total+int64(len(p)) <= int64(min(o.trunc.MaxBytes, spillFrom)) {
			return
		}
		o.spill.open(o.split)
		o.spill.write(o.head, false)
	}
	o.spill.write(p, stderr)
}

// take keeps what the result may show of p.
func (o *output) take(p []byte) {
	o.ends += int64(bytes.Count(p, []byte{'\n'}))
	o.nuls += int64(bytes.Count(p, []byte{0}))
	if len(p) > 0 {
		o.last = p[len(p)-1]
	}
	if room := o.holdHead() - len(o.head); room > 0 {
		o.head = append(o.head, p[:min(room, len(p))]...)
	}
	if o.direction == directionHead {
		return
	}
	if keep := o.trunc.MaxBytes; len(p) >= keep {
		o.tail = append(o.tail[:0], p[len(p)-keep:]...)
		return
	}
	o.tail = append(o.tail, p...)
	if keep := o.trunc.MaxBytes; len(o.tail) > 2*keep {
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-keep:]...)
	}
}

// holdHead is how many first bytes are held: what a result may show, and all of
// what may not be in the file yet.
func (o *output) holdHead() int { return o.trunc.MaxBytes }

// skipTo says that the bytes up to offset are gone: an earlier daemon had taken
// them, and kept no more than its caps allow. What is in the file stays; nothing
// is added behind the hole.
func (o *output) skipTo(offset int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if hole := offset - o.total - o.gap; hole > 0 {
		o.gap += hole
		o.spill.begun.Store(true)
		o.spill.stop("what came after was not kept when the daemon was restarted")
	}
}

func (o *output) offset() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total + o.gap
}

// available is the number of bytes that can be read so far.
func (o *output) available() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return max(o.spill.kept(), int64(len(o.head)))
}

func (o *output) wakeLocked() {
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
}

func (o *output) lines() int64 {
	if o.total > 0 && o.last != '\n' {
		return o.ends + 1
	}
	return o.ends
}

// finish ends the output. It returns what the result shows of it; a file is
// made now when the result does not show all, or not as it was.
func (o *output) finish() cut {
	o.mu.Lock()
	defer o.mu.Unlock()
	whole := int64(len(o.head)) == o.total && o.gap == 0
	c := shorten(o.head, o.tail, whole, o.total, o.lines(), o.direction, o.trunc.MaxLines, o.trunc.MaxBytes)
	if !o.spill.opened() && (c.truncated || !bytes.Equal([]byte(c.head), o.head)) {
		o.spill.open(false)
		o.spill.write(o.head, false)
	}
	o.spill.close()
	if o.split && o.spill.kept() == 0 {
		o.spill.remove()
	}
	o.closed = true
	o.wakeLocked()
	return c
}

// sum is the SHA-256 of the whole output as far as it is kept.
func (o *output) sum() (h [32]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.spill.sum != nil {
		o.spill.sum.Sum(h[:0])
		return h
	}
	return sha256.Sum256(o.head)
}

// letGo closes the file of an output that was not finished: another daemon goes
// on with it.
func (o *output) letGo() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spill.close()
}

// restore takes up an output that an earlier daemon began to put into a file.
func (o *output) restore() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	f, err := o.spill.reopen(o.split)
	if err != nil || f == nil {
		return err
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, 256<<10)
	for {
		n, err := f.Read(buf)
		o.total += int64(n)
		o.take(buf[:n])
		o.spill.hash(buf[:n])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read saved output: %w", err)
		}
	}
}

// read copies from offset into p. It waits for more while the output grows and
// follow is set, and returns io.EOF at its end.
func (o *output) read(ctx context.Context, f *os.File, p []byte, offset int64, follow bool) (int, error) {
	for {
		o.mu.Lock()
		n, err := o.copyLocked(f, p, offset)
		if n > 0 || err != nil || o.closed || !follow {
			o.mu.Unlock()
			if n == 0 && err == nil {
				err = io.EOF
			}
			return n, err
		}
		if err := o.waitUnlock(ctx); err != nil {
			return 0, err
		}
	}
}

// waitUnlock lets go of o.mu, which is held, and waits for the next change.
func (o *output) waitUnlock(ctx context.Context) error {
	if o.changed == nil {
		o.changed = make(chan struct{})
	}
	changed := o.changed
	o.mu.Unlock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// more waits until more than have bytes are in the file, or nothing more comes.
func (o *output) more(ctx context.Context, have int64) (bool, error) {
	for {
		o.mu.Lock()
		if o.spill.kept() > have || o.closed {
			o.mu.Unlock()
			return o.spill.kept() > have, nil
		}
		if err := o.waitUnlock(ctx); err != nil {
			return false, err
		}
	}
}

func (o *output) copyLocked(f *os.File, p []byte, offset int64) (int, error) {
	if offset < int64(len(o.head)) {
		return copy(p, o.head[offset:]), nil
	}
	if f == nil || offset >= o.spill.kept() {
		return 0, nil
	}
	n, err := f.ReadAt(p, offset)
	if n > 0 || errors.Is(err, io.EOF) {
		return n, nil
	}
	return 0, err
}

// outputReader serves Output for a call that is live.
type outputReader struct {
	ctx    context.Context //nolint:containedctx // an io.Reader has no other place for it
	o      *output
	f      *os.File // nil until there is one
	offset int64
	follow bool
}

// Read implements io.Reader.
func (r *outputReader) Read(p []byte) (int, error) {
	if r.f == nil {
		r.f = r.o.spill.reader()
	}
	n, err := r.o.read(r.ctx, r.f, p, r.offset, r.follow)
	r.offset += int64(n)
	return n, err
}

// Close implements io.Closer.
func (r *outputReader) Close() error {
	if r.f != nil {
		return r.f.Close()
	}
	return nil
}

// streamReader gives one of two streams out of a file that has both, by its
// index (see spill).
type streamReader struct {
	data, index *os.File
	stderr      bool
	skip        int64 // bytes of the stream that are not wanted
	at, end     int64 // the part of data that is being read
}

// Read implements io.Reader.
func (r *streamReader) Read(p []byte) (int, error) {
	for r.at >= r.end {
		if err := r.next(); err != nil {
			return 0, err
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

// next goes to the next part of the stream.
func (r *streamReader) next() error {
	var rec [8]byte
	if _, err := io.ReadFull(r.index, rec[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return io.EOF
		}
		return err
	}
	v := binary.BigEndian.Uint64(rec[:])
	start, end := r.end, int64(v&^indexStderr)
	r.at, r.end = end, end
	if v&indexStderr != 0 == r.stderr {
		drop := min(r.skip, end-start)
		r.skip -= drop
		r.at = start + drop
	}
	return nil
}

// Close implements io.Closer.
func (r *streamReader) Close() error { return errors.Join(r.data.Close(), r.index.Close()) }

// errNoStreams answers a request for one stream of a call that has one in all.
func errNoStreams(call string) *client.Error {
	return &client.Error{
		Code:    client.CodeInvalidRequest,
		Message: fmt.Sprintf("the output of call %s was not kept as two streams", call),
		Hint:    "ask for it without stream=, or make the call with streams=split",
	}
}
