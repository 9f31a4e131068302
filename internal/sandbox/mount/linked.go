package mount

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/sandbox"
)

// Bounds of what a session has over the directories in which git lists linked worktrees.
// All of them share one file system in memory; what tools write there counts as theirs.
const (
	linkedSize   = "8m" // the index of a linked worktree that the session adds lies there
	linkedInodes = "4096"
	maxLinked    = 1000 // entries of a list that are locked, each for two inodes
)

// lockReason is what git says of a linked worktree that is locked for the session.
const lockReason = "a worktree of the host, not in this session\n"

// keepLinked keeps the host's linked worktrees from a session. Git removes those whose
// directory it does not see (git worktree prune, gc), with index, HEAD and reflog, and a
// session sees only what is in its own. So an overlay lies over git's list of them, with
// an upper layer in memory, in which they are locked: git keeps them, and the objects
// that they need. The list itself is never written to.
//
// Those that the session does see are its own to work in: each of their entries is mounted
// over the overlay, as it is.
//
// It is help against accidents and no wall, since a session can write all else of .git. A
// host that cannot do it gets a note.
func (d *detaching) keepLinked() {
	var lists []sandbox.Linked
	for _, l := range d.Worktree.Linked {
		if l.Why != "" {
			d.note(l.Note(l.Why))
			continue
		}
		lists = append(lists, l)
	}
	if len(lists) == 0 {
		return
	}
	uppers, err := d.linkedUppers(len(lists))
	for i, l := range lists {
		switch {
		case err != nil:
			d.note(l.Note(err.Error()))
		default:
			if err := d.keepList(l, uppers[i]); err != nil && !errors.Is(err, unix.ENOENT) {
				d.note(l.Note(err.Error()))
			}
		}
	}
	for _, u := range uppers {
		_ = u.Close()
	}
}

// linkedUppers makes directories in one file system in memory, each a mount.
func (d *detaching) linkedUppers(n int) ([]*os.File, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.Worktree.Source.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Type == unix.FUSE_SUPER_MAGIC {
		return nil, errors.New("a program serves their file system, and may never answer")
	}
	memory, err := New("tmpfs", "tmpfs", map[string]string{"size": linkedSize, "nr_inodes": linkedInodes, "mode": "0700"}, unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	var names []string
	for i := range n {
		names = append(names, strconv.Itoa(i))
		if err := unix.Mkdirat(int(memory.Fd()), names[i], 0o700); err != nil {
			return nil, err
		}
	}
	return Parts(d.Staging, memory, names)
}

// keepList adds the overlay over a list, and the entries that are the session's to use.
func (d *detaching) keepList(l sandbox.Linked, upper *os.File) error {
	dir, err := beneath.OpenFile(d.Worktree.Source, l.List, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	lower, err := d.ownTree(dir, unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		return err
	}
	defer lower.Close()
	over, err := inodeOf(lower)
	if err != nil {
		return err
	}
	if err := prepareAlike(upper, lower); err != nil {
		return err
	}
	tree, err := Overlay(d.Staging, []*os.File{lower}, upper, RenamesCopy)
	if err != nil {
		return err
	}
	target := filepath.Join(d.Worktree.Target, l.List)
	d.set.Mounts = append(d.set.Mounts, Detached{File: tree, Target: target, Over: over})
	var own []string
	for _, name := range l.Own {
		if d.passEntry(dir, name, filepath.Join(target, name)) == nil {
			own = append(own, name)
		}
	}
	locked, open, err := lockAll(tree, own)
	if err != nil {
		return err
	}
	d.note(fmt.Sprintf("git in this session takes none of the host's linked worktrees away (%s: %d, locked here); one that it adds ends with the session, but for its branch and commits", plain.Name(l.List), locked))
	if open > 0 {
		d.note(fmt.Sprintf("%s has entries that could not be locked for the session, which are %d at most: git may not list them here, and gc --prune=now removes objects that only they need; run git worktree prune on the host", plain.Name(l.List), maxLinked))
	}
	return nil
}

// prepareAlike is PrepareUpper for an overlay whose root lets in who is let in below. Where
// there is an access control list, the group's part of the mode says less than that.
func prepareAlike(upper, lower *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(lower.Fd()), &st); err != nil {
		return err
	}
	n, err := unix.Getxattr(fmt.Sprintf("/proc/self/fd/%d", lower.Fd()), "system.posix_acl_access", nil)
	if err == nil && n > 0 {
		st.Mode &^= 0o070
	}
	return PrepareUpper(upper, int(st.Uid), int(st.Gid), st.Mode)
}

// lockAll locks the entries of a list but some. open is how many could not be locked, if
// only because they are too many, or a link; a file is no entry.
func lockAll(tree *os.File, but []string) (locked, open int, err error) {
	dir, err := beneath.OpenFile(tree, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return 0, 0, err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(maxLinked + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, err
	}
	for i, e := range entries {
		switch {
		case i == maxLinked:
			return locked, open + 1, nil
		case slices.Contains(but, e.Name()), e.Type().IsRegular():
		case lock(tree, e.Name()) == nil:
			locked++
		default:
			open++
		}
	}
	return locked, open, nil
}

// lock makes git keep an entry: it does where there is a file of this name.
func lock(tree *os.File, name string) error {
	dir, err := beneath.OpenFile(tree, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return err
	}
	f, err := beneath.OpenFile(dir, "locked", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o644)
	if errors.Is(err, unix.EEXIST) {
		return nil // on the host too
	} else if err != nil {
		return err
	}
	_, err = f.WriteString(lockReason)
	return errors.Join(err, f.Chown(int(st.Uid), int(st.Gid)), f.Chmod(0o644), f.Close())
}

// passEntry mounts an entry of a list over itself, as the host has it.
func (d *detaching) passEntry(list *os.File, name, target string) error {
	dir, err := beneath.OpenFile(list, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	f, err := d.ownTree(dir, 0)
	if err != nil {
		return err
	}
	d.add(f, target)
	return nil
}
