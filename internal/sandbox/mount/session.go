package mount

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/sandbox"
)

// Session is what a session brings from the host: its worktree, its outputs and its
// extra directories. Who is who there is for its driver to say.
type Session struct {
	*sandbox.Claim
	// ReadOnly holds for the worktree; the rest is always read-only.
	ReadOnly bool
	// ToolUID and ToolGID are the tool user's on the host, each in a range of
	// sandbox.RangeSize that is the sandbox's. The ids that the claim has for a
	// directory are shown as them.
	ToolUID, ToolGID uint32
	// Beside are users, and groups alike, that such a directory shows besides them.
	Beside []Range
	// RootIsRoot: the sandbox's users are the host's. Outputs are then shown as
	// nobody's, and so is in other directories what has other ids.
	RootIsRoot bool
	// Staging is a directory that is not changed, for a worktree of mode overlay.
	Staging string
	// OneToOne is asked where the worktree's file system has no id-mapped mounts.
	// Unless it refuses, the tool user has the worktree's ids from there on.
	OneToOne func() error
}

// What was done about the owner of a worktree; see client.Worktree.IDMap.
const (
	IDMapped       = "idmapped"
	MappedOneToOne = "mapped 1:1"
)

// Set is the mounts of a session. Their files are the caller's to close.
type Set struct {
	// Mounts are in the order in which they are to be attached: what lies in
	// another comes after it.
	Mounts []Detached
	// IDMap is IDMapped or MappedOneToOne, "" without a worktree.
	IDMap string
	// Notes are the things that this host could not give (see client.Session).
	Notes []string
}

// Detach makes the mounts of what the session brings. After an error none is left.
func (s Session) Detach() (*Set, error) {
	d := s.detaching()
	defer d.close()
	if err := d.all(); err != nil {
		d.closeMounts()
		return nil, err
	}
	return &d.set, nil
}

func (s Session) detaching() *detaching {
	return &detaching{
		Session: s, maps: map[ids]*os.File{},
		ownUIDs: ownRange(s.ToolUID, sandbox.ToolUID), ownGIDs: ownRange(s.ToolGID, sandbox.ToolGID),
	}
}

// close lets go of the id maps: mounts keep theirs.
func (d *detaching) close() {
	for _, f := range d.maps {
		f.Close()
	}
}

func (d *detaching) closeMounts() {
	for _, m := range d.set.Mounts {
		m.File.Close()
	}
}

// detaching is one Detach under way.
type detaching struct {
	Session
	set  Set
	maps map[ids]*os.File // directories of a session mostly have one owner

	ownUIDs, ownGIDs Range // ids that processes of the sandbox may have
}

// ids are a user and a group, and what they are shown as.
type ids struct{ uid, gid, asUID, asGID uint32 }

// ownRange is the sandbox's range that the tool's id on the host is in.
func ownRange(host, inside uint32) Range {
	base := host - min(host, inside)
	return Range{FS: base, Host: base, Size: sandbox.RangeSize}
}

