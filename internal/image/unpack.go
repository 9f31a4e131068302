package image

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
)

const (
	// maxID is the highest owner that a sandbox's user namespace has a place for.
	maxID = 65535
	// keptMode are the bits of a mode that are kept. Set-uid and set-gid bits are
	// not: no program in a sandbox may gain anything by being executed (the agent
	// sets no_new_privs), and on the host's disk such a file of a stranger's would
	// be a way to root for whoever comes to reach it. File capabilities, like all
	// extended attributes, are dropped for the same reason, and because the
	// overlay file system takes some of them for its own.
	keptMode = 0o1777
)

// unpacker applies layers to a directory, one after the other. After an error
// the directory is of no use.
type unpacker struct {
	tree   *tree
	budget *budget
	buf    []byte

	made     *made                // by the current layer
	times    map[string]time.Time // of the current layer's directories, by real path
	written  int64                // bytes by the current layer
	maxBytes int64                // for written
}

// newUnpacker makes an unpacker for an empty directory, which stays the caller's.
func newUnpacker(fd int, b *budget) (*unpacker, error) {
	t, err := openTree(fd, b)
	if err != nil {
		return nil, err
	}
	return &unpacker{tree: t, budget: b, buf: make([]byte, 256<<10)}, nil
}

func (u *unpacker) close() { u.tree.forget() }

// apply unpacks one layer, an uncompressed tar stream, which it reads up to the
// end of the archive; maxBytes bounds the sum of its files' sizes.
func (u *unpacker) apply(ctx context.Context, layer io.Reader, maxBytes int64) error {
	u.made, u.times, u.written, u.maxBytes = newMade(), map[string]time.Time{}, 0, maxBytes
	archive := tar.NewReader(layer)
	for {
		h, err := archive.Next()
		if err == io.EOF {
			return u.setTimes()
		}
		if err != nil {
			return tarError(ctx, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := u.entry(h, archive); err != nil {
			return fmt.Errorf("entry %q: %w", quotable(h.Name), tarError(ctx, err))
		}
	}
}

// tarError says of errors of the archive that it is damaged.
func tarError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: the archive ends too early", ErrInvalid)
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong):
		return fmt.Errorf("%w: the archive is damaged: %w", ErrInvalid, err)
	}
	return err
}

func (u *unpacker) entry(h *tar.Header, content io.Reader) error {
	if err := u.budget.entry(len(h.Name) + len(h.Linkname)); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil // says nothing that matters here; archives of git begin with one
	}
	name, err := checkName(h.Name)
	if err != nil {
		return err
	}
	if base := path.Base(name); strings.HasPrefix(base, whiteoutPrefix) {
		return u.whiteout(name, base)
	}
	if i := strings.Index("/"+name, "/"+whiteoutPrefix); i >= 0 {
		return fmt.Errorf("%w: it is below a name that means a removal", ErrRefused)
	}
	if err := checkOwner(h); err != nil {
		return err
	}
	at, err := u.tree.find(name, true)
	if err != nil {
		return err
	}
	if at.base == "" && h.Typeflag != tar.TypeDir {
		return fmt.Errorf("%w: the root must be a directory", ErrRefused)
	}
	return u.put(at, h, content)
}

func checkOwner(h *tar.Header) error {
	if h.Uid < 0 || h.Uid > maxID || h.Gid < 0 || h.Gid > maxID {
		return fmt.Errorf("%w: its owner is %d:%d, and sandboxes have 0 to %d", ErrRefused, h.Uid, h.Gid, maxID)
	}
	return nil
}

// put makes an entry at its place. Which kinds there are is decided here.
func (u *unpacker) put(at place, h *tar.Header, content io.Reader) error {
	var err error
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		err = u.putFile(at, h, content)
	case tar.TypeDir:
		err = u.putDir(at, h)
	case tar.TypeSymlink:
		err = u.putSymlink(at, h)
	case tar.TypeLink:
		err = u.putHardLink(at, h)
	case tar.TypeFifo:
		if err = u.clear(at); err == nil {
			err = u.finish(at, h, unix.Mknodat(at.dir.fd, at.base, unix.S_IFIFO|0o600, 0))
		}
	case tar.TypeChar, tar.TypeBlock:
		if !harmlessDevice(at, h) {
			return fmt.Errorf("%w: it is a device (%d:%d)", ErrRefused, h.Devmajor, h.Devminor)
		}
		return nil // a sandbox has its own /dev
	default:
		return fmt.Errorf("%w: its kind is %q, which no image needs", ErrRefused, h.Typeflag)
	}
	if err == nil {
		u.made.add(at.dir.ino, at.base)
	}
	return err
}

