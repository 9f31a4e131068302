package run

import (
	"slices"
	"sync"
)

// Seen remembers which contents of which file the model was shown in this session,
// or has made: the last few of each file, since calls that read and change it at the
// same time may note theirs in another order. It is bounded: past seenMax paths the
// oldest are forgotten, which at worst makes edit ask for another read.
type Seen struct {
	mu    sync.Mutex // guards the fields below
	hash  map[string][]string
	order []string
}

const (
	seenMax   = 10000
	seenTimes = 4
)

// Note records that path was shown with content of this SHA-256 (hex).
func (s *Seen) Note(path, sha256 string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hash == nil {
		s.hash = make(map[string][]string)
	}
	last, ok := s.hash[path]
	if !ok {
		if len(s.order) >= seenMax {
			delete(s.hash, s.order[0])
			s.order = s.order[1:]
		}
		s.order = append(s.order, path)
	}
	if i := slices.Index(last, sha256); i >= 0 {
		last = slices.Delete(last, i, i+1)
	}
	last = append(last, sha256)
	s.hash[path] = last[max(0, len(last)-seenTimes):]
}

// Is reports whether path was lately shown with exactly this content.
func (s *Seen) Is(path, sha256 string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.hash[path], sha256)
}
