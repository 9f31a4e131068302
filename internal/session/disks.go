package session

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/cache"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/sandbox"
)

// disks is the part of a session that settles whether its home directory lies on a disk of
// limits.disk. It makes none: the sandbox gets it when a call first needs it.
type disks struct {
	nothing
	roster *roster
}

var errNoDisks = errors.New("the driver keeps home directories in memory")

// disksOf says why a driver has no disks, nil where it has.
func disksOf(d sandbox.Driver) error {
	if d, ok := d.(sandbox.Disks); ok {
		return d.Disks()
	}
	return errNoDisks
}

// claim comes after the parts that have something else on a disk of that size.
func (d disks) claim(_ context.Context, pl *plan) error {
	why := disksOf(pl.driver)
	switch asked := pl.req.Limits.Disk; {
	case why == nil && pl.disk > 0:
		pl.req.Limits.Disk, pl.homeDisk = pl.disk, true
	case asked > 0 && pl.req.Image == "" && pl.req.Worktree.Mode != client.WorktreeOverlay && !slices.ContainsFunc(pl.caches.uses, func(u cache.Use) bool { return u.Mount }):
		next := "leave it out, or ask for an image, the mode overlay or a mount of mode cow"
		if !errors.Is(why, errNoDisks) { // of these an image alone has its bound in memory
			next = "leave it out, or ask for an image; toolctl doctor says what is missing"
		}
		return fault.In(fault.Invalid.Errorf("limits.disk %s: this session would write to memory and to its worktree only, and that is a directory of the host, which has no bound (%w)", asked, why).
			Next(next), "limits", "disk")
	case why != nil && !errors.Is(why, errNoDisks):
		pl.notes = append(pl.notes, fmt.Sprintf("this host has no disks for sessions (%v): the home directory and /tmp are in memory", why))
	}
	pl.promised = d.sizes(pl)
	if pl.seed.Internal {
		return nil // it looks at what others have, and may give room back
	}
	if err := d.roster.memory.accepts(pl.set); err != nil {
		return err
	}
	var err error
	pl.kept, err = d.roster.disk.accepts(pl.set, pl.promised, nil)
	return err
}

func (disks) sizes(pl *plan) (p promise) {
	if pl.homeDisk {
		p.home = homeDisk(&pl.req.Limits)
	}
	if pl.changes > 0 && pl.seed.Disk == "" {
		p.rest += pl.changes
	}
	if pl.image != nil && pl.image.Root != nil {
		p.rest += pl.disk
	}
	for _, u := range pl.caches.uses {
		if u.Mode == client.CacheCow {
			p.rest += u.Size
		}
	}
	return p
}

// homeDisk is how large the disk of a home directory is.
func homeDisk(l *client.Limits) client.Size {
	if l.Memory > 0 && l.Tmp > l.Memory/8 { // /tmp is on it too
		return l.Disk + l.Tmp
	}
	return l.Disk
}

// open leaves to the driver what it has disks for.
func (d disks) open(_ context.Context, s *Session, pl *plan) error {
	s.promised.Store(int64(pl.promised.home))
	if !pl.homeDisk && pl.spec.Root == nil {
		pl.spec.Limits.Disk = 0
	}
	return nil
}

// diskFails is why a session may only read: a disk that it writes to has lost something of it. nil where
// none has.
func diskFails(s *Session) error {
	cfg := &s.daemon.cfg
	failed := s.daemon.disk.failed(s.id, func() []string {
		all := cfg.Caches.SessionDisks(s.id)
		if t, err := cfg.Trees.Get(s.id); err == nil && t.Disk != "" {
			all = append(all, t.Disk)
		}
		return all
	})
	if failed {
		return errDiskFailed
	}
	return nil
}

const diskNote = ": calls may only read, and diff shows what is left; end it, and go on from its changes in mode overlay with toolctl fork"

var errDiskFailed = errors.New("its disk has failed, mostly because the host's was full, and what was written last may be lost")

// furnish mounts the disks of a session, before a call that may write to them.
func (s *Session) furnish() error {
	s.mu.Lock()
	late, ok := s.sb.(sandbox.Late)
	s.mu.Unlock()
	if !ok {
		return nil
	}
	n := s.promised.Swap(0)
	kept := s.daemon.disk.promise(client.Size(n))
	err := late.Furnish()
	kept()
	if err == nil {
		return nil
	}
	s.promised.Add(n)
	if errors.Is(err, sandbox.ErrGone) {
		return err
	}
	return fault.Sandbox.Errorf("the disk of the home directory could not be mounted: %w", err).
		Next("free space on the host, or end sessions; toolctl doctor shows what is wrong")
}
