// Package worktree decides which host directories a session may be given, and
// pins them: it returns an open directory, and the path is never used again, so
// nothing can be swapped after the decision.
package worktree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/thread"
)

// Errors that callers tell apart. All come wrapped in what was asked for and
// what to do instead.
var (
	// ErrForbidden: the directory is outside the allowed roots, or one of the
	// host's own.
	ErrForbidden = errors.New("forbidden")
	// ErrInvalidPath: the path is malformed, does not exist, leads over a
	// symbolic link or is no directory.
	ErrInvalidPath = errors.New("invalid path")
	// ErrNotAllowed: the user may not open the directory.
	ErrNotAllowed = errors.New("not allowed")
	// ErrReadOnly: the user may read the directory and not write to it.
	ErrReadOnly = errors.New("not writable")
)

// Rules say which directories may be pinned.
type Rules struct {
	// Roots are the directories at or below which a source must lie. They are
	// the administrator's and may themselves be reached over links.
	Roots []string
	// Setting is where an administrator has them from, for the words to who is refused.
	Setting string
	// AnyRoot allows every directory where Roots is empty: for administrators.
	AnyRoot bool
	// Private are toold's own directories (state, run, socket), which no session
	// ever gets, in addition to the host's own places.
	Private []string
	// User is whose rights count on the way to the directory and for it: he must be
	// able to list it and to enter it. Nil is toold itself: for administrators.
	User *thread.User
	// Write asks that the user may write to the directory.
	Write bool
	// Git asks where the repository of the directory is.
	Git bool
	// Linked is where a session will see the directory, "" for not asking: which lists of
	// linked worktrees are in it, that git would change there.
	Linked string
}

// Directory is a pinned directory. The caller closes it.
type Directory struct {
	*os.File        // opened with O_PATH
	Path     string // absolute, without links, as it was when it was opened
	// Source says what it is, for those who look at its path later.
	Source Source
	// UID and GID are whose rights a session may have below it: those of Rules.User,
	// with the directory's group if he is in it, and without one the owner's.
	UID, GID uint32
	// Disk is its file system, as it was then.
	Disk unix.Statfs_t
	// Git is set where Rules.Git asks for it, and the repository is somewhere else.
	Git *Elsewhere
	// Repository says that a repository is in the directory, where Rules.Git asks for it.
	Repository bool
	// Linked are the lists that Rules.Linked asks for.
	Linked []Linked
}

// Close closes it, and the git directory that was found with it.
func (d *Directory) Close() error {
	err := d.File.Close()
	if d.Git != nil && d.Git.Dir != nil {
		err = errors.Join(err, d.Git.Dir.Close())
	}
	return err
}

// Pin opens source for use as a worktree or mount. Every refusal says why. It may
// hang where the file system does; see Pinner.
func Pin(source string, rules Rules) (*Directory, error) {
	if err := checkSyntax(source); err != nil {
		return nil, fmt.Errorf("%q: %w", source, err)
	}
	root, err := rules.rootOf(source)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	// The lexical check comes first: a refused place is not even looked at, and
	// whether it exists is not told.
	if err := rules.checkPlace(source); err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	f, link, err := rules.open(root, source)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	d := &Directory{File: f}
	if err := d.look(source, link, rules.User); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", source, err), d.Close())
	}
	// By toold itself: the user may not be able to see what is forbidden.
	if err := rules.checkOpened(d); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", source, err), d.Close())
	}
	if rules.Git {
		d.Git = rules.findGit(d)
	}
	if rules.Linked != "" {
		d.Linked = rules.findLinked(d)
	}
	return d, nil
}

func checkSyntax(p string) error {
	switch {
	case p == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidPath)
	case len(p) >= unix.PathMax:
		return fmt.Errorf("%w: it is longer than %d bytes", ErrInvalidPath, unix.PathMax-1)
	case strings.ContainsRune(p, 0):
		return fmt.Errorf("%w: it holds a NUL byte", ErrInvalidPath)
	case !filepath.IsAbs(p):
		return fmt.Errorf("%w: it must be absolute", ErrInvalidPath)
	case filepath.Clean(p) != p:
		return fmt.Errorf("%w: write it as %q", ErrInvalidPath, filepath.Clean(p))
	}
	return nil
}

