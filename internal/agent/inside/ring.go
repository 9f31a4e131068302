package inside

import (
	"sync"

	"github.com/toold/toold/internal/agent/inside/exec"
	"github.com/toold/toold/internal/wire"
)

const (
	ringFirst = 8 << 10
	// markCost is what a change between stdout and stderr counts for, so that
	// alternating single bytes cannot take more memory than was allowed.
	markCost = 16
)

// ring keeps the output of one call from the first byte that is not
// acknowledged to the last that was written, at most max bytes. Writers wait
// when it is full. There is one writer at a time, and one reader.
type ring struct {
	cond *sync.Cond // on the call's mutex, which guards all fields

	max   int64
	buf   []byte // the byte at offset o stands at o % len(buf)
	base  int64  // first offset kept
	end   int64  // offset after the last
	marks []mark // where the stream changes, oldest first; offset ≥ base but for the first
	ended bool   // nothing is written any more
}

type mark struct {
	offset int64
	stderr bool
}

// space is how many bytes may be written now.
func (r *ring) space() int64 {
	return r.max - (r.end - r.base) - int64(len(r.marks))*markCost
}

// room waits until something can be written and gives the place for it, which
// stays the writer's until commit. gaveUp is asked while waiting.
func (r *ring) room(gaveUp func() error) ([]byte, error) {
	for {
		if r.ended {
			return nil, exec.ErrEnded
		}
		if err := gaveUp(); err != nil {
			return nil, err
		}
		if r.space() > 0 {
			break
		}
		r.cond.Wait()
	}
	if free := int64(len(r.buf)) - (r.end - r.base); free < int64(len(r.buf))/4 || len(r.buf) == 0 {
		r.grow()
	}
	n := int64(len(r.buf))
	at := r.end % n
	most := min(n-at, n-(r.end-r.base), r.space())
	return r.buf[at : at+most], nil
}

// grow makes the buffer four times as large, as far as max allows.
func (r *ring) grow() {
	n := min(max(int64(len(r.buf))*4, ringFirst), r.max)
	if n <= int64(len(r.buf)) {
		return
	}
	b := make([]byte, n)
	for o := r.base; o < r.end; {
		from := r.buf[o%int64(len(r.buf)):]
		from = from[:min(int64(len(from)), r.end-o)]
		o += int64(copy(b[o%n:], from))
	}
	r.buf = b
}

// commit says that n bytes were written into the place that room gave.
func (r *ring) commit(n int, stderr bool) {
	if n == 0 {
		return
	}
	last := len(r.marks) - 1
	if last < 0 && stderr || last >= 0 && r.marks[last].stderr != stderr {
		r.marks = append(r.marks, mark{offset: r.end, stderr: stderr})
	}
	r.end += int64(n)
	r.cond.Broadcast()
}

// next gives bytes of one stream from offset on, at most MaxChunk and none at or
// after limit. They stay as they are until they are acknowledged.
func (r *ring) next(offset, limit int64) (p []byte, stderr bool) {
	limit = min(limit, r.end, offset+wire.MaxChunk)
	for _, m := range r.marks {
		if m.offset > offset {
			limit = min(limit, m.offset)
			break
		}
		stderr = m.stderr
	}
	if offset >= limit {
		return nil, stderr
	}
	n := int64(len(r.buf))
	at := offset % n
	return r.buf[at:min(n, at+limit-offset)], stderr
}

// ack drops everything below offset.
func (r *ring) ack(offset int64) {
	if offset <= r.base {
		return
	}
	r.base = min(offset, r.end)
	// The last change at or before base stays: it says which stream base is of.
	i := 0
	for i+1 < len(r.marks) && r.marks[i+1].offset <= r.base {
		i++
	}
	r.marks = r.marks[i:]
	r.cond.Broadcast()
}
