package layers

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/sandbox/loopdisk"
	"github.com/toold/toold/internal/sandbox/mount"
)

// A disk bounds what one session writes: a file system in a file, which has the layers that
// the session made. The name of such a layer is that of its disk, a dot, and its own. The
// kernel has it mounted as long as a sandbox or this process uses it, and not after that.
const (
	diskPrefix  = "d_"
	layerPrefix = "l_"
)

// split gives the disk of a layer, "" for one in the state directory itself, and the name
// that it has there.
func split(layer string) (disk, name string) {
	disk, name, on := strings.Cut(layer, ".")
	if !on || !strings.HasPrefix(disk, diskPrefix) {
		return "", layer
	}
	return disk, name
}

// disks are those that this process has mounted.
type disks struct {
	dir   string
	mount func(path string) (*os.File, error) // loopdisk.Mount, but in tests
	mu    sync.Mutex                          // guards the field below, and what is in it
	open  map[string]*openDisk
}

// openDisk is one that is mounted, or about to be: who comes meanwhile waits for it, and for no other.
type openDisk struct {
	users int
	ready chan struct{} // closed when root or err is there
	root  *os.File
	err   error
	gone  chan struct{} // made when the last user has left, and closed when it is mounted no more
}

// hold gives the root of a disk, which is there until release.
func (d *disks) hold(name string) (*os.File, error) {
	o, mine := d.enter(name)
	if mine {
		root, err := d.mount(filepath.Join(d.dir, name))
		d.mounted(name, o, root, err)
	}
	<-o.ready
	if o.err != nil {
		return nil, fmt.Errorf("disk of layers: %w", o.err)
	}
	return o.root, nil
}

// enter adds a user to a disk. mine: it is the first one, and mounts it. A disk is never mounted twice
// at once, nor before the last mount has gone.
func (d *disks) enter(name string) (o *openDisk, mine bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for o = d.open[name]; o != nil && o.gone != nil; o = d.open[name] {
		d.mu.Unlock()
		<-o.gone
		d.mu.Lock()
	}
	if mine = o == nil; mine {
		o = &openDisk{ready: make(chan struct{})}
		d.open[name] = o
	}
	o.users++
	return o, mine
}

// mounted says what came of a mount.
func (d *disks) mounted(name string, o *openDisk, root *os.File, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o.root, o.err = root, err; err != nil {
		delete(d.open, name) // who waits has no use of it either
	}
	close(o.ready)
}

func (d *disks) release(name string) {
	d.mu.Lock()
	o := d.open[name]
	o.users--
	last := o.users == 0
	if last {
		o.gone = make(chan struct{})
	}
	d.mu.Unlock()
	if !last {
		return
	}
	_ = o.root.Close() // it is a mount that nothing was written to by
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, name)
	close(o.gone)
}

// used reports whether somebody holds a disk.
func (d *disks) used(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open[name] != nil
}

// Bounded says why layers can have no disks here, nil where they can.
func (s *Store) Bounded() error {
	s.boundedMu.Lock()
	defer s.boundedMu.Unlock()
	if s.bounded {
		return nil
	}
	if err := s.try(); err != nil {
		return err
	}
	s.bounded = true
	return nil
}

// Check is Bounded for who looks at the host.
func (s *Store) Check() client.Check {
	c := client.Check{Group: "worktree", Name: "bound of what sessions change", Status: client.CheckOK, Detail: "file systems in files work"}
	if err := s.Bounded(); err != nil {
		c.Status, c.Detail = client.CheckWarn, err.Error()
		c.Hint = "sessions of mode overlay can fill the state directory: it takes mke2fs (e2fsprogs) and loop devices"
	}
	return c
}