func (d *detaching) all() error {
	if err := d.worktree(); err != nil {
		return fmt.Errorf("worktree: %w", err)
	}
	if d.OutputDir != "" {
		if err := d.output(); err != nil {
			return fmt.Errorf("output directory: %w", err)
		}
	}
	if d.JournalDir != "" {
		if err := d.journal(); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	// What lies in another comes after it, the worktree before all: a target may
	// be a directory of what was mounted before.
	mounts := slices.Clone(d.Mounts)
	slices.SortFunc(mounts, func(a, b sandbox.Mount) int { return strings.Compare(a.Target, b.Target) })
	for _, m := range mounts {
		if err := d.extra(m); err != nil {
			return fmt.Errorf("mount %s: %w", m.Target, err)
		}
	}
	return nil
}

func (d *detaching) add(f *os.File, target string) {
	d.set.Mounts = append(d.set.Mounts, Detached{File: f, Target: target})
}

func (d *detaching) note(s string) { d.set.Notes = append(d.set.Notes, s) }

func (d *detaching) worktree() error {
	w := &d.Worktree
	switch {
	case w.Source == nil:
		return nil
	case w.Overlay != nil:
		return d.overlay()
	}
	var attributes uint64
	if d.ReadOnly {
		attributes = unix.MOUNT_ATTR_RDONLY
	}
	f, err := d.asTool(w.Source, w.UID, w.GID, attributes)
	d.set.IDMap = IDMapped
	if errors.Is(err, ErrNoIDMap) {
		f, err = d.oneToOne(attributes)
	}
	if err != nil {
		return err
	}
	d.add(f, w.Target)
	if !d.ReadOnly {
		if err := d.guardGit(); err != nil {
			return err
		}
		d.keepLinked()
		d.note("the worktree is a directory of the host: its size has no bound")
		if w.UID == 0 {
			d.note("the worktree belongs to root: what a session leaves there is root's, on the host a program with all rights; give it to another user")
		}
	}
	return nil
}

// guarded are those files of git's, and directories, whose content it runs.
var guarded = []struct {
	name string
	kind uint32
}{{".git/config", unix.S_IFREG}, {".git/config.worktree", unix.S_IFREG}, {".git/hooks", unix.S_IFDIR}}

// guardGit makes them read-only in the session. They are found by name in a tree that
// other sessions may write to: no link is followed, nothing is opened for reading, and
// at the end each must still be where it was found.
func (d *detaching) guardGit() error {
	w := &d.Worktree
	if !w.GuardGit {
		return nil
	}
	for _, g := range guarded {
		fd, err := beneath.Open(int(w.Source.Fd()), g.name, unix.O_PATH|unix.O_NOFOLLOW, 0)
		switch {
		case errors.Is(err, unix.ENOENT) && g.name == ".git/config.worktree":
			continue // git reads it only where the config, which is guarded, says so
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
			d.note(fmt.Sprintf("guard_git: the worktree has no %s to make read-only: what a session puts there is not prevented", g.name))
			continue
		case err != nil:
			return fmt.Errorf("guard_git: %s: %w: %w", g.name, sandbox.ErrMountTarget, err)
		}
		if err := d.guard(os.NewFile(uintptr(fd), g.name), g.kind, filepath.Join(w.Target, g.name)); err != nil {
			return fmt.Errorf("guard_git: %s: %w", g.name, err)
		}
	}
	return nil
}

// guard adds a read-only mount of what src is, over itself, and closes src.
func (d *detaching) guard(src *os.File, kind uint32, target string) error {
	defer src.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != kind {
		return fmt.Errorf("%w: it is not the plain file or directory that git makes", sandbox.ErrMountTarget)
	}
	f, err := d.ownTree(src, unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		return err
	}
	d.set.Mounts = append(d.set.Mounts, Detached{File: f, Target: target, Over: Inode{Dev: st.Dev, Ino: st.Ino}})
	return nil
}

// ownTree detaches a file or a directory of the worktree, whose ids are shown as there.
func (d *detaching) ownTree(src *os.File, attributes uint64) (*os.File, error) {
	if d.set.IDMap == MappedOneToOne {
		return Detach(src, attributes, nil)
	}
	return d.asTool(src, d.Worktree.UID, d.Worktree.GID, attributes)
}

func (d *detaching) oneToOne(attributes uint64) (*os.File, error) {
	if err := d.OneToOne(); err != nil {
		return nil, err
	}
	w := &d.Worktree
	d.ToolUID, d.ToolGID = w.UID, w.GID
	d.set.IDMap = MappedOneToOne
	return Detach(w.Source, attributes, nil)
}

// output shows the outputs as files that everyone may read, and never as the tool
// user's: an owner may take leases (fcntl), which hold up whoever opens the file for
// writing: the daemon.
func (d *detaching) output() error {
	dir, err := os.OpenFile(d.OutputDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	f, err := d.detachOutput(dir)
	if err != nil {
		return err
	}
	d.add(f, sandbox.OutputDir)
	return nil
}

// journal gives a directory to the sandbox's root, who has no capability: it can do there
// what the modes let it, and the tool user nothing.
func (d *detaching) journal() error {
	dir, err := os.OpenFile(d.JournalDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := errors.Join(dir.Chown(int(d.ownUIDs.Host), int(d.ownGIDs.Host)), dir.Chmod(0o700)); err != nil {
		return err
	}
	f, err := Detach(dir, unix.MOUNT_ATTR_NOEXEC, nil)
	if err != nil {
		return err
	}
	d.add(f, sandbox.JournalDir)
	return nil
}

// nobody is the kernel's id for who has none.
const nobody = 65534

// detachOutput shows root's files as nobody's. Where the host's root is not in the
// sandbox, they are that already.
func (d *detaching) detachOutput(dir *os.File) (*os.File, error) {
	const attributes = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOEXEC
	if d.RootIsRoot {
		f, err := d.mapped(dir, ids{asUID: nobody, asGID: nobody}, attributes)
		if !errors.Is(err, ErrNoIDMap) {
			return f, err
		}
	}
	return Detach(dir, attributes, nil)
}

// extra shows a directory with its ids as the tool user's, or where that cannot be, and
// nothing is written, as it is.
func (d *detaching) extra(m sandbox.Mount) error {
	if m.Overlay != nil || m.Write {
		return d.extraWritable(m)
	}
	var attributes uint64 = unix.MOUNT_ATTR_RDONLY
	if m.NoExec {
		attributes |= unix.MOUNT_ATTR_NOEXEC
	}
	f, err := d.asTool(m.Source, m.UID, m.GID, attributes)
	if errors.Is(err, ErrNoIDMap) {
		d.note(fmt.Sprintf("%s: its file system has no id-mapped mounts: only what everyone may read is readable", m.Source.Name()))
		f, err = Detach(m.Source, attributes, nil)
	}
	if err != nil {
		return err
	}
	d.add(f, m.Target)
	return nil
}

func (d *detaching) extraWritable(m sandbox.Mount) error {
	var f *os.File
	var err error
	if m.Write {
		f, err = d.asTool(m.Source, m.UID, m.GID, 0)
	} else {
		f, err = d.layered(source{m.Source, m.UID, m.GID}, m.Overlay.Lower, m.Overlay.Upper, RenamesLight)
	}
	if errors.Is(err, ErrNoIDMap) {
		return fmt.Errorf("its file system has no id-mapped mounts, without which nothing can be written there: %w", sandbox.ErrUnsupported)
	}
	if err != nil {
		return err
	}
	d.add(f, m.Target)
	return nil
}

// asTool detaches a directory with one user and group shown as the tool user. The map is
// between the file system's ids and the host's; who the tool user is in the sandbox
// is for that one's own map.
func (d *detaching) asTool(dir *os.File, uid, gid uint32, attributes uint64) (*os.File, error) {
	return d.mapped(dir, ids{uid: uid, gid: gid, asUID: d.ToolUID, asGID: d.ToolGID}, attributes)
}

func (d *detaching) mapped(dir *os.File, o ids, attributes uint64) (*os.File, error) {
	userns := d.maps[o]
	if userns == nil {
		var err error
		if userns, err = UserNamespace(d.ranges(o.uid, o.asUID, d.ownUIDs), d.ranges(o.gid, o.asGID, d.ownGIDs)); err != nil {
			return nil, fmt.Errorf("user namespace for id map: %w", err)
		}
		d.maps[o] = userns
	}
	return Detach(dir, attributes, userns)
}

// ranges map one id, those beside it, and the host's others as they are. These the
// sandbox has no name for, so that its processes have on their files what everyone
// has; but where an id is not mapped at all, the kernel refuses every change of what
// has it, and nobody could work in a directory that he shares with its owner.
//
// Root is shown as an id that nobody has: that tells the sandbox the same, and a map
// to the host's root would ask for CAP_SETFCAP, which nothing else here does.
func (d *detaching) ranges(id, as uint32, own Range) []Range {
	list := append([]Range{{FS: id, Host: as, Size: 1}}, d.Beside...)
	if d.RootIsRoot {
		return list
	}
	if !slices.ContainsFunc(list, func(r Range) bool { return r.FS == 0 }) {
		list = append(list, Range{FS: 0, Host: math.MaxUint32 - 1, Size: 1})
	}
	return append(list, except(append([]Range{own}, list...))...)
}

// except gives the ranges of ids that are in none of the others, on neither side, and
// maps each id to itself.
func except(others []Range) []Range {
	var taken []Range
	for _, r := range others {
		taken = append(taken, Range{FS: r.FS, Size: r.Size}, Range{FS: r.Host, Size: r.Size})
	}
	slices.SortFunc(taken, func(a, b Range) int { return cmp.Compare(a.FS, b.FS) })
	var list []Range
	next := uint64(0)
	for _, r := range append(taken, Range{FS: math.MaxUint32}) { // the last is no id
		if start := uint64(r.FS); start > next {
			list = append(list, Range{FS: uint32(next), Host: uint32(next), Size: uint32(start - next)})
		}
		next = max(next, uint64(r.FS)+uint64(r.Size))
	}
	return list
}
