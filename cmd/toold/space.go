package main

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/audit/record"
	"github.com/toold/toold/internal/metrics"
	"github.com/toold/toold/internal/session/room"
)

const (
	// spaceFresh is how old the sizes of files may be. Outputs can be hundreds of
	// thousands of files, which are not all looked at for each scrape.
	spaceFresh = time.Minute
	// spaceWait is how long a scrape waits for such a look. One that takes longer is
	// there for the next scrape.
	spaceWait = time.Second
)

// space looks at how much room there is for the daemon's files, and how much they take.
type space struct {
	state, audit string // directory, and file of the audit log
	// images lists those that are among the daemon's files; nil is none.
	images func(context.Context) ([]client.Image, error)
	more   func(*metrics.Space) // adds what others know

	ctx     context.Context // ends with close
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	last    metrics.Space
	at      time.Time
	looking chan struct{} // closed when the look that is going on is over; nil without one
}

func newSpace(state, audit string, more func(*metrics.Space)) *space {
	s := &space{state: state, audit: audit, more: more}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// close waits for what is going on. Nobody may ask any more.
func (s *space) close() error {
	s.stop()
	s.running.Wait()
	return nil
}

// ask is how much room there is now.
func (s *space) ask() metrics.Space {
	now := s.sizes()
	s.more(&now)
	now.State, now.Audit, now.MinFree = diskOf(s.state), diskOf(filepath.Dir(s.audit)), minFree
	return now
}

// sizes are those of the files, as they were a minute ago at most, or at the last look
// when this one takes its time.
func (s *space) sizes() metrics.Space {
	if looking := s.look(); looking != nil {
		select {
		case <-looking:
		case <-time.After(spaceWait):
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// look begins to look at the files if it is time, and tells when that is over; nil is
// that nobody looks.
func (s *space) look() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looking == nil && time.Since(s.at) >= spaceFresh {
		s.looking = make(chan struct{})
		s.running.Go(func() {
			found := s.measure()
			s.mu.Lock()
			defer s.mu.Unlock()
			s.last, s.at = found, time.Now()
			close(s.looking)
			s.looking = nil
		})
	}
	return s.looking
}

// measure adds up the sizes of the files. What is removed meanwhile does not count.
func (s *space) measure() (found metrics.Space) {
	database := filepath.Join(s.state, "toold.db")
	found.Database = sizeOf(database) + sizeOf(database+"-wal") + sizeOf(database+"-shm")
	found.Journal = sizeOf(database + ".journal")
	files, _ := record.Files(s.audit)
	for _, f := range files {
		found.AuditLog += sizeOf(f)
	}
	outputs := filepath.Join(s.state, "output")
	sessions, _ := os.ReadDir(outputs)
	for _, e := range sessions {
		if s.ctx.Err() != nil {
			return found
		}
		files, _ := os.ReadDir(filepath.Join(outputs, e.Name()))
		for _, f := range files {
			if fi, err := f.Info(); err == nil {
				found.Outputs += fi.Size()
			}
		}
	}
	if s.images != nil {
		all, _ := s.images(s.ctx)
		for i := range all {
			found.Images += int64(all[i].Size)
		}
	}
	return found
}

// sizeOf is 0 for a file that is not there.
func sizeOf(file string) int64 {
	fi, err := os.Lstat(file)
	if err != nil {
		return 0
	}
	return fi.Size()
}

// diskOf is 0 for a directory that is not there.
func diskOf(dir string) metrics.Disk {
	v, _ := room.At(dir)
	return metrics.Disk{Free: v.Free, Size: v.Size}
}