// harmlessDevices are those character devices that every container has, which
// archives of whole systems bring along: null, zero, full, random, urandom, kmsg;
// tty, console, ptmx; fuse.
var harmlessDevices = map[[2]int64]bool{
	{1, 3}: true, {1, 5}: true, {1, 7}: true, {1, 8}: true, {1, 9}: true, {1, 11}: true,
	{5, 0}: true, {5, 1}: true, {5, 2}: true,
	{10, 229}: true,
}

func harmlessDevice(at place, h *tar.Header) bool {
	if top, _, _ := strings.Cut(at.dir.path, "/"); top != "dev" || h.Typeflag != tar.TypeChar {
		return false
	}
	// Virtual terminals are 4:0 to 4:63.
	return harmlessDevices[[2]int64{h.Devmajor, h.Devminor}] || h.Devmajor == 4 && h.Devminor < 64
}

// clear removes what is at a place, with all that is in it.
func (u *unpacker) clear(at place) error {
	err := unix.Unlinkat(at.dir.fd, at.base, 0)
	switch {
	case err == nil:
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EISDIR):
		if err := beneath.RemoveAt(at.dir.fd, at.base); err != nil {
			return err
		}
	default:
		return err
	}
	// The directory that is kept is the one of at, so it was not removed; but
	// its path may lead over what was, or over what will be here.
	u.tree.lastName = ""
	return nil
}