// try makes a disk and mounts a directory of it.
func (s *Store) try() error {
	name, release, err := s.NewDisk(loopdisk.Least)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(filepath.Join(s.disks.dir, name)) }()
	defer release()
	root, err := s.disks.hold(name)
	if err != nil {
		return err
	}
	defer s.disks.release(name)
	dir, err := beneath.OpenFile(root, "lost+found", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	m, err := mount.Detach(dir, unix.MOUNT_ATTR_RDONLY, nil)
	if err != nil {
		return err
	}
	return m.Close()
}

// NewDisk makes a disk for layers. It stays if a tree names it when it is released.
func (s *Store) NewDisk(size client.Size) (name string, release func(), err error) {
	d := &s.disks
	name = diskPrefix + strings.ToLower(rand.Text()[:20])
	o, _ := d.enter(name) // Sweep leaves it alone from here on; nobody else knows the name
	path := filepath.Join(d.dir, name)
	var root *os.File
	if err = loopdisk.Create(d.dir, name, size); err == nil {
		if root, err = d.mount(path); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}
	d.mounted(name, o, root, err)
	if err != nil {
		return "", nil, err
	}
	return name, func() { d.release(name) }, nil
}

// at gives the path of a layer's directory, which leads there until release.
func (s *Store) at(layer string) (path string, release func(), err error) {
	disk, name := split(layer)
	if disk == "" {
		return filepath.Join(s.layers(), name), func() {}, nil
	}
	root, err := s.disks.hold(disk)
	if err != nil {
		return "", nil, err
	}
	return onDisk(root, name), func() { s.disks.release(disk) }, nil
}

// onDisk is a path to what is in the root of a disk, which is open.
func onDisk(root *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", root.Fd(), name)
}

// Opened are directories of layers, with the disks that they lie on.
type Opened struct {
	Files []*os.File // in the order of their names
	held  []func()
}

// Close closes the directories. A nil Opened has none.
func (o *Opened) Close() {
	if o == nil {
		return
	}
	for _, f := range o.Files {
		_ = f.Close() // it was opened for its path alone
	}
	for _, release := range o.held {
		release()
	}
}

// OpenLayers opens the directories of layers, in their order.
func (s *Store) OpenLayers(names []string) (*Opened, error) {
	o := &Opened{}
	for _, n := range names {
		path, release, err := s.at(n)
		if err == nil {
			o.held = append(o.held, release)
			var f *os.File
			if f, err = os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0); err == nil {
				o.Files = append(o.Files, f)
			}
		}
		if err != nil {
			o.Close()
			return nil, err
		}
	}
	return o, nil
}

