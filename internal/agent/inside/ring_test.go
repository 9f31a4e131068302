package inside

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/toold/toold/internal/agent/inside/exec"
)

// The ring against a plain slice: whatever is written, acknowledged and read.
func TestRing(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var mu sync.Mutex
		mu.Lock()
		r := ring{cond: sync.NewCond(&mu), max: int64(1 + rnd.IntN(40000))}
		var all []byte
		var streams []bool
		read := int64(0)
		for range 400 {
			switch rnd.IntN(3) {
			case 0:
				if r.space() <= 0 {
					continue
				}
				place, err := r.room(func() error { return nil })
				if err != nil || len(place) == 0 || int64(len(place)) > r.space() {
					t.Fatalf("seed %d: room %d of %d, %v", seed, len(place), r.space(), err)
				}
				stderr := rnd.IntN(4) == 0
				n := 1 + rnd.IntN(len(place))
				for i := range n {
					place[i] = byte(rnd.Uint32())
					streams = append(streams, stderr)
				}
				all = append(all, place[:n]...)
				r.commit(n, stderr)
			case 1:
				for {
					p, stderr := r.next(read, read+int64(rnd.IntN(5000)))
					if len(p) == 0 {
						break
					}
					if !bytes.Equal(p, all[read:read+int64(len(p))]) {
						t.Fatalf("seed %d: wrong bytes at %d", seed, read)
					}
					for i := range p {
						if streams[read+int64(i)] != stderr {
							t.Fatalf("seed %d: byte %d is of the other stream", seed, read+int64(i))
						}
					}
					read += int64(len(p))
				}
			case 2:
				r.ack(r.base + rnd.Int64N(read-min(r.base, read)+1))
				// A reader that begins again at the base gets the same.
				if p, stderr := r.next(r.base, r.end); len(p) > 0 && (!bytes.Equal(p, all[r.base:r.base+int64(len(p))]) || stderr != streams[r.base]) {
					t.Fatalf("seed %d: wrong at the base", seed)
				}
			}
			if r.base == r.end && len(r.marks) > 1 {
				t.Fatalf("seed %d: %d marks for nothing", seed, len(r.marks))
			}
			if int64(len(r.buf)) > max(r.max, 0) || int64(len(r.marks))*markCost > r.max+2*markCost {
				t.Fatalf("seed %d: %d bytes and %d marks for %d", seed, len(r.buf), len(r.marks), r.max)
			}
		}
		mu.Unlock()
	}
}

func TestRingWaits(t *testing.T) {
	var mu sync.Mutex
	mu.Lock()
	defer mu.Unlock()
	r := ring{cond: sync.NewCond(&mu), max: 4}
	p, _ := r.room(func() error { return nil })
	r.commit(len(p), false)
	stop := errors.New("stop")
	if _, err := r.room(func() error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	go func() { mu.Lock(); r.ack(2); mu.Unlock() }()
	if p, err := r.room(func() error { return nil }); err != nil || len(p) != 2 {
		t.Errorf("%d bytes, %v", len(p), err)
	}
	r.ended = true
	if _, err := r.room(func() error { return nil }); !errors.Is(err, exec.ErrEnded) {
		t.Errorf("got %v", err)
	}
}
