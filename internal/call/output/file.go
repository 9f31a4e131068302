package output

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
)

const (
	// indexSuffix names the file that says which parts of a split output are
	// from stderr: big-endian records of 8 bytes, each the end of a part, with
	// the top bit set for stderr.
	indexSuffix = ".streams"
	indexStderr = uint64(1) << 63

	// floorEvery is after how many bytes Room is asked again.
	floorEvery = 8 << 20
)

// file is that of one call's whole output. It never fails the call: what
// could not be kept is said in stopped. Its methods are called by one goroutine
// at a time, reader, opened and kept by any.
type file struct {
	Config

	sum         hash.Hash // of the bytes in the file
	data, index *os.File
	opened      atomic.Bool  // open was called
	kept        atomic.Int64 // bytes in the file
	checked     int64        // kept when Room was last asked
	parts       int64        // end of the last part in the index
	streams     [2]int64     // bytes of stdout and stderr when the index was reopened
	stopped     string       // why nothing more is kept; "" while it is
	refused     error        // of Room
}

// newFile are the flags of a file to make: its name is ours alone.
const newFile = os.O_WRONLY | os.O_CREATE | os.O_EXCL | unix.O_NOFOLLOW

// open makes the file.
func (s *file) open() {
	s.opened.Store(true)
	if s.full() {
		return
	}
	var err error
	if s.data, err = createFile(s.Path, newFile, s.mode()); err == nil && s.Split {
		s.index, err = createFile(s.Path+indexSuffix, newFile, s.mode())
	}
	if err != nil {
		s.stop("it could not be saved: " + plain.Cause(err))
	}
}

// mode is that of the file: tools in the sandbox can read it, unless it is private.
func (s *file) mode() os.FileMode {
	if s.Private {
		return 0o600
	}
	return 0o644
}

// createFile makes a file of this mode, whatever the daemon's umask is.
func createFile(path string, flags int, mode os.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, flags, mode)
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(mode); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// write appends p, as far as the caps allow. Bytes in the page cache are safe
// from the death of the process; nothing is synced.
func (s *file) write(p []byte, stderr bool) {
	if s.data == nil || s.stopped != "" || len(p) == 0 {
		return
	}
	if s.kept.Load()-s.checked >= floorEvery && s.full() {
		return
	}
	n := s.grant(int64(len(p)))
	w, err := s.data.Write(p[:n])
	s.hash(p[:w])
	s.kept.Add(int64(w))
	s.Used.Add(int64(w) - n)
	if err != nil {
		s.stop("the rest could not be saved: " + plain.Cause(err))
	}
	s.mark(stderr)
}

// hash takes bytes that are in the file into its sum.
func (s *file) hash(p []byte) {
	if s.sum == nil {
		s.sum = sha256.New()
	}
	_, _ = s.sum.Write(p) // a hash takes everything
}

// grant takes up to n bytes from the caps.
func (s *file) grant(n int64) int64 {
	if s.SpillFile > 0 && s.kept.Load()+n > s.SpillFile {
		n = max(0, s.SpillFile-s.kept.Load())
		s.stop(fmt.Sprintf("the rest was not kept: one output may have %s", client.Size(s.SpillFile)))
	}
	if over := s.Used.Add(n) - s.SpillSession; s.SpillSession > 0 && over > 0 {
		over = min(over, n)
		s.Used.Add(-over)
		n -= over
		s.stop(fmt.Sprintf("the rest was not kept: all outputs of a session may have %s", client.Size(s.SpillSession)))
	}
	return n
}

// mark adds to the index what was written.
func (s *file) mark(stderr bool) {
	end := s.kept.Load()
	if s.index == nil || end == s.parts {
		return
	}
	v := uint64(end)
	if stderr {
		v |= indexStderr
	}
	if _, err := s.index.Write(binary.BigEndian.AppendUint64(nil, v)); err != nil {
		s.stop("the rest could not be saved: " + plain.Cause(err))
		return
	}
	s.parts = end
}

// full reports whether the host has no room for more.
func (s *file) full() bool {
	s.checked = s.kept.Load()
	if s.Room != nil {
		s.refused = s.Room()
	}
	if s.refused != nil {
		s.stop("the rest was not kept: " + s.refused.Error())
	}
	return s.refused != nil
}

