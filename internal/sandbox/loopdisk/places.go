package loopdisk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/inside"
	"github.com/toold/toold/internal/sandbox/mount"
	"github.com/toold/toold/internal/sandbox/process"
)

// Owners are the host's ids of those in a sandbox who own its places.
type Owners struct{ RootUID, RootGID, ToolUID, ToolGID int }

// Places makes the disk of a session and mounts its places, nowhere yet. The caller closes the
// files; after an error there are none.
func Places(dir, session string, d inside.Disk, o Owners) (mounts []mount.Detached, err error) {
	whole, err := Unnamed(dir, session, d.Size)
	if err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	defer whole.Close() // the places keep it
	var names []string
	for _, p := range d.Places {
		uid, gid := o.RootUID, o.RootGID
		if p.Tool {
			uid, gid = o.ToolUID, o.ToolGID
		}
		fd := int(whole.Fd())
		err := errors.Join(unix.Mkdirat(fd, p.Name, 0o700), unix.Fchownat(fd, p.Name, uid, gid, unix.AT_SYMLINK_NOFOLLOW), unix.Fchmodat(fd, p.Name, p.Mode, 0))
		if err != nil {
			return nil, fmt.Errorf("disk: %s: %w", p.Name, err)
		}
		names = append(names, p.Name)
	}
	parts, err := mount.Parts(dir, whole, names)
	if err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	for i, f := range parts {
		mounts = append(mounts, mount.Detached{File: f, Target: d.Places[i].Target})
	}
	return mounts, nil
}

// Late is the disk of a sandbox that gets it when it first needs it: one that never does costs
// none.
type Late struct {
	Dir, Session string
	Disk         inside.Disk
	Owners       Owners
	Proc         *process.Process // the agent

	mu   sync.Mutex // guards done, and lets one make them at a time
	done bool
}

// Furnish mounts the places, unless this or an earlier daemon has. A daemon that died in the
// middle has not mounted the last of them; the others are mounted over, which nobody wrote to.
func (l *Late) Furnish() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done || l.Disk.Size == 0 {
		return nil
	}
	home, err := l.open(sandbox.Home)
	if err != nil {
		return err
	}
	there := isDisk(home)
	_ = home.Close()
	if !there {
		mounts, err := Places(l.Dir, l.Session, l.Disk, l.Owners)
		if err != nil {
			return err
		}
		err = mount.Attach(l.Proc.Dir(), mounts)
		for _, m := range mounts {
			_ = m.File.Close() // the sandbox has it
		}
		if err != nil {
			return err
		}
	}
	l.done = true
	return nil
}

// isDisk reports whether a directory is the root of a mounted ext4.
func isDisk(f *os.File) bool {
	var st unix.Statfs_t
	var x unix.Statx_t
	if unix.Fstatfs(int(f.Fd()), &st) != nil || st.Type != unix.EXT4_SUPER_MAGIC {
		return false
	}
	return unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, 0, &x) == nil && x.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// open opens a place as the sandbox sees it.
func (l *Late) open(target string) (*os.File, error) {
	root, err := l.Proc.Open("root", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return mount.OpenPlace(root, target)
}

// Bytes is what lies on the disk; 0 where there is none.
func (l *Late) Bytes() int64 {
	if l.Disk.Size == 0 {
		return 0
	}
	f, err := l.open(sandbox.Home)
	if err != nil {
		return 0 // it has ended
	}
	defer f.Close()
	var st unix.Statfs_t
	if !isDisk(f) || unix.Fstatfs(int(f.Fd()), &st) != nil {
		return 0
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize
}

// Probe finds out whether this host has disks.
type Probe struct {
	Dir string

	mu    sync.Mutex // guards works, and lets one try at a time
	works bool
}

// Works makes a disk, until that has worked once. The error says why there are none. The first
// time it removes the files of disks whose makers were killed before those lost their names.
func (p *Probe) Works() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.works {
		return nil
	}
	if err := beneath.RemoveMatching(filepath.Join(p.Dir, ownPrefix+"*"), ""); err != nil {
		return err
	}
	f, err := Unnamed(p.Dir, "probe", Least)
	if err != nil {
		return err
	}
	p.works = true
	return f.Close()
}