func (u *unpacker) putDir(at place, h *tar.Header) error {
	if at.base == "" {
		// The tool user must get in, whatever directory somebody has packed.
		return u.finishDir(u.tree.root.fd, "", h, 0o555)
	}
	err := unix.Mkdirat(at.dir.fd, at.base, 0o700)
	if errors.Is(err, unix.EEXIST) && !isDir(at) {
		if err = u.clear(at); err == nil {
			err = unix.Mkdirat(at.dir.fd, at.base, 0o700)
		}
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	fd, err := unix.Openat(at.dir.fd, at.base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return u.finishDir(fd, at.dir.join(at.base), h, 0)
}

func isDir(at place) bool {
	var st unix.Stat_t
	err := unix.Fstatat(at.dir.fd, at.base, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

func (u *unpacker) finishDir(fd int, realPath string, h *tar.Header, atLeast uint32) error {
	if err := u.budget.name(len(realPath)); err != nil {
		return err
	}
	u.times[realPath] = h.ModTime
	if err := unix.Fchown(fd, h.Uid, h.Gid); err != nil {
		return err
	}
	return unix.Fchmod(fd, uint32(h.Mode)&keptMode|atLeast)
}

func (u *unpacker) putFile(at place, h *tar.Header, content io.Reader) error {
	if err := u.mayWrite(h.Size); err != nil {
		return err
	}
	if err := u.clear(at); err != nil {
		return err
	}
	fd, err := unix.Openat(at.dir.fd, at.base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), at.base)
	_, err = io.CopyBuffer(&paid{f, u.budget}, content, u.buf)
	return u.finish(at, h, errors.Join(err, f.Close()))
}

// paid is a file whose bytes the budget counts before they are written.
type paid struct {
	file   *os.File
	budget *budget
}

func (p *paid) Write(b []byte) (int, error) {
	if err := p.budget.write(int64(len(b))); err != nil {
		return 0, err
	}
	return p.file.Write(b)
}

// mayWrite counts a file before its first byte is written: a sparse file's size
// has nothing to do with how many bytes the archive has for it.
func (u *unpacker) mayWrite(size int64) error {
	if size < 0 {
		return fmt.Errorf("%w: its size is negative", ErrInvalid)
	}
	if size > u.budget.limits.FileBytes {
		return fmt.Errorf("%w: it has %d bytes, and a file may have %d", ErrTooLarge, size, u.budget.limits.FileBytes)
	}
	if u.written += size; u.written > u.maxBytes {
		return fmt.Errorf("%w: the layer unpacks to more than %d times its size, as only bombs do", ErrTooLarge, u.budget.limits.Ratio)
	}
	return u.budget.room(size)
}

// diskError is ErrNoSpace where that was the reason.
func diskError(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// putSymlink makes a link that says what the image says: nothing on the host
// follows it, and in a sandbox "/" is the sandbox's.
func (u *unpacker) putSymlink(at place, h *tar.Header) error {
	switch {
	case h.Linkname == "":
		return fmt.Errorf("%w: it is a link to nothing", ErrRefused)
	case len(h.Linkname) >= maxPath:
		return fmt.Errorf("%w: it is a link to a name of more than %d bytes", ErrRefused, maxPath-1)
	case strings.IndexByte(h.Linkname, 0) >= 0:
		return fmt.Errorf("%w: it is a link to a name with a NUL byte", ErrRefused)
	}
	if err := u.clear(at); err != nil {
		return err
	}
	return u.finish(at, h, unix.Symlinkat(h.Linkname, at.dir.fd, at.base))
}

// putHardLink gives a regular file of the image a second name. The last part of
// the target is not followed, so that a link which leads elsewhere is no detour.
func (u *unpacker) putHardLink(at place, h *tar.Header) error {
	target, err := checkName(h.Linkname)
	if err != nil {
		return fmt.Errorf("it is a hard link to %q: %w", quotable(h.Linkname), err)
	}
	fd, err := u.openTarget(target)
	if err != nil {
		return fmt.Errorf("it is a hard link to %q: %w", quotable(h.Linkname), err)
	}
	defer unix.Close(fd)
	if same, err := isSame(fd, at); err != nil || same {
		return err // removing the one would remove the other
	}
	if err := u.clear(at); err != nil {
		return err
	}
	return linkDescriptor(fd, at)
}

// openTarget finds the file that a hard link means. It leaves the directory
// alone that was found for the entry itself.
func (u *unpacker) openTarget(name string) (int, error) {
	fd, err := openat2(u.tree.root.fd, name, unix.O_PATH|unix.O_NOFOLLOW, resolveInRoot)
	if name == "" || errors.Is(err, unix.ENOENT) {
		return -1, fmt.Errorf("%w: there is none", ErrRefused)
	}
	if err != nil {
		return -1, placeError(err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = fmt.Errorf("%w: it is not a regular file", ErrRefused)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func isSame(fd int, at place) (bool, error) {
	var a, b unix.Stat_t
	if err := unix.Fstat(fd, &a); err != nil {
		return false, err
	}
	err := unix.Fstatat(at.dir.fd, at.base, &b, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && a.Dev == b.Dev && a.Ino == b.Ino, ignore(err, unix.ENOENT)
}

// linkDescriptor names an open file. By its descriptor, since its name could
// lead to something else by now; over /proc, since linkat with an empty path
// wants a capability that a daemon in a container does not have.
func linkDescriptor(fd int, at place) error {
	err := unix.Linkat(unix.AT_FDCWD, procPath(fd), at.dir.fd, at.base, unix.AT_SYMLINK_FOLLOW)
	if errors.Is(err, unix.EMLINK) {
		return fmt.Errorf("%w: the file has more hard links than this file system allows", ErrTooLarge)
	}
	return diskError(err)
}

// finish gives what is no directory its owner, mode and time; err is that of making it.
func (u *unpacker) finish(at place, h *tar.Header, err error) error {
	if err != nil {
		return diskError(err)
	}
	if err := unix.Fchownat(at.dir.fd, at.base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeSymlink {
		if err := unix.Fchmodat(at.dir.fd, at.base, uint32(h.Mode)&keptMode, 0); err != nil {
			return err
		}
	}
	return setTime(at.dir.fd, at.base, h.ModTime)
}

// setTimes gives the layer's directories their times, which making their entries
// has changed.
func (u *unpacker) setTimes() error {
	u.tree.forget()
	for name, t := range u.times {
		fd, err := openat2(u.tree.root.fd, cmp.Or(name, "."), unix.O_PATH|unix.O_DIRECTORY, resolveInRoot|unix.RESOLVE_NO_SYMLINKS)
		if err != nil {
			continue // removed or replaced by a later entry
		}
		err = setTime(fd, "", t)
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}

// setTime sets the modification time of a name in a directory, or of the
// directory itself where the name is empty. A time that the file system cannot
// keep is cut to the nearest.
func setTime(dirfd int, name string, t time.Time) error {
	ts, err := unix.TimeToTimespec(t)
	if err != nil || ts.Sec < 0 {
		ts = unix.Timespec{}
	}
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	return unix.UtimesNanoAt(dirfd, name, []unix.Timespec{ts, ts}, flags)
}
