package root

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Replacement is one file that is about to get new content, or to be made. It
// holds the file's directory open, so that wherever the tree moves the result
// lands beside the file that was read, and it holds a lock on the file, so that
// of two replacements at once the second begins when the first has ended.
//
// The file is replaced whole: a reader, or a process killed in between, finds
// the old content or the new and never a part of it.
type Replacement struct {
	r     *Root
	path  string
	base  string
	dirfd int // O_PATH
	oldfd int // locked; -1 when there is no file
	info  Info
	old   []byte // all of the present content, when known is set
	known bool
	// overLink: there is a link, which counts as no file.
	overLink bool
	t        *temp // content that was appended, nil while there is none
}

// BeginOptions are the ways to begin a replacement.
type BeginOptions struct {
	// Parents makes missing directories.
	Parents bool
	// OverLink replaces a link that is there itself. Without it that is Stale.
	OverLink bool
}

// CommitOptions are the ways to end a replacement.
type CommitOptions struct {
	// Durable waits until the content and the directory are on the disk.
	Durable bool
	// Mode has the permission bits of a new file; nil = a new file's. One that is replaced
	// keeps its own.
	Mode *fs.FileMode
}

// Committed says what a replacement did.
type Committed struct {
	Info Info
	// NotKept names properties of the old file that the new one could not be
	// given ("group 65534", "xattr user.x").
	NotKept []string
	// Names is how many names the old file had, if several: the others keep the old content.
	Names int
}

const (
	// lockWait is how long another may take that replaces the same file: it reads,
	// compares and syncs, on a host that may have much else to do.
	lockWait  = 5 * time.Second
	lockPause = 2 * time.Millisecond
	// Content up to recheckMax is compared again right before it is replaced,
	// because a change within the same tick of the kernel's clock can leave the
	// times as they were.
	recheckMax = 1 << 20
)

var errLocked = errors.New("locked")

// Begin prepares to replace, or to make, the file at a canonical path. A file
// that is locked by somebody else for longer than lockWait is Failed.
func (r *Root) Begin(ctx context.Context, canonical string, o BeginOptions) (*Replacement, error) {
	if err := checkPath(canonical); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(r.patient)
	for {
		var p *Replacement
		err := r.do(ctx, func() error {
			var err error
			p, err = r.begin(canonical, o)
			return err
		})
		if !errors.Is(err, errLocked) {
			return p, err
		}
		if time.Now().After(deadline) {
			return nil, sysError("write to", canonical, unix.EAGAIN)
		}
		select {
		case <-ctx.Done():
			return nil, aborted(ctx)
		case <-time.After(lockPause):
		}
	}
}

