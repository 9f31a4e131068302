package trees

import (
	"crypto/sha256"
	"sync"
)

// maxSeen bounds the paths of a session that are looked at, and maxNamed the bytes of those paths
// together. What is beyond them has no base.
const (
	maxSeen  = 20_000
	maxNamed = 8 << 20
)

// maxAllSeen bounds what is known of what all sessions have written, in bytes, as far as size can
// tell: a session may have 20,000 paths of 400 bytes, and there may be a thousand sessions.
const maxAllSeen = 64 << 20

// seen is what is known of the files that a session has written. It is not stored: to look
// once more does no harm. Who has the tree of the session has it too.
type seen struct {
	since int64
	upper string
	inode uint64               // free ones of the layer's disk at the last look
	paths map[pathKey]struct{} // nil: nothing is known
	dirs  map[pathKey]*seenDir // of the upper layer; paths has them all but its top
	named int64                // bytes of paths
	kept  int64
	// failed: the last look could not keep all.
	failed bool
}

// seenDir is a directory of a layer as it was listed.
type seenDir struct {
	ctime int64    // ns; 0 when it must be listed again
	below []string // directories in it
}

// pathKey stands for a path: the paths themselves, of up to 4 KiB each, would take fifty times as much.
type pathKey [16]byte

func keyOf(path string) pathKey {
	sum := sha256.Sum256([]byte(path))
	return pathKey(sum[:])
}

// full reports whether no more paths are looked at.
func (k *seen) full() bool { return len(k.paths) >= maxSeen || k.named >= maxNamed }

// add says that a path has been looked at.
func (k *seen) add(key pathKey, path string) {
	if _, known := k.paths[key]; !known {
		k.paths[key] = struct{}{}
		k.named += int64(len(path))
	}
}

// size is about how many bytes k takes.
func (k *seen) size() (n int64) {
	const each, dir, name = 48, 128, 32 // with what maps and the heap add
	n = int64(len(k.paths))*each + int64(len(k.dirs))*dir
	for _, d := range k.dirs {
		for _, below := range d.below {
			n += int64(len(below)) + name
		}
	}
	return n
}

// stub is what stays of k where what it knows is forgotten: the next look finds all once more.
func (k *seen) stub() *seen { return &seen{since: k.since, kept: k.kept, failed: k.failed} }

// seens is what is known of what sessions have written. Of the session that has the most it is
// forgotten first, so that none makes the looks at others slow.
type seens struct {
	mu  sync.Mutex // guards the fields below
	all map[string]*seenEntry
	sum int64
}

type seenEntry struct {
	*seen
	stub *seen // what is left when it is forgotten: who looks has seen
	size int64
}

// of gives what is known of a session, to who has its tree.
func (s *seens) of(session string) *seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[string]*seenEntry)
	}
	e := s.all[session]
	if e == nil {
		e = &seenEntry{seen: &seen{}, stub: &seen{}}
		s.all[session] = e
	}
	return e.seen
}

// looked keeps what a look has found, as far as there is room.
func (s *seens) looked(session string, k *seen) {
	size, stub := k.size(), k.stub()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[session]
	if e == nil {
		return // the session is over
	}
	s.sum += size - e.size
	e.seen, e.stub, e.size = k, stub, size
	for s.sum > maxAllSeen {
		most := e
		for _, o := range s.all {
			if o.size > most.size {
				most = o
			}
		}
		s.forgetLocked(most)
	}
}

func (s *seens) forgetLocked(e *seenEntry) {
	s.sum -= e.size
	e.seen, e.size = e.stub, 0
}

// over forgets what is known of a session that is over, but for how much was kept for it: it may be
// looked at again, and then goes once more.
func (s *seens) over(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[session]
	if e == nil {
		return
	}
	if s.forgetLocked(e); e.stub.kept == 0 {
		delete(s.all, session)
	}
}

// drop is for a session that has no tree any more.
func (s *seens) drop(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.all[session]; e != nil {
		s.forgetLocked(e)
		delete(s.all, session)
	}
}
