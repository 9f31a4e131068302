package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// privatePrefix begins the name of every private daemon's directory.
const privatePrefix = "toolctl-run-"

// socketName is where the socket is in the private directory: in toold's run
// directory, which toold makes 0750.
const socketName = "run/toold.sock"

// maxSocketDir is the longest directory in which that still makes a socket
// address (108 bytes with its end).
const maxSocketDir = 107 - len("/"+socketName)

// privateDir makes the directory. Others may pass it, because the users that
// sandboxes run as must reach their root directories in it, but they can neither
// list nor guess what is there, and toold closes what is below.
func privateDir() (string, error) {
	dir, err := os.MkdirTemp("", privatePrefix)
	if err == nil && len(dir) > maxSocketDir {
		_ = os.Remove(dir)
		dir, err = os.MkdirTemp("/tmp", privatePrefix)
	}
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		return "", fmt.Errorf("make a directory for the private daemon: %w", err)
	}
	return dir, nil
}

// notBack are directories of a private daemon's with what has not come back from a
// Docker Engine on another host: archives of worktrees, and sessions that are there
// still.
var notBack = []string{"state/docker/docker-remote/changes", "state/docker/docker-remote/sandboxes"}

// halfApplied are applies that a killed private daemon had decided on. The next one to the same
// source, by any daemon, carries them out.
const halfApplied = "state/worktrees/apply/*/committed"

// removePrivateDir deletes a private daemon's directory, unless it has what is
// nowhere else, or something is still mounted in it: that could be a worktree, and
// removing would go through to its files.
func removePrivateDir(dir string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return fmt.Errorf("%s was not removed: cannot tell whether something is mounted in it: %w", dir, err)
	}
	if len(mounts) > 0 {
		return fmt.Errorf("%s was not removed: %s is still mounted; unmount it, then remove the directory", dir, mounts[0].Mountpoint)
	}
	for _, name := range notBack {
		kept := filepath.Join(dir, name)
		if entries, err := os.ReadDir(kept); len(entries) > 0 || err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("%s was not removed: %s holds worktree changes that were not copied back, or names sessions at a Docker Engine that hold some; run \"toold --state-dir %s/state\" with the same DOCKER_HOST to get these, then remove the directory", dir, kept, dir)
		}
	}
	if plans, err := filepath.Glob(filepath.Join(dir, halfApplied)); len(plans) > 0 || err != nil {
		return fmt.Errorf("%s was not removed: it holds changes that are written to their source in part; run \"toold --state-dir %s/state\" to write the rest, then remove the directory", dir, dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the private daemon's directory: %w", err)
	}
	return nil
}

// sweepPrivateDirs removes what a toolctl that was killed had no time to remove.
// Its daemon has ended by itself. Nothing depends on the sweep, so what it cannot
// remove stays for the next one.
func sweepPrivateDirs(parent string) {
	dirs, _ := filepath.Glob(filepath.Join(parent, privatePrefix+"*"))
	for _, dir := range dirs {
		if abandoned(dir) {
			_ = removePrivateDir(dir)
		}
	}
}

// startingTime is how old a directory must be to count as abandoned: a daemon
// that starts takes its lock within a second.
const startingTime = time.Minute

// abandoned reports whether dir is this user's and no daemon uses it: toold holds
// a lock in its run directory for as long as it lives.
func abandoned(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || time.Since(info.ModTime()) < startingTime {
		return false
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return false
	}
	lock, err := os.OpenFile(filepath.Join(dir, "run", "lock"), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return os.IsNotExist(err)
	}
	defer lock.Close()
	return unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}
