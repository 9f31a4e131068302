// Package worktree decides which host directories a session may be given, and
// pins them: what it returns is an open directory, and from then on nobody looks
// at the path again, so that nothing can be swapped behind a decision.
package worktree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Errors that callers tell apart. Both come wrapped in what was asked for and
// what to do instead.
var (
	// ErrForbidden: the directory is outside the allowed roots, or one of the
	// host's own.
	ErrForbidden = errors.New("forbidden")
	// ErrInvalidPath: the path is malformed, does not exist, leads over a
	// symbolic link or is no directory.
	ErrInvalidPath = errors.New("invalid path")
)

// Rules say which directories may be pinned.
type Rules struct {
	// Roots are the directories at or below which a source must lie. They are
	// the administrator's and may themselves be reached over links.
	Roots []string
	// AnyRoot allows every directory where Roots is empty: for administrators.
	AnyRoot bool
	// Private are toold's own directories (state, run, socket), which no session
	// ever gets, in addition to the host's own places.
	Private []string
}

// Directory is a pinned directory. The caller closes it.
type Directory struct {
	*os.File        // opened with O_PATH
	Path     string // absolute, without links, as it was when it was opened
	UID, GID uint32 // its owner on the host
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
	d, err := open(root, source)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	if err := rules.checkOpened(d); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", source, err), d.Close())
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
		return "", fmt.Errorf("%w: no directory is allowed; an administrator can add one to the configuration's roots", ErrForbidden)
	default:
		return "", fmt.Errorf("%w: it is not below an allowed root (%s)", ErrForbidden, strings.Join(r.Roots, ", "))
	}
}

// open opens source beneath root, over no link.
func open(root, source string) (*Directory, error) {
	dir, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: root: %w", ErrInvalidPath, err)
	}
	defer dir.Close()
	rel, err := filepath.Rel(root, source)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidPath, err)
	}
	fd, err := unix.Openat2(int(dir.Fd()), rel, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("%w: a symbolic link is on the way; name the directory itself", ErrInvalidPath)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrInvalidPath, err)
	}
	d := &Directory{File: os.NewFile(uintptr(fd), source)}
	if err := d.look(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// look reads who owns the directory and where it really is.
func (d *Directory) look() error {
	var st unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &st); err != nil {
		return err
	}
	if st.Nlink == 0 {
		return fmt.Errorf("%w: it has been removed", ErrInvalidPath)
	}
	d.UID, d.GID = st.Uid, st.Gid
	var err error
	d.Path, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", d.Fd()))
	return err
}

// Within says whether p is dir or below it. Both are absolute and clean.
func Within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}
