// Package output keeps what one call prints. An Output holds as much of both ends in
// memory as a result may show, puts the whole into a file once it is too long for that,
// cuts what is shown, and lets readers follow it while it grows. OpenSaved and its
// siblings read the file of a call that is over.
//
// A whole output that cannot be kept never fails its call: Cut.Stopped says why. The
// package knows files and bytes, no sessions: New gets paths and bounds, and its errors
// are its own.
package output

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toold/toold/internal/plain"
)

const (
	// Unacked is how many bytes of one call's output its agent keeps until it is told
	// that they are safe.
	Unacked = 256 << 10
	// spillFrom bounds how many bytes of an output are held in memory alone.
	// It must stay well below Unacked, or the agent would wait for an
	// acknowledgement that never comes.
	spillFrom = Unacked / 2
)

// Limits are how long outputs are cut, and how much of them is kept (see [truncate] of
// the configuration).
type Limits struct {
	MaxLines     int
	MaxBytes     int
	Direction    string // Head, Tail or Both; "" and "auto" = the tool's own default
	SpillFile    int64  // bytes kept of one whole output; 0 = no bound
	SpillSession int64  // bytes kept of all outputs of one session; 0 = no bound
	Keep         time.Duration
}

// With is l with the lines, the bytes and the direction that own has.
func (l Limits) With(own Limits) Limits {
	l.MaxLines, l.MaxBytes = cmp.Or(own.MaxLines, l.MaxLines), cmp.Or(own.MaxBytes, l.MaxBytes)
	l.Direction = cmp.Or(own.Direction, l.Direction)
	return l
}

// Config is what an Output is made of.
type Config struct {
	Limits
	Path string        // of its file, absolute, in a directory of the session's
	Used *atomic.Int64 // bytes in files of the session: all its outputs count there
	// Room may be nil. It is asked before there is a file, and then every few MiB; its error is why
	// no more is kept.
	Room  func() error
	Split bool // stdout and stderr are kept apart
	// Screen: a program prints it, and the result shows it as a terminal would in the end. The file has
	// it as it was printed.
	Screen bool
	// Private: the sandbox, which has the directory, cannot read the file.
	Private bool
}

// Output takes the output of one call. Its memory is bounded by MaxBytes, whatever the
// length. One goroutine writes it; any may read.
type Output struct {
	file file

	mu      sync.Mutex // guards the fields below
	head    []byte     // the first bytes, up to MaxBytes: all of what may not be in the file yet
	shown   view       // what the result may show
	screen  plain.Screen
	total   int64 // bytes that arrived
	ends    int64 // line ends that arrived
	nuls    int64 // NUL bytes that arrived
	last    byte  // the last byte that arrived
	gap     int64 // bytes that are known to have been, but were not seen
	closed  bool
	changed chan struct{} // closed when something arrives, made by who waits
}

// New makes an Output. It touches no file.
func New(c Config) *Output { return &Output{file: file{Config: c}} }

// Begin comes before a call with two streams runs. It makes the files of its output: by them a daemon that takes the call up knows that it has two, also
// where nothing was printed before.
func (o *Output) Begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.file.opened.Load() {
		o.file.open()
	}
}

// Write takes the next bytes. It returns what Safe does.
func (o *Output) Write(p []byte, stderr bool) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.file.opened.Load() && (o.file.Split || o.total+int64(len(p)) > int64(min(o.file.MaxBytes, spillFrom))) {
		// Memory alone will not do.
		o.file.open()
		o.file.write(o.head, false)
	}
	if o.file.opened.Load() {
		o.file.write(p, stderr)
	}
	o.total += int64(len(p))
	o.take(p)
	o.wakeLocked()
	if !o.file.opened.Load() {
		return -1
	}
	return o.total + o.gap
}

// Safe is the offset up to which the bytes are safe from the death of this
// process, or -1 when none are.
func (o *Output) Safe() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file.opened.Load() {
		return o.total + o.gap
	}
	return -1
}

