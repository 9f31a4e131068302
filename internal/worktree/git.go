package worktree

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/thread"
)

// Elsewhere says that the git repository of a directory is not below it, so that git
// does not work where nothing but the directory is shown.
type Elsewhere struct {
	// Linked: .git of the directory names Path, as linked worktrees and submodules
	// have it. Otherwise the directory is a part of the repository at Path.
	Linked bool
	Path   string // absolute
	// Allowed: Path may be used in the place of the directory, as far as the rules say.
	Allowed bool
}

const (
	// maxParents bounds how far up a repository is looked for.
	maxParents = 64
	// maxGitFile bounds the file that names a repository.
	maxGitFile = 8 << 10
)

// findGit looks for the repository of a directory that was just opened, with the
// user's rights; nil where it is in the directory, or where there is none. Git
// itself is never asked: a repository's configuration can make it run programs.
func (r Rules) findGit(d *Directory) *Elsewhere {
	if r.User == nil {
		return r.allowed(d.elsewhere())
	}
	e, err := thread.Run(func() (*Elsewhere, error) {
		if err := r.User.Assume(); err != nil {
			return nil, err
		}
		return d.elsewhere(), nil
	})
	if err != nil {
		return nil
	}
	return r.allowed(e)
}

func (r Rules) allowed(e *Elsewhere) *Elsewhere {
	if e != nil && !e.Linked {
		_, err := r.rootOf(e.Path)
		e.Allowed = err == nil && r.checkPlace(e.Path) == nil
	}
	return e
}

// elsewhere looks at .git of the directory, then at those above it.
func (d *Directory) elsewhere() *Elsewhere {
	kind, ok := kindAt(int(d.Fd()), ".git")
	switch {
	case ok && kind == unix.S_IFDIR:
		return nil
	case ok:
		to, err := linkedTo(int(d.Fd()), kind)
		if err != nil || to == "" {
			return nil
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(d.Path, to)
		} else if to = filepath.Clean(to); Within(to, d.Path) {
			return &Elsewhere{Linked: true, Path: to} // where it is on the host, and not in a session
		}
		if Within(to, d.Path) {
			return nil
		}
		return &Elsewhere{Linked: true, Path: to}
	}
	return d.above()
}

// above looks for a repository that the directory is a part of. Like git it looks no
// further than the file system of the directory.
func (d *Directory) above() *Elsewhere {
	var st unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &st); err != nil {
		return nil
	}
	dev, path, at := st.Dev, d.Path, int(d.Fd())
	for range maxParents {
		if path == "/" {
			return nil
		}
		up, err := unix.Openat(at, "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil
		}
		defer func() { _ = unix.Close(up) }() // maxParents of them at most
		path, at = filepath.Dir(path), up
		if err := unix.Fstat(up, &st); err != nil || st.Dev != dev {
			return nil
		}
		kind, ok := kindAt(up, ".git")
		if !ok {
			continue
		}
		if _, head := kindAt(up, ".git/HEAD"); head || kind != unix.S_IFDIR {
			return &Elsewhere{Path: path}
		}
	}
	return nil
}

// kindAt is the kind of what has this name below dir; no link is followed at its end.
func kindAt(dir int, name string) (kind uint32, ok bool) {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st.Mode & unix.S_IFMT, err == nil
}

// linkedTo is the place that .git of a directory names; "" for none.
func linkedTo(dir int, kind uint32) (string, error) {
	switch kind {
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(dir, ".git", buf)
		return string(buf[:max(n, 0)]), err
	case unix.S_IFREG:
		text, err := readGitFile(dir)
		to, ok := strings.CutPrefix(text, "gitdir: ")
		if !ok {
			return "", err
		}
		return strings.TrimRight(to, "\r\n"), err
	}
	return "", nil
}

// readGitFile reads .git, which must be a regular file: what is nothing but a name for
// a device or a FIFO is not opened.
func readGitFile(dir int) (string, error) {
	fd, err := unix.Openat2(dir, ".git", &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", errors.New("not a regular file")
	}
	f, err := os.Open(fmt.Sprintf("/proc/thread-self/fd/%d", fd))
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxGitFile))
	return string(text), err
}
