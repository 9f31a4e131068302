package root

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/plain"
)

const (
	maxPath = 4095 // bytes, the kernel's limit
	// The kernel gives up a lookup with EAGAIN when anything is renamed
	// meanwhile, which a hostile tree can do all the time; a lookup takes
	// microseconds, so that a few dozen tries almost always get through.
	lookupTries  = 64
	resolveTries = 32
)

const (
	// follow resolves as if the root were "/" and leaves links of /proc alone.
	follow = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
	// noFollow opens what was judged: no link anywhere on the way.
	noFollow = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_SYMLINKS
)

// Resolve follows path, which must be absolute, to what it names and gives its
// canonical path. Nothing is opened for reading.
//
// A path that names nothing resolves to where it would be created, also when
// several of its directories are missing: Exists is false then. A dangling
// link, a loop, and the links of /proc (fd, root, cwd, exe …) are InvalidPath,
// and so is everything in /proc about this process itself, to which the kernel
// grants its own threads more than the tool user has.
func (r *Root) Resolve(ctx context.Context, path string) (Info, error) {
	if err := checkPath(path); err != nil {
		return Info{}, err
	}
	var info Info
	err := r.do(ctx, func() error {
		var err error
		info, err = r.resolveTries(ctx, path)
		return err
	})
	return info, err
}

// Look is Resolve and, where there is a regular file, Open of what it found, at
// the cost of one of them. The Info is valid whenever the path was resolved,
// also when the file cannot be opened; the File is nil for everything else.
func (r *Root) Look(ctx context.Context, path string) (Info, *File, error) {
	if err := checkPath(path); err != nil {
		return Info{}, nil, err
	}
	var info Info
	var f *File
	err := r.do(ctx, func() error {
		var err error
		if info, err = r.resolveTries(ctx, path); err != nil || info.Kind != KindFile {
			return err
		}
		f, err = r.openSeen(info.Path)
		return err
	})
	return info, f, err
}

func (r *Root) resolveTries(ctx context.Context, path string) (Info, error) {
	for range resolveTries {
		if ctx.Err() != nil {
			return Info{}, aborted(ctx)
		}
		if info, again, err := r.resolve(path); !again {
			return info, err
		}
	}
	return Info{}, errf(Stale, "cannot resolve %q: it keeps changing", path)
}

// Lstat describes the entry that path names: links on the way are followed, but
// not one in the last place. Path in the answer is path as it was given.
func (r *Root) Lstat(ctx context.Context, path string) (Info, error) {
	if err := checkPath(path); err != nil {
		return Info{}, err
	}
	var info Info
	err := r.do(ctx, func() (err error) {
		info, err = r.lstat(path)
		return err
	})
	return info, err
}

// LstatEach is Lstat for many paths in one trip to a thread. each is called once
// for each path, in order; it must not call methods of r. When ctx ends, or the
// threads are lost, it gets that error for the paths that are left.
func (r *Root) LstatEach(ctx context.Context, paths []string, each func(path string, info Info, err error)) {
	next := 0
	err := r.do(ctx, func() error {
		for ; next < len(paths); next++ {
			if err := ctx.Err(); err != nil {
				return err
			}
			info, err := Info{}, checkPath(paths[next])
			if err == nil {
				info, err = r.lstat(paths[next])
			}
			each(paths[next], info, err)
		}
		return nil
	})
	for ; err != nil && next < len(paths); next++ {
		each(paths[next], Info{}, err)
	}
}