func (r *Root) begin(canonical string, o BeginOptions) (*Replacement, error) {
	dirfd, base, err := r.openParent(canonical, o.Parents)
	if err != nil {
		return nil, err
	}
	p := &Replacement{r: r, path: canonical, base: base, dirfd: dirfd, oldfd: -1, info: Info{Path: canonical}}
	p.overLink = o.OverLink && p.isLink()
	if p.overLink {
		return p, nil
	}
	if err := p.openOld(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Replacement) isLink() bool {
	var st unix.Stat_t
	err := unix.Fstatat(p.dirfd, p.base, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && kindOf(st.Mode) == KindSymlink
}

// openOld opens and locks the file that is there, if one is.
func (p *Replacement) openOld() error {
	fd, info, err := openRegular(p.dirfd, p.base, p.path, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
	if CodeOf(err) == NotExist {
		return nil
	}
	if err != nil {
		return err
	}
	p.oldfd, p.info = fd, info
	if err := unix.Faccessat(p.dirfd, p.base, unix.W_OK, unix.AT_EACCESS); err != nil {
		return ownedAt(judgedError("write to", p.path, err), p.dirfd, p.base)
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if err == unix.EWOULDBLOCK {
			return errLocked
		}
		return sysError("lock", p.path, err)
	}
	// The one who had the lock may have put another file in its place.
	if err := p.check(); err != nil {
		return errLocked
	}
	if info.Size <= prefetch {
		p.old, p.known, err = readSmall(fd, p.path, info.Size)
	}
	return err
}

// Info is the file as it is before the replacement.
func (p *Replacement) Info() Info { return p.info }

// ReadOld gives the whole present content; more than limit bytes is TooLarge,
// and there is none when the file does not exist. The caller must not change it.
func (p *Replacement) ReadOld(ctx context.Context, limit int64) ([]byte, error) {
	switch {
	case p.oldfd < 0:
		return nil, nil
	case p.known && int64(len(p.old)) > limit:
		return nil, tooLarge(p.path, limit)
	case p.known:
		return p.old, nil
	}
	err := p.r.do(ctx, func() error {
		if _, err := unix.Seek(p.oldfd, 0, unix.SEEK_SET); err != nil {
			return sysError("read", p.path, err)
		}
		old, err := readAll(ctx, func(b []byte) (int, error) { return readOnce(p.oldfd, p.path, b) }, p.info, limit)
		p.old, p.known = old, err == nil
		return err
	})
	return p.old, err
}

// Commit puts content, behind what was appended, in the file's place. It is Stale, and nothing happens,
// when the file is not the one that Begin found or a file has appeared.
func (p *Replacement) Commit(ctx context.Context, content []byte, o CommitOptions) (*Committed, error) {
	var done *Committed
	err := p.r.do(ctx, func() error {
		var err error
		done, err = p.commit(func(t *temp) error { return t.write(ctx, content) }, o)
		return err
	})
	return done, err
}

// Close gives up the lock and the directory. It must be called once, also after Commit.
func (p *Replacement) Close() {
	p.dropTemp()
	if p.oldfd >= 0 {
		unix.Close(p.oldfd)
	}
	unix.Close(p.dirfd)
}

// names is how many names the file that is there has, if several.
func (p *Replacement) names() int {
	var st unix.Stat_t
	if p.oldfd < 0 || unix.Fstat(p.oldfd, &st) != nil || st.Nlink < 2 {
		return 0
	}
	return int(st.Nlink)
}

// Append adds to the new content, in pieces, before Commit.
func (p *Replacement) Append(ctx context.Context, content []byte) error {
	return p.r.do(ctx, func() error { return p.fill(func(t *temp) error { return t.write(ctx, content) }) })
}

// AppendFile is Append of what is left to read of src, which may be more than fits in memory.
func (p *Replacement) AppendFile(ctx context.Context, src *File) error {
	return p.r.do(ctx, func() error { return p.fill(func(t *temp) error { return t.copy(ctx, src) }) })
}

// fill writes to the new content, which it begins.
func (p *Replacement) fill(write func(*temp) error) error {
	if p.t == nil {
		p.r.sweep(p.dirfd)
		t, err := newTemp(p.dirfd, p.info.Exists, p.r.named)
		if err != nil {
			return owned(sysError("write in the directory of", p.path, err), func(st *unix.Stat_t) error { return unix.Fstat(p.dirfd, st) })
		}
		p.t = t
	}
	return sysError("write to", p.path, write(p.t))
}

// dropTemp gives up new content that has no place.
func (p *Replacement) dropTemp() {
	if p.t != nil {
		p.t.close()
		p.t = nil
	}
}

func (p *Replacement) commit(fill func(*temp) error, o CommitOptions) (*Committed, error) {
	defer p.dropTemp()
	if err := p.fill(fill); err != nil {
		return nil, err
	}
	t, done, err := p.t, &Committed{}, error(nil)
	if p.info.Exists {
		if done.NotKept, err = t.adopt(p.oldfd, p.path); err != nil {
			return nil, err
		}
		done.Names = p.names()
	}
	if o.Mode != nil && !p.info.Exists {
		if err := unix.Fchmod(t.fd, uint32(o.Mode.Perm())); err != nil {
			return nil, sysError("set the mode of", p.path, err)
		}
	}
	if o.Durable {
		if err := unix.Fsync(t.fd); err != nil {
			return nil, sysError("sync", p.path, err)
		}
	}
	if err := p.place(t); err != nil {
		return nil, err
	}
	if o.Durable {
		if err := syncDir(p.dirfd); err != nil {
			return nil, sysError("sync the directory of", p.path, err)
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(t.fd, &st); err != nil {
		return nil, sysError("stat", p.path, err)
	}
	done.Info = infoOf(p.path, &st)
	return done, nil
}

// place is the moment at which the new content appears.
func (p *Replacement) place(t *temp) error {
	if p.overLink {
		if err := t.ensureName(); err != nil {
			return sysError("write to", p.path, err)
		}
		return sysError("replace", p.path, t.renameOver(p.base))
	}
	if !p.info.Exists {
		err := t.linkNew(p.base)
		if errors.Is(err, unix.EEXIST) {
			return errf(Stale, "%q has been created by somebody else meanwhile", p.path)
		}
		return sysError("create", p.path, err)
	}
	if err := t.ensureName(); err != nil {
		return sysError("write to", p.path, err)
	}
	if err := p.check(); err != nil {
		return err
	}
	return sysError("replace", p.path, t.renameOver(p.base))
}

// check proves that the name still means the file that Begin found, unchanged.
func (p *Replacement) check() error {
	var st unix.Stat_t
	err := unix.Fstatat(p.dirfd, p.base, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil && err != unix.ENOENT {
		return sysError("stat", p.path, err)
	}
	if err == unix.ENOENT || versionOf(&st) != p.info.Version {
		return p.stale()
	}
	if n := len(p.old); p.known && n <= recheckMax {
		now := make([]byte, n+1)
		got, err := unix.Pread(p.oldfd, now, 0)
		if err != nil || !bytes.Equal(now[:max(got, 0)], p.old) {
			return p.stale()
		}
	}
	return nil
}

func (p *Replacement) stale() error {
	return errf(Stale, "%q has changed since it was read", p.path)
}

func syncDir(dirfd int) error {
	fd, err := unix.Openat(dirfd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fsync(fd)
}

// makeDirs opens the directory at a canonical path, making what is missing of it.
func (r *Root) makeDirs(canonical string) (int, error) {
	fd, err := r.openDir(canonical, unix.O_PATH)
	if CodeOf(err) != NotExist {
		return fd, err
	}
	if fd, err = unix.FcntlInt(uintptr(r.fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return -1, sysError("create", canonical, err)
	}
	for name := range strings.SplitSeq(strings.Trim(canonical, "/"), "/") {
		next, err := makeDir(fd, name)
		unix.Close(fd)
		if err != nil {
			return -1, judgedError("create the directory", canonical, err)
		}
		fd = next
	}
	return fd, nil
}

func makeDir(dirfd int, name string) (int, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW
	fd, err := openat2(dirfd, name, flags, oneName)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	if err := unix.Mkdirat(dirfd, name, 0o777); err != nil && err != unix.EEXIST {
		return -1, err
	}
	return openat2(dirfd, name, flags, oneName)
}