// rootOf finds the root that source lies under. With several, the longest: its
// link-free part is the shortest.
func (r Rules) rootOf(source string) (string, error) {
	best := ""
	for _, root := range r.Roots {
		if Within(source, filepath.Clean(root)) && len(root) > len(best) {
			best = filepath.Clean(root)
		}
	}
	switch {
	case best != "":
		return best, nil
	case len(r.Roots) == 0 && r.AnyRoot:
		return "/", nil
	case len(r.Roots) == 0:
		return "", fmt.Errorf("%w: no directory is allowed", ErrForbidden)
	default:
		return "", fmt.Errorf("%w: it is not below an allowed root (%s)", ErrForbidden, strings.Join(r.Roots, ", "))
	}
}

// open opens source beneath root with the user's rights, and says whether it is a link.
func (r Rules) open(root, source string) (f *os.File, link bool, err error) {
	err = r.asUser(func() (err error) {
		if f, link, err = open(root, source); err == nil && r.User != nil {
			err = r.checkAccess(f)
		}
		return err
	})
	if err != nil && f != nil {
		err = errors.Join(err, f.Close())
	}
	if r.User != nil && errors.Is(err, unix.EACCES) && !errors.Is(err, ErrReadOnly) {
		err = fmt.Errorf("%w: user %d may not open it: %w", ErrNotAllowed, r.User.UID, unix.EACCES)
	}
	return f, link, err
}

// checkAccess asks the kernel what the thread's user may do: a directory can be
// opened with O_PATH by everyone who reaches it.
func (r Rules) checkAccess(f *os.File) error {
	const flags = unix.AT_EACCESS | unix.AT_EMPTY_PATH
	if err := unix.Faccessat2(int(f.Fd()), "", unix.R_OK|unix.X_OK, flags); err != nil {
		return err
	}
	if !r.Write {
		return nil
	}
	if err := unix.Faccessat2(int(f.Fd()), "", unix.W_OK, flags); err != nil {
		return fmt.Errorf("%w: user %d may read it and not write to it: %w", ErrReadOnly, r.User.UID, err)
	}
	return nil
}

// open opens source beneath root, over no link but the root itself, and says whether it is that.
func open(root, source string) (f *os.File, link bool, err error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY
	dir, err := os.OpenFile(root, flags|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOTDIR) {
		dir, err = os.OpenFile(root, flags, 0)
		link = source == root
	}
	if err != nil {
		return nil, false, fmt.Errorf("%w: root: %w", ErrInvalidPath, err)
	}
	defer dir.Close()
	rel, err := filepath.Rel(root, source)
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrInvalidPath, err)
	}
	fd, err := unix.Openat2(int(dir.Fd()), rel, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, false, fmt.Errorf("%w: a symbolic link is on the way; name the directory itself", ErrInvalidPath)
	case err != nil:
		return nil, false, fmt.Errorf("%w: %w", ErrInvalidPath, err)
	}
	return os.NewFile(uintptr(fd), source), link, nil
}

// look reads what the directory is that was found at source, whose, and where it really is.
func (d *Directory) look(source string, link bool, user *thread.User) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &st); err != nil {
		return err
	}
	if st.Nlink == 0 {
		return fmt.Errorf("%w: it has been removed", ErrInvalidPath)
	}
	d.UID, d.GID = st.Uid, st.Gid
	if user != nil {
		d.UID = user.UID
		if !user.In(st.Gid) {
			d.GID = user.GID
		}
	}
	var err error
	if d.Source, err = SourceOf(source, d.File); err != nil {
		return err
	}
	d.Source.Link = link
	d.Path, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", d.Fd()))
	return err
}

// Within says whether p is dir or below it. Both are absolute and clean.
func Within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}
