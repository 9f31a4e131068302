package mount

import (
	"math"
	"math/rand/v2"
	"testing"
)

// What is taken and what is not are all ids together, and no id is in both.
func TestExcept(t *testing.T) {
	for range 2000 {
		var taken []Range
		for range rand.IntN(6) {
			taken = append(taken, Range{FS: id(), Host: id(), Size: 1 + rand.Uint32N(70000)})
		}
		free := except(taken)
		in := func(n uint64, start, size uint32) bool { return uint64(start) <= n && n < uint64(start)+uint64(size) }
		edges := []uint64{0, math.MaxUint32 - 1, uint64(id())}
		for _, r := range append(free, taken...) {
			for _, start := range []uint32{r.FS, r.Host} {
				edges = append(edges, uint64(start)-min(uint64(start), 1), uint64(start), uint64(start)+uint64(r.Size)-1, uint64(start)+uint64(r.Size))
			}
		}
		for _, n := range edges {
			if n >= math.MaxUint32 {
				continue
			}
			times := 0
			for _, r := range free {
				if r.FS != r.Host || r.Size == 0 {
					t.Fatalf("%v: range %v", taken, r)
				}
				if in(n, r.FS, r.Size) {
					times++
				}
			}
			for _, r := range taken {
				if in(n, r.FS, r.Size) || in(n, r.Host, r.Size) {
					times++
					break
				}
			}
			if times != 1 {
				t.Fatalf("%d is %d times in %v, which is all but %v", n, times, free, taken)
			}
		}
	}
}

// id is near a bound or near others, mostly.
func id() uint32 {
	switch rand.IntN(4) {
	case 0:
		return rand.Uint32N(3)
	case 1:
		return 65534 + rand.Uint32N(4)
	case 2:
		return math.MaxUint32 - 1 - rand.Uint32N(70000)
	}
	return rand.Uint32()
}
