package budget

import "context"

// inputCopies is how many times the bytes of a large request are in memory at the worst:
// as they came, in the buffer that grows for them, decoded, and as the call's canonical input.
const inputCopies = 4

// Sizes are the bytes for large results and for large requests, where a daemon may have
// limit bytes of memory in all. What it needs without either is below 40 MiB.
func Sizes(limit int64) (results, requests int64) {
	return max(min(limit*3/10, Total), 1<<20), max(min(limit/4, 4*Total), 1<<20)
}

// Request waits for room for a request of so many bytes, until ctx ends, whose cause is the
// error. release gives it back.
func (m *Memory) Request(ctx context.Context, bytes int64) (release func(), err error) {
	weight := m.WeighRequest(bytes)
	if m.room.Acquire(ctx, weight) != nil {
		return nil, context.Cause(ctx)
	}
	return func() { m.Give(weight) }, nil
}

// WeighRequest is what a request of n bytes counts.
func (m *Memory) WeighRequest(n int64) int64 { return min(n*inputCopies, m.total) }

// Share is how much of the budget one user may have.
func (m *Memory) Share() int64 { return m.total / 2 }
