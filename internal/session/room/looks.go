package room

import (
	"sync"
	"time"
)

// Looks looks at file systems each of which may hang, so that those who wait for one do not wait
// for others. A look cannot be taken back: it has a thread until its file system answers, and
// nothing waits for it; there is one for each path. Its zero value is ready.
type Looks struct {
	mu   sync.Mutex // guards the fields below
	out  map[string]time.Time
	back map[string]Volume // what has come back since All gave it last
}

// All gives those of the paths that have answered within patience, or since the last All. What
// answers later the next All gives.
func (l *Looks) All(paths []string, patience time.Duration) map[string]Volume {
	l.mu.Lock()
	answered, begun := make(chan struct{}, len(paths)), 0
	if l.out == nil {
		l.out, l.back = map[string]time.Time{}, map[string]Volume{}
	}
	for _, p := range paths {
		if _, waits := l.out[p]; waits {
			continue
		}
		l.out[p] = time.Now()
		begun++
		go func() {
			v, err := At(p)
			l.mu.Lock()
			delete(l.out, p)
			if err == nil {
				l.back[p] = v
			}
			l.mu.Unlock()
			answered <- struct{}{}
		}()
	}
	l.mu.Unlock()
	late := time.NewTimer(patience)
	defer late.Stop()
	for waiting := begun; waiting > 0; waiting-- {
		select {
		case <-answered:
		case <-late.C:
			waiting = 1
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.back
	l.back = map[string]Volume{}
	return seen
}

// Silent reports whether a path has not answered for so long.
func (l *Looks) Silent(path string, long time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	since, waits := l.out[path]
	return waits && time.Since(since) >= long
}