// lstat runs on a thread of the file tools.
func (r *Root) lstat(path string) (Info, error) {
	fd, err := openat2(r.fd, path, unix.O_PATH|unix.O_NOFOLLOW, follow)
	if err != nil {
		return Info{}, lookupError(path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Info{}, sysError("stat", path, err)
	}
	return infoOf(path, &st), nil
}

func checkPath(path string) error {
	switch {
	case path == "":
		return errf(InvalidPath, "the path is empty").next("name a file or a directory; . is the worktree")
	case strings.IndexByte(path, 0) >= 0:
		return errf(InvalidPath, "the path %q has a NUL byte", plain.Cut(path, 64)).next("leave the NUL byte out: no name has one")
	case len(path) > maxPath:
		return errf(InvalidPath, "the path %q is %d bytes long; the limit is %d", plain.Cut(path, 64), len(path), maxPath).next(shorterNames)
	case path[0] != '/':
		return errf(InvalidPath, "the path %q is not absolute", path)
	}
	return nil
}

// resolve is one try; again means that the tree changed during it.
func (r *Root) resolve(path string) (info Info, again bool, err error) {
	fd, err := openat2(r.fd, path, unix.O_PATH, follow)
	if errors.Is(err, unix.ENOENT) {
		return r.resolveMissing(path)
	}
	if err != nil {
		return Info{}, false, lookupError(path, err)
	}
	defer unix.Close(fd)
	return r.canonical(path, fd)
}

// canonical finds the path of fd. The kernel's word for it is only a candidate:
// it counts when opening it without following links gives the same inode.
func (r *Root) canonical(asked string, fd int) (info Info, again bool, err error) {
	var st, st2 unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Info{}, false, sysError("stat", asked, err)
	}
	full, err := fdPath(fd)
	if errors.Is(err, unix.ENAMETOOLONG) {
		return Info{}, false, sysError("resolve", asked, err)
	}
	if err != nil {
		return Info{}, false, &Error{Code: Failed, Msg: fmt.Sprintf("cannot resolve %q: /proc is not usable: %v", asked, err), Err: err}
	}
	path, ok := r.below(full)
	if !ok {
		return Info{}, true, nil
	}
	fd2, err := openat2(r.fd, path, unix.O_PATH, noFollow)
	if errors.Is(err, unix.EACCES) {
		return Info{}, false, sysError("resolve", asked, err)
	}
	if err != nil {
		return Info{}, true, nil
	}
	defer unix.Close(fd2)
	if err := unix.Fstat(fd2, &st2); err != nil {
		return Info{}, false, sysError("stat", asked, err)
	}
	if keyOf(&st) != keyOf(&st2) {
		return Info{}, true, nil
	}
	if err := r.usable(asked, path); err != nil {
		return Info{}, false, err
	}
	return infoOf(path, &st2), false, nil
}

// usable refuses canonical paths that may not be worked on.
func (r *Root) usable(asked, path string) error {
	switch {
	case !utf8.ValidString(path):
		// Judgement, storage and logs take paths as text; a name that they
		// would change could be judged as another.
		return errf(InvalidPath, "the path %q leads to %q, a name that is not valid UTF-8, which no file tool opens", asked, path).
			next("use bash, which opens it by the escapes in $'…', and can rename it")
	case len(path) > maxPath:
		return errf(InvalidPath, "the path %q leads to one of more than %d bytes", asked, maxPath).next(shorterNames)
	case r.ownProcess(path):
		return errf(InvalidPath, "the path %q is about the sandbox's own agent", asked).next(ownProcess)
	}
	return nil
}

// ownProcess reports whether path lies in a directory of /proc that describes
// this process: the kernel lets every thread look at its own process whatever
// its ids are. Threads can be named there without being listed.
func (r *Root) ownProcess(path string) bool {
	rest, ok := strings.CutPrefix(path, "/proc/")
	if !ok || r.prefix != "" {
		return false
	}
	name, _, _ := strings.Cut(rest, "/")
	tid, err := strconv.ParseUint(name, 10, 31)
	if err != nil {
		return false
	}
	var st unix.Stat_t
	return int(tid) == os.Getpid() || unix.Lstat(fmt.Sprintf("/proc/self/task/%d", tid), &st) == nil
}

