package call

import (
	"sync/atomic"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/plain"
)

// spending is what the calls of a session may use in all, and have used.
type spending struct {
	most    int64                     // calls of tools; 0 = any
	left    func() *client.BudgetLeft // nil where there is no budget
	claimed atomic.Int64              // calls that were let in
	printed atomic.Int64              // bytes of those that have ended
}

// claim counts a call, if the budget has one left.
func (s *spending) claim() error {
	if n := s.claimed.Add(1); s.most > 0 && n > s.most {
		s.claimed.Add(-1)
		return fault.Quota.Errorf("the session has made the %s that its budget has; it ends", plain.Count(s.most, "call", "calls")).
			Next("make another session, with a larger budget if you may (--budget calls=N)")
	}
	return nil
}
