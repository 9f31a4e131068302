package root

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// temp is new content before it has its place: a file without a name where the
// file system can do that, so that nothing is left when the process is killed,
// and otherwise one with a name that cannot be guessed. It is locked as long as
// it is open, which tells a sweep that its maker is alive.
type temp struct {
	fd    int
	dirfd int    // of the Replacement
	name  string // "" while it has none
}

const (
	tempPrefix = ".toold-"
	tempRandom = 16 // bytes
	writeChunk = 1 << 20
	// sweepEntries bounds how much of a directory is looked through.
	sweepEntries = 4096
	// sweptMax bounds how many directories are remembered as swept.
	sweptMax = 4096
	// makingTime is how long an empty file with a name is left alone: its maker may
	// be about to lock it.
	makingTime = 5 * time.Second
	// tempTries is how many files with names may be swept away before they are
	// locked, by sweeps that came later than makingTime.
	tempTries = 16
)

// noTempFiles are the ways in which file systems and kernels say that they have
// no files without names.
var noTempFiles = []unix.Errno{unix.EOPNOTSUPP, unix.EISDIR, unix.EINVAL, unix.ENOENT}

// newTemp makes an empty file in the directory. One that replaces another is
// private until it has taken on the other's mode. Where named is set, or the
// file system cannot do without, it has a name from the beginning.
func newTemp(dirfd int, replaces, named bool) (*temp, error) {
	perm := uint32(0o666) // less the umask
	if replaces {
		perm = 0o600
	}
	t := &temp{fd: -1, dirfd: dirfd}
	err := error(unix.EOPNOTSUPP)
	if !named {
		t.fd, err = unix.Openat(dirfd, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, perm)
	}
	if slices.ContainsFunc(noTempFiles, func(e unix.Errno) bool { return errors.Is(err, e) }) {
		if err := t.createLocked(perm); err != nil {
			return nil, err
		}
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(t.fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// createLocked makes a file with a name and locks it. Between the two a sweep may
// take it for a dead maker's: it has the lock then, or has removed the file.
func (t *temp) createLocked(perm uint32) error {
	for try := 1; ; try++ {
		var st unix.Stat_t
		err := t.createAs(tempName(), perm)
		if err == nil {
			err = unix.Fstatat(t.dirfd, t.name, &st, unix.AT_SYMLINK_NOFOLLOW)
		}
		if err == nil {
			return nil
		}
		t.close()
		swept := errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.ENOENT)
		if !swept || try == tempTries {
			return err
		}
	}
}

// createAs makes the file under this name and locks it.
func (t *temp) createAs(name string, perm uint32) (err error) {
	t.name = ""
	t.fd, err = unix.Openat(t.dirfd, name, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
	if err != nil {
		return err
	}
	t.name = name
	return unix.Flock(t.fd, unix.LOCK_EX|unix.LOCK_NB)
}

func tempName() string {
	var b [tempRandom]byte
	rand.Read(b[:]) // never fails
	return tempPrefix + hex.EncodeToString(b[:])
}

func isTempName(name string) bool {
	digits, ok := strings.CutPrefix(name, tempPrefix)
	if !ok || len(digits) != 2*tempRandom {
		return false
	}
	_, err := hex.DecodeString(digits)
	return err == nil
}

func (t *temp) write(ctx context.Context, content []byte) error {
	for len(content) > 0 {
		if ctx.Err() != nil {
			return aborted(ctx)
		}
		n, err := unix.Write(t.fd, content[:min(len(content), writeChunk)])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		content = content[n:]
	}
	return nil
}

// adopt gives the file the owner, group, access control list, extended
// attributes and mode of the one that it will replace, apart from setuid, setgid
// and capabilities, which writing to a file takes away as well. Nobody may do
// with it what they could not do with the old one: an owner or an access control
// list that cannot be kept is Denied, and where the group cannot be kept, its
// rights are not given to another.
func (t *temp) adopt(oldfd int, path string) (notKept []string, err error) {
	var old, now unix.Stat_t
	if err := unix.Fstat(oldfd, &old); err != nil {
		return nil, sysError("stat", path, err)
	}
	if err := unix.Fstat(t.fd, &now); err != nil {
		return nil, sysError("stat", path, err)
	}
	denied := func(err error, format string, args ...any) error {
		return &Error{Code: Denied, Msg: fmt.Sprintf("cannot replace %q: ", path) + fmt.Sprintf(format, args...), Err: err}
	}
	if old.Uid != now.Uid {
		if err := unix.Fchown(t.fd, int(old.Uid), -1); err != nil {
			return nil, denied(err, "it belongs to user %d and would change its owner", old.Uid)
		}
	}
	mode := old.Mode & 0o1777
	var groupErr error
	if old.Gid != now.Gid {
		if groupErr = unix.Fchown(t.fd, -1, int(old.Gid)); groupErr != nil {
			notKept = append(notKept, "group "+strconv.Itoa(int(old.Gid)))
			mode = withoutGroup(mode)
		}
	}
	hasACL, err := copyACL(oldfd, t.fd)
	switch {
	case err != nil:
		return nil, denied(err, "its access control list could not be kept")
	case hasACL && groupErr != nil:
		return nil, denied(groupErr, "its access control list is about group %d, which could not be kept", old.Gid)
	}
	notKept = append(notKept, copyXattrs(oldfd, t.fd)...)
	if err := unix.Fchmod(t.fd, mode); err != nil {
		return nil, sysError("set the mode of", path, err)
	}
	return notKept, nil
}

// withoutGroup is mode for a file that changes its group: members of the new
// group were among the others before, and those of the old group are from now
// on, so that both get only what group and others had in common.
func withoutGroup(mode uint32) uint32 {
	both := mode >> 3 & mode & 0o7
	return mode&^0o077 | both<<3 | both
}

// linkNew gives the file its first name, which must be free (EEXIST).
func (t *temp) linkNew(base string) error {
	if t.name == "" {
		return t.link(base)
	}
	err := unix.Renameat2(t.dirfd, t.name, t.dirfd, base, unix.RENAME_NOREPLACE)
	if err == unix.EINVAL || err == unix.ENOSYS { // not every file system can
		return unix.Linkat(t.dirfd, t.name, t.dirfd, base, 0) // close removes the other name
	}
	if err == nil {
		t.name = ""
	}
	return err
}

// ensureName gives a file without a name one, since only a name can be renamed.
func (t *temp) ensureName() error {
	if t.name != "" {
		return nil
	}
	name := tempName()
	if err := t.link(name); err != nil {
		return err
	}
	t.name = name
	return nil
}

func (t *temp) link(name string) error {
	return unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(t.fd), t.dirfd, name, unix.AT_SYMLINK_FOLLOW)
}

func (t *temp) renameOver(base string) error {
	err := unix.Renameat(t.dirfd, t.name, t.dirfd, base)
	if err == nil {
		t.name = ""
	}
	return err
}

// close removes what is left of the file under its temporary name.
func (t *temp) close() {
	if t.name != "" {
		_ = unix.Unlinkat(t.dirfd, t.name, 0)
	}
	if t.fd >= 0 {
		unix.Close(t.fd)
	}
}

// sweep removes temporary files whose makers were killed, once for each
// directory. It is best effort: a failure changes nothing for the caller.
func (r *Root) sweep(dirfd int) {
	var st unix.Stat_t
	if unix.Fstat(dirfd, &st) != nil {
		return
	}
	r.mu.Lock()
	_, done := r.swept[keyOf(&st)]
	if len(r.swept) >= sweptMax {
		clear(r.swept)
	}
	r.swept[keyOf(&st)] = struct{}{}
	r.mu.Unlock()
	if done {
		return
	}
	fd, err := unix.Openat(dirfd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	again := false
	defer func() {
		if again {
			r.mu.Lock()
			delete(r.swept, keyOf(&st))
			r.mu.Unlock()
		}
	}()
	buf := make([]byte, dirBuffer)
	for seen := 0; seen < sweepEntries; {
		n, err := unix.Getdents(fd, buf)
		if err != nil || n == 0 {
			return
		}
		entries := parseEntries(buf[:n], nil, nil)
		seen += len(entries)
		for _, e := range entries {
			if isTempName(e.Name) && !removeStale(dirfd, e.Name) {
				again = true
			}
		}
	}
}

// removeStale removes a temporary file that nobody has locked. It is false for one
// that is too new to say whether it has a living maker.
func removeStale(dirfd int, name string) bool {
	fd, _, err := openRegular(dirfd, name, name, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || int(st.Uid) != unix.Geteuid() {
		return true
	}
	if st.Size == 0 && time.Since(time.Unix(st.Ctim.Unix())) < makingTime {
		return false
	}
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = unix.Unlinkat(dirfd, name, 0)
	}
	return true
}
