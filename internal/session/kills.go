package session

// kills is what the kernel has counted against the session's tools.
type kills struct{ memory, pids int64 }

// Killed implements call.Place: it says whether the kernel counted anything since it was last asked.
func (s *Session) Killed() (memory, pids bool) {
	s.mu.Lock()
	sb := s.sb
	s.mu.Unlock()
	now := kills{memory: sb.OOMKills(), pids: sb.PIDsHits()}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.counted
	s.counted = kills{memory: max(now.memory, before.memory), pids: max(now.pids, before.pids)}
	return now.memory > before.memory, now.pids > before.pids
}