// OpenUpper opens what a session has written: the root of its upper layer, as the overlay
// has it. ErrNone: it has no such layer. release comes after the file is closed.
func (s *Store) OpenUpper(session string) (f *os.File, release func(), err error) {
	t, err := s.Get(session)
	if err == nil && t.Upper == "" {
		err = ErrNone
	}
	if err != nil {
		return nil, nil, err
	}
	path, release, err := s.at(t.Upper)
	if err != nil {
		return nil, nil, err
	}
	f, err = os.OpenFile(filepath.Join(path, "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNone // it was never mounted
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return f, release, nil
}

// Room is how large the disks of all layers of a tree are together; 0 where there is one
// that lies on none.
func (s *Store) Room(t *Tree) (sum client.Size, err error) {
	used := places(t.Layers())
	for _, p := range places(slices.Concat(t.Layers(), []string{t.Disk + "."})) {
		if !strings.HasPrefix(p, diskPrefix) {
			return 0, nil
		}
		size, err := s.diskSize(p)
		if errors.Is(err, fs.ErrNotExist) && !slices.Contains(used, p) {
			continue // what lay there was applied or discarded, and it went
		}
		if err != nil {
			return 0, err
		}
		sum += size
	}
	return sum, nil
}

func (s *Store) diskSize(disk string) (client.Size, error) {
	fi, err := os.Stat(filepath.Join(s.disks.dir, disk))
	if err != nil {
		return 0, err
	}
	return client.Size(fi.Size()), nil
}

// Free is how many bytes can still be written to a disk.
func (s *Store) Free(disk string) (int64, error) {
	root, err := s.disks.hold(disk)
	if err != nil {
		return 0, err
	}
	defer s.disks.release(disk)
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// HalfFree reports whether a disk, "" for none, has half of its room left.
func (s *Store) HalfFree(disk string) (bool, error) {
	if disk == "" {
		return true, nil
	}
	size, err := s.diskSize(disk)
	if err != nil {
		return false, err
	}
	free, err := s.Free(disk)
	return free >= int64(size)/2, err
}

// Places are what has the layers of a tree and its checkpoints: disks, and layers that are
// on none; each once.
func (t *Tree) Places() []string {
	all := t.All()
	if t.Disk != "" && t.Ended.IsZero() {
		all = append(all, t.Disk+".")
	}
	return places(all)
}

func places(layers []string) (all []string) {
	for _, l := range layers {
		disk, name := split(l)
		if disk == "" {
			disk = name
		}
		if disk != "" && disk != "." {
			all = append(all, disk)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// diskBytes is what a disk uses of the host's.
func (s *Store) diskBytes(disk string) int64 {
	fi, err := os.Stat(filepath.Join(s.disks.dir, disk))
	if err != nil {
		return 0
	}
	return fi.Sys().(*syscall.Stat_t).Blocks * 512
}

// keep has the disk of a live tree mounted, so that it need not be found each time.
func (s *Store) keep(t *Tree) {
	want := t.Disk
	if !t.Ended.IsZero() {
		want = ""
	}
	s.mu.Lock()
	have := s.live[t.Session]
	s.mu.Unlock()
	if want == have {
		return
	}
	if want != "" {
		if _, err := s.disks.hold(want); err != nil {
			return // whoever needs it says so
		}
	}
	s.mu.Lock()
	have = s.live[t.Session]
	if want != "" {
		s.live[t.Session] = want
	} else {
		delete(s.live, t.Session)
	}
	s.mu.Unlock()
	if have != "" {
		s.disks.release(have)
	}
}

// Close lets go of the disks of live trees. Their sandboxes keep them.
func (s *Store) Close() error {
	s.mu.Lock()
	disks := slices.Collect(maps.Values(s.live))
	clear(s.live)
	s.mu.Unlock()
	for _, name := range disks {
		s.disks.release(name)
	}
	return nil
}

// spend sees to it that a layer can be made on a disk, "" for none.
func (s *Store) spend(disk string) error {
	if disk == "" {
		return nil
	}
	root, err := s.disks.hold(disk)
	if err != nil {
		return err
	}
	defer s.disks.release(disk)
	return loopdisk.Spend(root)
}

// refill is for after spend, when the layer is mounted.
func (s *Store) refill(disk string) {
	if disk == "" {
		return
	}
	if root, err := s.disks.hold(disk); err == nil {
		_ = loopdisk.Refill(root) // it has room or not
		s.disks.release(disk)
	}
}

// forget removes a tree that has nothing any more, with its disk where that never
// had another layer than the empty one.
func (s *Store) forget(t *Tree, upper string) error {
	err := os.Remove(s.file(t.Session))
	if disk, name := split(upper); disk != "" && disk == t.Disk {
		if names, e := s.onDisk(disk); e == nil && len(names) == 1 && names[0] == name {
			err = errors.Join(err, gone(os.Remove(filepath.Join(s.disks.dir, disk))))
		}
	}
	s.keep(&Tree{Session: t.Session})
	return err
}

// onDisk are the layers on a disk, also those that are being removed.
func (s *Store) onDisk(disk string) (names []string, err error) {
	root, err := s.disks.hold(disk)
	if err != nil {
		return nil, err
	}
	defer s.disks.release(disk)
	entries, err := os.ReadDir(onDisk(root, "."))
	for _, e := range entries {
		if strings.HasPrefix(strings.TrimPrefix(e.Name(), removing), layerPrefix) {
			names = append(names, e.Name())
		}
	}
	return names, err
}