// take keeps what the result may show of p.
func (o *Output) take(p []byte) {
	o.ends += int64(bytes.Count(p, []byte{'\n'}))
	o.nuls += int64(bytes.Count(p, []byte{0}))
	if len(p) > 0 {
		o.last = p[len(p)-1]
	}
	if room := o.file.MaxBytes - len(o.head); room > 0 {
		o.head = append(o.head, p[:min(room, len(p))]...)
	}
	if o.file.Screen {
		p = o.screen.Write(p)
	}
	o.shown.take(p, &o.file.Limits)
}

// SkipTo says that the bytes up to offset are gone: an earlier daemon had taken
// them, and kept no more than its caps allow. What is in the file stays; nothing
// is added behind the hole.
func (o *Output) SkipTo(offset int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if hole := offset - o.total - o.gap; hole > 0 {
		o.gap += hole
		o.file.opened.Store(true)
		o.file.stop("what came after was not kept when the daemon was restarted")
	}
}

// Offset is how many bytes there have been so far.
func (o *Output) Offset() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total + o.gap
}

// Streams are the bytes of stdout and of stderr that Restore found.
func (o *Output) Streams() [2]int64 { return o.file.streams }

// Kept is how many bytes are in the file.
func (o *Output) Kept() int64 { return o.file.kept.Load() }

// Available is the number of bytes that can be read so far.
func (o *Output) Available() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return max(o.file.kept.Load(), int64(len(o.head)))
}

func (o *Output) wakeLocked() {
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
}

// Finish ends the output. It returns what the result shows of it; a file is
// made now when the result does not show all, or not as it was.
func (o *Output) Finish() Cut {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := o.ends
	if o.total > 0 && o.last != '\n' {
		lines++
	}
	if o.file.Screen {
		o.shown.take(o.screen.Rest(), &o.file.Limits)
	}
	c := shorten(&o.shown, o.gap, o.shown.lines(o.ends), &o.file.Limits)
	if !o.file.opened.Load() && (c.Truncated || !bytes.Equal([]byte(c.Head), o.head)) {
		o.file.open()
		o.file.write(o.head, false)
	}
	o.file.close()
	if o.file.Split && o.file.kept.Load() == 0 {
		o.file.remove()
	}
	o.closed = true
	o.wakeLocked()
	c.TotalLines, c.NULs, c.Stopped = lines, o.nuls, o.file.stopped
	c.Redraws, c.Controls = o.screen.Redraws, o.screen.Controls
	return c
}

// Sum is the SHA-256 of the whole output as far as it is kept.
func (o *Output) Sum() (h [32]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file.sum != nil {
		o.file.sum.Sum(h[:0])
		return h
	}
	return sha256.Sum256(o.head)
}

// Release closes the file of an output that was not finished: another daemon goes
// on with it. It may come at any time, and more than once.
func (o *Output) Release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.file.close()
}

// Restore takes up an output that an earlier daemon began to put into a file.
func (o *Output) Restore() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	f, err := o.file.reopen()
	if err != nil || f == nil {
		return err
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, 256<<10)
	for {
		n, err := f.Read(buf)
		o.total += int64(n)
		o.take(buf[:n])
		o.file.hash(buf[:n])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read saved output: %w", err)
		}
	}
}

// waitUnlock unlocks o.mu, which is held, and waits for the next change.
func (o *Output) waitUnlock(ctx context.Context) error {
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
func (o *Output) more(ctx context.Context, have int64) (bool, error) {
	for {
		o.mu.Lock()
		if o.file.kept.Load() > have || o.closed {
			o.mu.Unlock()
			return o.file.kept.Load() > have, nil
		}
		if err := o.waitUnlock(ctx); err != nil {
			return false, err
		}
	}
}

// read copies from offset into p. It waits for more while the output grows and
// follow is set, and returns io.EOF at its end.
func (o *Output) read(ctx context.Context, f *os.File, p []byte, offset int64, follow bool) (int, error) {
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

func (o *Output) copyLocked(f *os.File, p []byte, offset int64) (int, error) {
	if offset < int64(len(o.head)) {
		return copy(p, o.head[offset:]), nil
	}
	if f == nil || offset >= o.file.kept.Load() {
		return 0, nil
	}
	n, err := f.ReadAt(p, offset)
	if n > 0 || errors.Is(err, io.EOF) {
		return n, nil
	}
	return 0, err
}