func (s *file) stop(why string) {
	if s.stopped == "" {
		s.stopped = why
	}
}

func (s *file) close() {
	for _, f := range []*os.File{s.data, s.index} {
		if f == nil {
			continue
		}
		if err := f.Close(); err != nil {
			s.stop("it could not be saved: " + plain.Cause(err))
		}
	}
	s.data, s.index = nil, nil
}

// remove takes away files that have nothing in them.
func (s *file) remove() { _, _ = os.Remove(s.Path+indexSuffix), os.Remove(s.Path) }

// reader opens the file for reading, nil when there is none.
func (s *file) reader() *os.File {
	if s.kept.Load() == 0 {
		return nil
	}
	f, err := openExisting(s.Path, os.O_RDONLY)
	if err != nil {
		return nil
	}
	return f
}

// openExisting opens a file that an earlier daemon made. A lock, a lease or a
// FIFO in its place is an error and nothing to wait for.
func openExisting(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", filepath.Base(path))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// reopen goes on with the file of an earlier daemon. It returns the file for
// reading what is there, nil when there is none.
func (s *file) reopen() (*os.File, error) {
	f, err := openExisting(s.Path, os.O_RDWR)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.opened.Store(true)
	s.data = f
	size, err := f.Seek(0, 2)
	if err == nil && s.Split {
		size, err = s.reopenIndex(size)
	}
	if err == nil {
		// Bytes past the last whole record of the index were not acknowledged:
		// the agent sends them again.
		err = f.Truncate(size)
	}
	if err == nil {
		_, err = f.Seek(size, 0)
	}
	if err != nil {
		return nil, err
	}
	s.kept.Store(size)
	s.checked = size
	return openExisting(s.Path, os.O_RDONLY)
}

// reopenIndex goes on with the index and says how much of the data it covers.
func (s *file) reopenIndex(size int64) (int64, error) {
	f, err := openExisting(s.Path+indexSuffix, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return 0, err
	}
	s.index = f
	end, err := f.Seek(0, 2)
	if err != nil {
		return 0, err
	}
	end -= end % 8
	covered, err := s.readIndex(io.NewSectionReader(f, 0, end))
	if err != nil {
		return 0, err
	}
	if covered > size {
		return 0, fmt.Errorf("index of %s covers %d bytes of %d", filepath.Base(s.Path), covered, size)
	}
	if err := f.Truncate(end); err != nil {
		return 0, err
	}
	_, err = f.Seek(end, 0)
	s.parts = covered
	return covered, err
}

// readIndex counts the bytes of each stream and gives the end of the last part.
func (s *file) readIndex(r io.Reader) (covered int64, err error) {
	b := bufio.NewReader(r)
	var rec [8]byte
	for {
		if _, err := io.ReadFull(b, rec[:]); errors.Is(err, io.EOF) {
			return covered, nil
		} else if err != nil {
			return 0, err
		}
		v := binary.BigEndian.Uint64(rec[:])
		end, stream := int64(v&^indexStderr), v>>63
		if end < covered {
			return 0, fmt.Errorf("index of %s goes back from %d to %d", filepath.Base(s.Path), covered, end)
		}
		s.streams[stream] += end - covered
		covered = end
	}
}

// Stopped is why no more of something is kept, for people.
type Stopped string

// Error implements error.
func (s Stopped) Error() string { return string(s) }

// ErrBroken says that a body could not be read to its end.
var ErrBroken = errors.New("the body broke off")

// Save puts all of body into a new file that tools can read, within the bounds of outputs.
// size is how much counts in c.Used, also where there is an error: Stopped where a bound
// or the disk was in the way, that of c.Room, ErrBroken, or why there is no file.
func Save(c Config, body io.Reader) (size int64, err error) {
	s := &file{Config: c}
	if s.full() {
		return 0, s.refused
	}
	if s.data, err = createFile(c.Path, newFile, s.mode()); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.data.Close()) }()
	buf := make([]byte, 256<<10)
	for {
		n, err := body.Read(buf)
		s.write(buf[:n], false)
		switch {
		case s.refused != nil:
			return s.kept.Load(), s.refused
		case s.stopped != "":
			return s.kept.Load(), Stopped(s.stopped)
		case errors.Is(err, io.EOF):
			return s.kept.Load(), nil
		case err != nil:
			return s.kept.Load(), ErrBroken
		}
	}
}
