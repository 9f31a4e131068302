package run

import "sync"

// Seen remembers which content of which file the model was shown in this
// session. It is bounded: past seenMax paths the oldest are forgotten, which at
// worst makes edit ask for another read.
type Seen struct {
	mu    sync.Mutex // guards the fields below
	hash  map[string]string
	order []string
}

const seenMax = 10000

// Note records that path was shown with content of this SHA-256 (hex).
func (s *Seen) Note(path, sha256 string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hash == nil {
		s.hash = make(map[string]string)
	}
	if _, ok := s.hash[path]; !ok {
		if len(s.order) >= seenMax {
			delete(s.hash, s.order[0])
			s.order = s.order[1:]
		}
		s.order = append(s.order, path)
	}
	s.hash[path] = sha256
}

// Is reports whether path was last shown with exactly this content.
func (s *Seen) Is(path, sha256 string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.hash[path]
	return ok && h == sha256
}
