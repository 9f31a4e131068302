package worktree

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
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
	// Dir is the git directory for a session to read: the one that linked worktrees
	// share, a submodule's own, or .git of the repository at Path. Nil where it is not to
	// be shown; Why says why.
	Dir *Directory
	Why string
	// Names leads from the directory to Dir, absolute or relative, as .git says it. Back
	// leads from Dir to the directory; "" where git does not ask.
	Names, Back string
	// Alternates: some of its objects are in another directory, which is not shown.
	Alternates bool
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
	var e *Elsewhere
	if err := r.asUser(func() error { e = d.elsewhere(); return nil }); err != nil || e == nil {
		return nil
	}
	r.allowed(e)
	if err := r.pinGit(d, e); err != nil {
		e.Why = err.Error()
	}
	return e
}

// asUser calls f with the rights of the user.
func (r Rules) asUser(f func() error) error {
	if r.User == nil {
		return f()
	}
	return r.User.Do(f)
}

func (r Rules) allowed(e *Elsewhere) {
	if !e.Linked {
		_, err := r.rootOf(e.Path)
		e.Allowed = err == nil && r.checkPlace(e.Path) == nil
	}
}

// elsewhere looks at .git of the directory, then at those above it.
func (d *Directory) elsewhere() *Elsewhere {
	kind, ok := kindAt(int(d.Fd()), ".git")
	switch {
	case ok && kind == unix.S_IFDIR:
		d.Repository = true
		return nil
	case ok:
		to, err := linkedTo(int(d.Fd()), kind)
		if err != nil || to == "" {
			return nil
		}
		e := &Elsewhere{Linked: true, Path: resolve(d.Path, to), Names: to}
		if !filepath.IsAbs(to) && Within(e.Path, d.Path) {
			return nil
		}
		return e // an absolute place below the directory is another one in a session
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

// resolve is the place that a text names which is found in dir.
func resolve(dir, text string) string {
	if filepath.IsAbs(text) {
		return filepath.Clean(text)
	}
	return filepath.Join(dir, text)
}

// linkedTo is the place that .git of a directory names; "" for none.
func linkedTo(dir int, kind uint32) (string, error) {
	switch kind {
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(dir, ".git", buf)
		return string(buf[:max(n, 0)]), err
	case unix.S_IFREG:
		text, err := readAt(dir, ".git", maxGitFile)
		to, _ := strings.CutPrefix(text, "gitdir: ")
		if to == text || strings.ContainsRune(to, 0) {
			return "", err
		}
		return strings.TrimRight(to, "\r\n"), err
	}
	return "", nil
}

// readAt reads what has this name below dir, which must be a regular file of at most so
// many bytes: what is nothing but a name for a device or a FIFO is not opened.
func readAt(dir int, name string, most int64) (string, error) {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{
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
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		return "", errors.New("too long")
	}
	return string(text), err
}
