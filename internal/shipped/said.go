package shipped

import (
	"strings"
	"sync"
)

// maxSaid is how much of what an agent says is kept, in bytes.
const maxSaid = 4 << 10

// said keeps the end of what is written to it.
type said struct {
	mu   sync.Mutex // guards text
	text []byte
}

// Write implements io.Writer.
func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, p...)
	if more := len(s.text) - maxSaid; more > 0 {
		s.text = append([]byte(nil), s.text[more:]...)
	}
	return len(p), nil
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.ToValidUTF8(string(s.text), "")
}
