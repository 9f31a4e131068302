package session

import (
	"context"
	"time"
)

// freeTmpTime bounds the emptying of the tmpfs directories.
const freeTmpTime = 10 * time.Second

// A kernel takes its time to give memory back: gVisor's up to half a second after
// its programs have ended. Only what stays longer is in files.
const (
	givesBack      = time.Second
	givesBackPause = 20 * time.Millisecond
)

// freeTmp empties the sandbox's tmpfs directories when the tools' memory stays
// at its limit although the call is over: files in memory cannot be killed, and
// the next call would die as it starts.
func (s *Session) FreeTmp() bool {
	ctx, cancel := context.WithTimeout(s.ctx, freeTmpTime)
	defer cancel()
	// Counted in looks: a host that stands still gives nothing back meanwhile.
	for range givesBack / givesBackPause {
		if !s.full(ctx) {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(givesBackPause):
		}
	}
	if !s.full(ctx) {
		return false
	}
	l, err := s.agent.Link()
	if err != nil {
		return false
	}
	if err := l.FreeTmp(ctx); err != nil {
		s.log.Warn("empty the tmpfs directories", "error", err)
		return false
	}
	return true
}

// full says whether the tools' memory is at its limit, or next to it.
func (s *Session) full(ctx context.Context) bool {
	limit := int64(s.limits.Memory)
	s.mu.Lock()
	sb := s.sb
	s.mu.Unlock()
	u, err := sb.Usage(ctx)
	return err == nil && limit > 0 && u.MemoryBytes >= limit-limit/8
}
