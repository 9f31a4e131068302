package cache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
)

// List gives the caches of a tenant by their names, "" those of all tenants.
func (s *Store) List(tenant string) ([]client.Cache, error) {
	if tenant == "" {
		tenant = "*"
	}
	files, err := filepath.Glob(s.baseFile(tenant, "*"))
	if err != nil {
		return nil, err
	}
	list := []client.Cache{}
	for _, f := range files {
		var b Base
		err := read(f, &b)
		if errors.Is(err, ErrNone) {
			continue // it has just gone
		}
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(filepath.Base(f), suffix)
		list = append(list, *s.shown(filepath.Base(filepath.Dir(f)), name, &b))
	}
	return list, nil
}

// shown is what clients see of a base.
func (s *Store) shown(tenant, name string, b *Base) *client.Cache {
	v := &client.Cache{
		Name: name, Tenant: tenant, Mode: b.Mode, Bytes: s.bytes(b.Disk), Files: b.Files,
		Session: b.Session, Made: b.Made, Skipped: b.Skipped,
	}
	if fi, err := os.Stat(s.baseFile(tenant, name)); err == nil {
		v.Used = fi.ModTime().UTC().Truncate(time.Millisecond)
	}
	if fi, err := os.Stat(s.at("disks", b.Disk)); err == nil && !fi.IsDir() {
		v.Size = client.Size(fi.Size())
	}
	return v
}

// bytes is what a disk takes on the host's, 0 where that cannot be said.
func (s *Store) bytes(disk string) int64 {
	path := s.at("disks", disk)
	if strings.HasPrefix(disk, plainPrefix) {
		n, _ := beneath.Usage(path)
		return n
	}
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return 0
	}
	return st.Blocks * 512
}

// Remove removes what a tenant keeps of a cache. Sessions that have it keep it.
func (s *Store) Remove(tenant, name string) error {
	var b Base
	path := s.baseFile(tenant, name)
	if err := read(path, &b); err != nil {
		return err
	}
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNone
	}
	if err != nil {
		return err
	}
	return s.clean()
}

// Bytes is what bases and the layers of sessions take on the host's disk.
func (s *Store) Bytes() (bases, sessions int64) {
	list, _ := s.List("") // what cannot be read is not counted
	for _, c := range list {
		bases += c.Bytes
	}
	names, _ := s.Sessions()
	for _, n := range names {
		sessions += s.SessionBytes(n)
	}
	return bases, sessions
}

// Sweep removes bases that no session began with for longer than keep before now, then the least
// recently used ones until all take no more than most bytes, and what no file names.
// Neither bound holds where it is 0.
func (s *Store) Sweep(now time.Time, keep time.Duration, most int64) ([]client.Cache, error) {
	list, err := s.List("")
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b client.Cache) int { return a.Used.Compare(b.Used) })
	var sum int64
	for _, c := range list {
		sum += c.Bytes
	}
	var gone []client.Cache
	for _, c := range list {
		old := keep > 0 && now.Sub(c.Used) > keep
		if !old && (most == 0 || sum <= most) {
			continue
		}
		if e := s.Remove(c.Tenant, c.Name); e != nil {
			err = errors.Join(err, e)
			continue
		}
		sum -= c.Bytes
		gone = append(gone, c)
	}
	return gone, errors.Join(err, s.clean())
}

// Unused are disks that nothing names: what a daemon that was killed was making.
func (s *Store) Unused() (unused []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used, err := s.namedLocked()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.at("disks"))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		// Others are loopdisk's own.
		ours := strings.HasPrefix(e.Name(), diskPrefix) || strings.HasPrefix(e.Name(), plainPrefix)
		if ours && !used[e.Name()] && s.held[e.Name()] == 0 {
			unused = append(unused, e.Name())
		}
	}
	return unused, nil
}

// namedLocked are the disks of all bases and sessions. While one of the files cannot be
// read, nobody knows.
func (s *Store) namedLocked() (map[string]bool, error) {
	used := map[string]bool{}
	bases, err := filepath.Glob(s.baseFile("*", "*"))
	if err != nil {
		return nil, err
	}
	for _, f := range bases {
		var b Base
		if err := read(f, &b); err != nil && !errors.Is(err, ErrNone) {
			return nil, err
		}
		used[b.Disk] = true
	}
	sessions, err := s.Sessions()
	if err != nil {
		return nil, err
	}
	for _, n := range sessions {
		var h having
		if err := read(s.sessionFile(n), &h); err != nil && !errors.Is(err, ErrNone) {
			return nil, err
		}
		for _, u := range h.Uses {
			used[u.Disk] = true
			used[u.Base] = true
		}
	}
	return used, nil
}
