package root

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

// oneName opens one name in a directory, and follows nothing.
const oneName = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS

// Peek describes the entry at a canonical path. No link is followed; target is where the
// entry leads if it is one.
func (r *Root) Peek(ctx context.Context, canonical string) (info Info, target string, err error) {
	if err := checkPath(canonical); err != nil {
		return Info{}, "", err
	}
	err = r.do(ctx, func() error {
		fd, err := openat2(r.fd, canonical, unix.O_PATH|unix.O_NOFOLLOW, noFollow)
		if err != nil {
			return judgedError("look at", canonical, err)
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return sysError("look at", canonical, err)
		}
		if info = infoOf(canonical, &st); info.Kind == KindSymlink {
			target, err = readlinkat(fd, "")
		}
		return sysError("read the link", canonical, err)
	})
	return info, target, err
}

// NewDir is a directory that MakeDir has made.
type NewDir struct {
	path string
	key  fileKey
}

// MakeDir makes the directory at a canonical path with these permission bits, and those
// that are missing on the way to it; its maker may always use it. made is nil where there
// is a directory already, which keeps its bits.
func (r *Root) MakeDir(ctx context.Context, canonical string, mode fs.FileMode) (made *NewDir, err error) {
	if err := checkPath(canonical); err != nil {
		return nil, err
	}
	err = r.do(ctx, func() error {
		made, err = r.makeNewDir(canonical, mode)
		return err
	})
	return made, err
}

func (r *Root) makeNewDir(canonical string, mode fs.FileMode) (*NewDir, error) {
	dirfd, base, err := r.openParent(canonical, true)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dirfd)
	fd, err := openat2(dirfd, base, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, oneName)
	if err == nil {
		unix.Close(fd)
		return nil, nil
	}
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return nil, errf(NotRegular, "%q is there and is not a directory", canonical)
	}
	if err := unix.Mkdirat(dirfd, base, 0o700); err != nil {
		return nil, ownedAt(sysError("create the directory", canonical, err), dirfd, ".")
	}
	fd, err = openat2(dirfd, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, oneName)
	if err != nil {
		return nil, judgedError("create the directory", canonical, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, sysError("stat", canonical, err)
	}
	d := &NewDir{path: canonical, key: keyOf(&st)}
	return d, sysError("set the mode of", canonical, unix.Fchmod(fd, uint32(mode.Perm()|0o700)))
}

// SetMode gives a new directory its permission bits, if it still is where it was made.
func (r *Root) SetMode(ctx context.Context, d *NewDir, mode fs.FileMode) error {
	return r.do(ctx, func() error {
		fd, err := openat2(r.fd, d.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, noFollow)
		if err != nil {
			return judgedError("set the mode of", d.path, err)
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || keyOf(&st) != d.key {
			return errf(Stale, "%q is not the directory that was made", d.path)
		}
		return sysError("set the mode of", d.path, unix.Fchmod(fd, uint32(mode.Perm())))
	})
}

// PutLink makes a symbolic link at a canonical path, with the directories that are missing
// on the way. A link or a file that is there is replaced in one step.
func (r *Root) PutLink(ctx context.Context, canonical, target string) error {
	if err := checkPath(canonical); err != nil {
		return err
	}
	return r.do(ctx, func() error {
		dirfd, base, err := r.openParent(canonical, true)
		if err != nil {
			return err
		}
		defer unix.Close(dirfd)
		err = unix.Symlinkat(target, dirfd, base)
		if !errors.Is(err, unix.EEXIST) {
			return ownedAt(sysError("create the link", canonical, err), dirfd, ".")
		}
		return replaceByLink(dirfd, base, canonical, target)
	})
}

// replaceByLink puts a link into the place of a link or a file.
func replaceByLink(dirfd int, base, canonical, target string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return sysError("replace", canonical, err)
	}
	if k := kindOf(st.Mode); k != KindSymlink && k != KindFile {
		return errf(NotRegular, "%q is there and is a %s", canonical, k)
	}
	name := tempName()
	if err := unix.Symlinkat(target, dirfd, name); err != nil {
		return ownedAt(sysError("create the link", canonical, err), dirfd, ".")
	}
	err := unix.Renameat(dirfd, name, dirfd, base)
	if err != nil {
		_ = unix.Unlinkat(dirfd, name, 0)
	}
	return sysError("replace", canonical, err)
}

// openParent opens the directory of a canonical path, which make makes where it is
// missing, and gives the last name of the path.
func (r *Root) openParent(canonical string, mk bool) (dirfd int, base string, err error) {
	if r.ownProcess(canonical) {
		return -1, "", errf(InvalidPath, "the path %q is about the sandbox's own agent", canonical).next(ownProcess)
	}
	i := strings.LastIndexByte(canonical, '/')
	dir, base := canonical[:i+1], canonical[i+1:]
	if base == "" || base == "." || base == ".." {
		return -1, "", errf(NotRegular, "%q is a directory", canonical)
	}
	if mk {
		dirfd, err = r.makeDirs(dir)
	} else {
		dirfd, err = r.openDir(dir, unix.O_PATH)
	}
	return dirfd, base, err
}
