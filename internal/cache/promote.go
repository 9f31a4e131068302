package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/sandbox/mount"
)

// ErrShared: a shared cache has no layers that could be promoted.
var ErrShared = errors.New("it is shared: what a session writes is there for all at once")

// ErrFull: what is to become a base is more than the cache may have.
var ErrFull = errors.New("it is full")

// Promote makes what a live session sees of a cache what later ones begin with. No process
// of the tools may write meanwhile.
func (s *Store) Promote(ctx context.Context, session, name string) (*client.Cache, error) {
	var h having
	if err := read(s.sessionFile(session), &h); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(h.Uses, func(u Use) bool { return u.Name == name && !u.Mount })
	if i < 0 {
		return nil, fmt.Errorf("cache %q of session %s: %w", name, session, ErrNone)
	}
	u := &h.Uses[i]
	if u.Mode == client.CacheShared {
		return nil, ErrShared
	}
	least := s.bytes(u.Disk) // and what a directory of the host has, if there is one
	if u.Base != "" {
		least += s.bytes(u.Base)
	}
	ctx, done, err := s.Writes(ctx, least)
	if err != nil {
		return nil, err
	}
	defer done()
	b, err := s.promote(ctx, session, h.Tenant, u)
	if err != nil {
		return nil, err
	}
	s.step("done")
	return s.shown(h.Tenant, name, b), nil
}

// promote fills a disk, and makes it the base.
func (s *Store) promote(ctx context.Context, session, tenant string, u *Use) (b *Base, err error) {
	disk, release, err := s.newDisk(u.Size)
	if err != nil {
		return nil, err
	}
	defer func() {
		release()
		err = errors.Join(err, s.clean())
	}()
	s.step("disk")
	b = &Base{Mode: u.Mode, Disk: disk, Session: session}
	err = s.fill(ctx, b, u)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if errors.Is(err, unix.ENOSPC) && u.Size > 0 {
		err = fmt.Errorf("%w: %w", ErrFull, err)
	}
	if err != nil {
		return nil, err
	}
	s.step("filled")
	b.Made = now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.write(s.baseFile(tenant, u.Name), b); err != nil {
		return nil, err
	}
	s.step("replaced")
	return b, nil
}

// fill copies what a session sees of a cache to the disk of a base.
func (s *Store) fill(ctx context.Context, b *Base, u *Use) error {
	root, err := s.open(b.Disk)
	if err != nil {
		return err
	}
	defer root.Close()
	kept := *u
	kept.Dirs = slices.DeleteFunc(slices.Clone(u.Dirs), func(d Dir) bool { return d.Scratch })
	if err := s.makeDirs(b.Disk, &kept); err != nil {
		return err
	}
	s.step("empty")
	var c copier
	for i := range kept.Dirs {
		d := &kept.Dirs[i]
		if err := s.fillDir(ctx, &c, root, u, d); err != nil {
			return fmt.Errorf("copy %s: %w", filepath.Join(u.Name, d.Name), err)
		}
		s.step("copied")
	}
	b.Files, b.Skipped = c.files, c.skipped
	return beneath.Sync(int(root.Fd()))
}

func (s *Store) fillDir(ctx context.Context, c *copier, root *os.File, u *Use, d *Dir) error {
	view, err := s.view(ctx, u, d)
	if err != nil {
		return err
	}
	defer view.Close()
	from, err := beneath.OpenFile(view, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	at, err := beneath.OpenFile(root, filepath.Join(d.Name, "root"), asDir, 0)
	if err != nil {
		return err
	}
	defer at.Close()
	c.ctx = ctx
	return c.tree(from, at, 0)
}

// view mounts, nowhere, what a session sees of a directory, read-only.
func (s *Store) view(ctx context.Context, u *Use, d *Dir) (*os.File, error) {
	o := &Opened{}
	defer o.Close()
	lower := []func() (*os.File, error){func() (*os.File, error) { return s.rootOf(u.Disk, d, o) }}
	if u.Base != "" {
		lower = append(lower, func() (*os.File, error) { return s.rootOf(u.Base, d, o) })
	}
	lower = append(lower, func() (*os.File, error) {
		if d.From != nil {
			return o.keep(d.From.Open(ctx))
		}
		return o.keep(os.OpenFile(s.at("empty"), asDir, 0))
	})
	var mounts []*os.File
	for _, open := range lower {
		f, err := open()
		if err == nil {
			f, err = o.keep(mount.Detach(f, unix.MOUNT_ATTR_RDONLY, nil))
		}
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, f)
	}
	return mount.Overlay(s.at("empty"), mounts, nil, mount.RenamesLight)
}

// rootOf opens the directory of a layer that has what was written.
func (s *Store) rootOf(disk string, d *Dir, o *Opened) (*os.File, error) {
	root, err := o.keep(s.open(disk))
	if err != nil {
		return nil, err
	}
	return o.keep(beneath.OpenFile(root, filepath.Join(d.Name, "root"), asDir, 0))
}
