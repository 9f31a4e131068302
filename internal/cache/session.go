package cache

import (
	"errors"
	"fmt"
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

// Layer is one directory of a cache for a sandbox. Its files are the Opened's.
type Layer struct {
	Cache, Dir string
	// Source lies below all. nil: it is the directory of the host that the caller has.
	Source *os.File
	// Lower has root, the base's directory; nil for none.
	Lower *os.File
	// Upper takes what the session writes; nil for a shared one, whose Source does.
	Upper *os.File
}

// Opened are the caches of a session that begins.
type Opened struct {
	Layers []Layer
	files  []*os.File
}

// Close closes the files: a sandbox has mounts of its own. A nil Opened has none.
func (o *Opened) Close() {
	if o == nil {
		return
	}
	for _, f := range o.files {
		_ = f.Close() // it was opened for its path alone
	}
}

func (o *Opened) keep(f *os.File, err error) (*os.File, error) {
	if err == nil {
		o.files = append(o.files, f)
	}
	return f, err
}

// Begin makes the caches of a session. uses say what is wanted; their disks are filled in.
// After an error there may be some, which End removes.
func (s *Store) Begin(session, tenant string, uses []Use) (*Opened, error) {
	o := &Opened{}
	h := having{Tenant: tenant, Uses: uses}
	err := s.begin(session, &h, o)
	if err != nil {
		o.Close()
		return nil, fmt.Errorf("caches of session %s: %w", session, err)
	}
	return o, nil
}

func (s *Store) begin(session string, h *having, o *Opened) error {
	for i := range h.Uses {
		u := &h.Uses[i]
		release, err := s.settle(h.Tenant, u)
		if err != nil {
			return fmt.Errorf("%s: %w", u.Name, err)
		}
		defer release()
	}
	if err := s.write(s.sessionFile(session), h); err != nil {
		return err
	}
	for i := range h.Uses {
		if err := s.layers(&h.Uses[i], o); err != nil {
			return fmt.Errorf("%s: %w", h.Uses[i].Name, err)
		}
	}
	return nil
}

// settle finds the base of a cache, and makes the disk that the session has of it. Both
// stay until release.
func (s *Store) settle(tenant string, u *Use) (release func(), err error) {
	if u.Mode == client.CacheShared {
		return s.settleShared(tenant, u)
	}
	below := func() {}
	if !slices.ContainsFunc(u.Dirs, func(d Dir) bool { return d.From != nil }) {
		if u.Base, below, err = s.take(tenant, u); err != nil {
			return nil, err
		}
	}
	disk, own, err := s.newDisk(u.Size)
	if err != nil {
		below()
		return nil, err
	}
	u.Disk = disk
	return func() { below(); own() }, nil
}

// take gives the disk of what the tenant keeps of a cache, "" for nothing. It counts as used.
func (s *Store) take(tenant string, u *Use) (disk string, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := s.baseFile(tenant, u.Name)
	var b Base
	err = read(path, &b)
	if errors.Is(err, ErrNone) || err == nil && b.Mode != u.Mode { // it was configured otherwise then
		return "", func() {}, nil
	}
	now := time.Now()
	if err == nil {
		err = os.Chtimes(path, now, now)
	}
	if err != nil {
		return "", nil, err
	}
	return b.Disk, s.holdLocked(b.Disk), nil
}

// settleShared makes the one directory of a tenant where there is none.
func (s *Store) settleShared(tenant string, u *Use) (release func(), err error) {
	disk, release, err := s.take(tenant, u)
	if err != nil || disk != "" {
		u.Disk = disk
		return release, err
	}
	s.sharing.Lock() // one of them makes it
	defer s.sharing.Unlock()
	if disk, release, err = s.take(tenant, u); err != nil || disk != "" {
		u.Disk = disk
		return release, err
	}
	return s.makeShared(tenant, u)
}

func (s *Store) makeShared(tenant string, u *Use) (release func(), err error) {
	disk, release, err := s.newDisk(u.Size)
	if err != nil {
		return nil, err
	}
	u.Disk = disk
	if err = s.makeDirs(disk, u); err == nil {
		err = s.write(s.baseFile(tenant, u.Name), &Base{Mode: u.Mode, Disk: disk, Made: now()})
	}
	if err != nil {
		release()
		return nil, errors.Join(err, s.clean())
	}
	return release, nil
}

// makeDirs makes the directories of a base, which is root's and is shown as others'.
func (s *Store) makeDirs(disk string, u *Use) error {
	root, err := s.open(disk)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, d := range u.Dirs {
		for _, path := range []string{d.Name, filepath.Join(d.Name, "root")} {
			if err := unix.Mkdirat(int(root.Fd()), path, 0o755); err != nil {
				return &fs.PathError{Op: "mkdir", Path: path, Err: err}
			}
			if err := unix.Fchmodat(int(root.Fd()), path, 0o755, 0); err != nil { // whatever the umask
				return &fs.PathError{Op: "chmod", Path: path, Err: err}
			}
		}
	}
	return nil
}

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// layers opens the directories of one cache.
func (s *Store) layers(u *Use, o *Opened) error {
	disk, err := o.keep(s.open(u.Disk))
	if err != nil {
		return err
	}
	base, err := s.openBase(u, o)
	if err != nil {
		return err
	}
	for i := range u.Dirs {
		d := &u.Dirs[i]
		l := Layer{Cache: u.Name, Dir: d.Name}
		if u.Mode == client.CacheShared {
			l.Source, err = o.keep(beneath.OpenFile(disk, filepath.Join(d.Name, "root"), asDir, 0))
		} else {
			err = s.cow(&l, d, disk, base, o)
		}
		if err != nil {
			return err
		}
		o.Layers = append(o.Layers, l)
	}
	return nil
}

// openBase opens the disk below a session's layer; nil for none.
func (s *Store) openBase(u *Use, o *Opened) (*os.File, error) {
	if u.Base == "" {
		return nil, nil
	}
	return o.keep(s.open(u.Base))
}

// cow opens what one directory of mode cow is made of.
func (s *Store) cow(l *Layer, d *Dir, disk, base *os.File, o *Opened) (err error) {
	if err := unix.Mkdirat(int(disk.Fd()), d.Name, 0o700); err != nil {
		return &fs.PathError{Op: "mkdir", Path: d.Name, Err: err}
	}
	if l.Upper, err = o.keep(beneath.OpenFile(disk, d.Name, asDir, 0)); err != nil {
		return err
	}
	if d.From == nil {
		if l.Source, err = o.keep(os.OpenFile(s.at("empty"), asDir, 0)); err != nil {
			return err
		}
	}
	if base == nil {
		return nil
	}
	l.Lower, err = o.keep(beneath.OpenFile(base, d.Name, asDir, 0))
	if errors.Is(err, fs.ErrNotExist) { // scratch, or it is new in the configuration
		l.Lower, err = nil, nil
	}
	return err
}

// End removes what a session wrote to its caches. One that has none is no error.
func (s *Store) End(session string) error {
	var h having
	err := read(s.sessionFile(session), &h)
	if errors.Is(err, ErrNone) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.Remove(s.sessionFile(session)); err != nil {
		return err
	}
	return s.clean()
}

// Sessions are those that have caches, live or not.
func (s *Store) Sessions() ([]string, error) {
	entries, err := os.ReadDir(s.at("sessions"))
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), suffix); ok {
			list = append(list, name)
		}
	}
	return list, nil
}

// SessionDisks are the names of the disks that a session alone writes to.
func (s *Store) SessionDisks(session string) (disks []string) {
	var h having
	if read(s.sessionFile(session), &h) != nil {
		return nil
	}
	for _, u := range h.Uses {
		if u.Mode == client.CacheCow {
			disks = append(disks, u.Disk)
		}
	}
	return disks
}

// SessionBytes is what a session's layers take on the host's disk.
func (s *Store) SessionBytes(session string) (sum int64) {
	var h having
	if read(s.sessionFile(session), &h) != nil {
		return 0
	}
	for _, u := range h.Uses {
		if u.Mode == client.CacheCow {
			sum += s.bytes(u.Disk)
		}
	}
	return sum
}