// resolveMissing finds where path would be: the nearest directory that exists,
// and the names below it.
func (r *Root) resolveMissing(path string) (info Info, again bool, err error) {
	dir, missing := path, ""
	for {
		dir = strings.TrimRight(dir, "/")
		i := strings.LastIndexByte(dir, '/')
		if i < 0 {
			return Info{}, true, nil // not even the root was there: it changed
		}
		name := dir[i+1:]
		dir = dir[:i+1]
		if name == "." || name == ".." {
			return Info{}, false, errf(InvalidPath, "the path %q goes through a directory that does not exist", path).
				next("give it without the . and .. behind that directory, or make the directory first")
		}
		missing = "/" + name + missing
		fd, err := openat2(r.fd, dir, unix.O_PATH|unix.O_DIRECTORY, follow)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return Info{}, false, lookupError(path, err)
		}
		info, again, err = r.missingBelow(path, fd, name, missing)
		unix.Close(fd)
		return info, again, err
	}
}

// missingBelow ends resolveMissing: name is the first of the names in missing,
// and dirfd the directory that does not have it.
func (r *Root) missingBelow(path string, dirfd int, name, missing string) (Info, bool, error) {
	if strings.HasSuffix(path, "/") {
		return Info{}, false, errf(NotExist, "the directory %q does not exist", path)
	}
	fd, err := openat2(dirfd, name, unix.O_PATH|unix.O_NOFOLLOW, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_MAGICLINKS)
	if err == nil {
		var st unix.Stat_t
		err := unix.Fstat(fd, &st)
		target, _ := readlinkat(fd, "")
		unix.Close(fd)
		if err == nil && kindOf(st.Mode) == KindSymlink {
			return Info{}, false, errf(InvalidPath, "the path %q goes through a dangling symbolic link: %q leads to %q, which does not exist", path, name, target).
				next("make what the link leads to first, remove the link with bash, or give the path of the file that is meant")
		}
		return Info{}, true, nil
	}
	if !errors.Is(err, unix.ENOENT) {
		return Info{}, false, lookupError(path, err)
	}
	parent, again, err := r.canonical(path, dirfd)
	if again || err != nil {
		return Info{}, again, err
	}
	full := strings.TrimSuffix(parent.Path, "/") + missing
	if err := r.usable(path, full); err != nil {
		return Info{}, false, err
	}
	return Info{Path: full}, false, nil
}

// below turns a path of the process into one below the root.
func (r *Root) below(full string) (string, bool) {
	if full == r.prefix {
		return "/", true
	}
	path, ok := strings.CutPrefix(full, r.prefix)
	return path, ok && strings.HasPrefix(path, "/")
}

// lookupError is sysError for paths that come from a caller.
func lookupError(path string, err error) error {
	if errors.Is(err, unix.ELOOP) {
		e := errf(InvalidPath, "cannot follow %q: too many symbolic links (a loop?), or a link of /proc, which may not be followed", path)
		e.Err = err
		return e.next("give the path of the file itself; ls -l in bash shows where a link leads")
	}
	return sysError("resolve", path, err)
}

// openat2 opens path below dirfd; it never blocks and never leaks the
// descriptor to a program.
func openat2(dirfd int, path string, flags int, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: resolve}
	for try := 1; ; try++ {
		fd, err := unix.Openat2(dirfd, path, &how)
		if err == unix.EINTR || err == unix.EAGAIN && try < lookupTries {
			continue
		}
		return fd, err
	}
}

// fdPath is the kernel's name for what fd refers to.
func fdPath(fd int) (string, error) {
	return readlinkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd))
}

func readlinkat(dirfd int, path string) (string, error) {
	buf := make([]byte, maxPath+2)
	n, err := unix.Readlinkat(dirfd, path, buf)
	if err != nil {
		return "", err
	}
	if n > maxPath {
		return "", unix.ENAMETOOLONG
	}
	return string(buf[:n]), nil
}
