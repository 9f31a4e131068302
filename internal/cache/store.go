// Package cache keeps what builds of a tenant have downloaded and compiled, for later
// sessions. In mode cow a session writes to a layer of its own over the cache's base, and
// the layer is thrown away with it; a promotion copies what a session sees into a new base.
// In mode shared there is one directory that all sessions of the tenant write to. The
// package makes no mounts in sandboxes.
//
// All of it is in one directory, of which nobody but the daemon may open anything:
//
//	bases/TENANT/CACHE.json   one Base; its change time is when a session last began with it
//	sessions/SESSION.json     what one live session has
//	disks/ID/DIR/root         a file system, or where the host has none in files a directory,
//	                          with the directories of one cache
//	empty                     an empty directory
//
// A base is never written again. Every change of one is one rename of its file: it is there
// as a whole or not at all, whatever is killed when.
package cache

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/sandbox/loopdisk"
	"github.com/toold/toold/internal/worktree"
)

// ErrNone: there is no such cache, or the session does not have it.
var ErrNone = errors.New("there is none")

// Store is the caches of one daemon. Its methods may be called from any goroutine.
type Store struct {
	dir string
	mu  sync.Mutex // guards the files, and is held while a disk is mounted: never twice at once

	held map[string]int // disks that stay though no file may name them; guarded by mu

	sharing sync.Mutex // held while a shared cache is made; before mu

	// Writes is asked before so many bytes, or more, are written for a base; its context ends when there
	// is no room for more on the host, with a cause that says so. It may be set before the store is used.
	Writes func(ctx context.Context, bytes int64) (_ context.Context, done func(), err error)

	step func(string) // told each step of a promotion, for tests
}

// Base is what the sessions of a tenant begin with, or in mode shared what they have.
type Base struct {
	Mode client.CacheMode `json:"mode"`
	Disk string           `json:"disk"`
	// Session is whose layer it was, and Made when it was promoted.
	Session string    `json:"session,omitempty"`
	Made    time.Time `json:"made"`
	Files   int64     `json:"files,omitempty"`
	Skipped int64     `json:"skipped,omitempty"`
}

// Use is one cache of a session.
type Use struct {
	Name string           `json:"name"`
	Mode client.CacheMode `json:"mode"`
	Size client.Size      `json:"size"` // 0: no bound, since the host can hold none
	Dirs []Dir            `json:"dirs"`
	Disk string           `json:"disk"`
	Base string           `json:"base,omitempty"` // disk of what lies below, "" for none
	// Mount: it is a mount of mode cow, with a name that no cache has, and never becomes a base.
	Mount bool `json:"mount,omitempty"`
}

// Dir is one directory of a Use.
type Dir struct {
	Name string `json:"name"`
	// Scratch does not become a base.
	Scratch bool `json:"scratch,omitempty"`
	// From is a directory of the host that lies below instead of the base.
	From *worktree.Source `json:"from,omitempty"`
}

// having is what a session has.
type having struct {
	Tenant string `json:"tenant"`
	Uses   []Use  `json:"uses"`
}

// Open opens a store, and makes its directory where there is none.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir, held: map[string]int{}, step: func(string) {}}
	s.Writes = func(ctx context.Context, _ int64) (context.Context, func(), error) { return ctx, func() {}, nil }
	for _, d := range []string{dir, s.at("bases"), s.at("sessions"), s.at("disks"), s.at("empty")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("caches: %w", err)
		}
	}
	if err := beneath.RemoveMatching(s.at(writing+"*"), ""); err != nil {
		return nil, fmt.Errorf("caches: %w", err)
	}
	// It is what a session sees of a cache that has no base.
	if err := os.Chmod(s.at("empty"), 0o755); err != nil {
		return nil, fmt.Errorf("caches: %w", err)
	}
	return s, nil
}

func (s *Store) at(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// suffix ends the names of files; writing begins those of files that are not yet there.
const (
	suffix  = ".json"
	writing = ".new-"
)

func (s *Store) baseFile(tenant, name string) string { return s.at("bases", tenant, name+suffix) }
func (s *Store) sessionFile(session string) string   { return s.at("sessions", session+suffix) }

// read reads one of the store's files. ErrNone: it is not there.
func read(path string, into any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", strings.TrimSuffix(filepath.Base(path), suffix), ErrNone)
	}
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return fmt.Errorf("caches: %s: %w", path, err)
	}
	return nil
}

// write puts one of the store's files into its place.
func (s *Store) write(path string, what any) error {
	data, err := json.Marshal(what)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(s.dir, writing+"*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		s.step("written")
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

// A disk that is a file system begins with diskPrefix, one that is a directory with
// plainPrefix.
const (
	diskPrefix  = "d_"
	plainPrefix = "l_"
)

// newDisk makes one, which stays until release.
func (s *Store) newDisk(size client.Size) (name string, release func(), err error) {
	prefix := diskPrefix
	if size == 0 {
		prefix = plainPrefix
	}
	name = prefix + strings.ToLower(rand.Text()[:20])
	s.mu.Lock()
	release = s.holdLocked(name)
	s.mu.Unlock()
	if size == 0 {
		err = os.Mkdir(s.at("disks", name), 0o700)
	} else {
		err = loopdisk.Create(s.at("disks"), name, size)
	}
	if err != nil {
		release()
		return "", nil, fmt.Errorf("disk of a cache: %w", err)
	}
	return name, release, nil
}

// holdLocked keeps a disk until release.
func (s *Store) holdLocked(disk string) (release func()) {
	s.held[disk]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.held[disk]--; s.held[disk] == 0 {
			delete(s.held, disk)
		}
	}
}

// asDir are the flags for a directory that is opened for its path alone.
const asDir = unix.O_PATH | unix.O_DIRECTORY

// open opens the root of a disk. The kernel has it mounted as long as that, or something in
// it, is open.
func (s *Store) open(disk string) (*os.File, error) {
	path := s.at("disks", disk)
	if strings.HasPrefix(disk, plainPrefix) {
		return os.OpenFile(path, asDir|unix.O_NOFOLLOW, 0)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return loopdisk.Mount(path)
}

// clean removes the disks that nothing names. What has one mounted keeps it.
func (s *Store) clean() error {
	unused, err := s.Unused()
	for _, d := range unused {
		err = errors.Join(err, s.drop(d))
	}
	return err
}

func (s *Store) drop(disk string) error {
	if strings.HasPrefix(disk, plainPrefix) {
		return beneath.RemoveAll(s.at("disks", disk))
	}
	err := os.Remove(s.at("disks", disk))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
