package image

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	maxName  = 255  // bytes of one component
	maxPath  = 4096 // bytes of an entry's name
	maxDepth = 256  // directories in one another: what looks through them holds a descriptor for each
)

// place is where an entry goes: a name in an open directory of the tree.
type place struct {
	dir  *directory
	base string // "" is the directory itself, which is the root then
}

// directory is an open directory of the tree.
type directory struct {
	fd   int
	path string // the real one, below the root, without links; "" is the root
	ino  uint64
}

func (d *directory) join(base string) string { return path.Join(d.path, base) }

// tree is the directory that an image is unpacked into. Paths in it are resolved
// by the kernel as if it were the root: links that lead out, or up, lead back in.
type tree struct {
	root   *directory
	prefix string  // path of the root on the host, to tell real paths by
	budget *budget // pays for directories that no entry names

	// The directory of the last entry, since entries of one directory mostly
	// follow each other. Dropped when something is removed or replaced: only
	// that can make the same path lead elsewhere.
	last     *directory
	lastName string
}

// resolveInRoot: "/" and ".." stop at the tree, links of /proc are none, and
// another file system is not entered (none should be there).
const resolveInRoot = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

func openTree(fd int, b *budget) (*tree, error) {
	root, err := newDirectory(fd)
	if err != nil {
		return nil, err
	}
	prefix, err := descriptorPath(fd)
	if err != nil {
		return nil, err
	}
	return &tree{root: root, prefix: prefix, budget: b}, nil
}

func newDirectory(fd int) (*directory, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	return &directory{fd: fd, ino: st.Ino}, nil
}

// forget drops the directory that was kept.
func (t *tree) forget() {
	if t.last != nil && t.last != t.root {
		unix.Close(t.last.fd)
	}
	t.last = nil
}

// checkName gives an entry's name without "." and doubled slashes; "" is the
// root. What could mean a place outside of the tree is refused, though it could
// not be reached: no honest image has it.
func checkName(name string) (string, error) {
	switch {
	case name == "":
		return "", fmt.Errorf("%w: its name is empty", ErrRefused)
	case strings.IndexByte(name, 0) >= 0:
		return "", fmt.Errorf("%w: its name holds a NUL byte", ErrRefused)
	case len(name) > maxPath:
		return "", fmt.Errorf("%w: its name is longer than %d bytes", ErrRefused, maxPath)
	case name[0] == '/':
		return "", fmt.Errorf("%w: its name is absolute", ErrRefused)
	}
	depth := 0
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "..":
			return "", fmt.Errorf("%w: its name holds %q", ErrRefused, "..")
		case len(part) > maxName:
			return "", fmt.Errorf("%w: a part of its name is longer than %d bytes", ErrRefused, maxName)
		}
		depth++
	}
	if depth > maxDepth {
		return "", fmt.Errorf("%w: it is deeper than %d directories", ErrRefused, maxDepth)
	}
	if name = path.Clean(name); name == "." {
		return "", nil
	}
	return name, nil
}

// find gives the place of a checked name. Directories on the way that are
// missing are made, if make is set; otherwise ENOENT is returned. The place's
// directory is valid until the next call.
func (t *tree) find(name string, make bool) (place, error) {
	if name == "" {
		return place{dir: t.root}, nil
	}
	dir, base := path.Split(name)
	dir = strings.TrimSuffix(dir, "/")
	if dir == "" {
		return place{t.root, base}, nil
	}
	if t.last != nil && t.lastName == dir {
		return place{t.last, base}, nil
	}
	t.forget()
	d, err := t.open(dir)
	if errors.Is(err, unix.ENOENT) && make {
		if err = t.makeAll(dir); err == nil {
			d, err = t.open(dir)
		}
	}
	if err != nil {
		return place{}, placeError(err)
	}
	t.last, t.lastName = d, dir
	return place{d, base}, nil
}

func placeError(err error) error {
	switch {
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%w: its path leads over something that is not a directory", ErrRefused)
	case errors.Is(err, unix.ELOOP):
		return fmt.Errorf("%w: its path leads over links in a circle", ErrRefused)
	case errors.Is(err, unix.ENAMETOOLONG):
		return fmt.Errorf("%w: its path is too long", ErrRefused)
	}
	return err
}

// open opens a directory by its path, over links, and finds out where it is.
func (t *tree) open(name string) (*directory, error) {
	fd, err := openat2(t.root.fd, name, unix.O_RDONLY|unix.O_DIRECTORY, resolveInRoot)
	if err != nil {
		return nil, err
	}
	d, err := newDirectory(fd)
	if err == nil {
		d.path, err = t.realPath(fd)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return d, nil
}

// maxRetries bounds how often a path is resolved anew.
const maxRetries = 10_000

// openat2 opens name below dirfd. The kernel does not decide about ".." while
// anything on the machine is renamed or mounted, and wants to be asked again.
func openat2(dirfd int, name string, flags, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve}
	for range maxRetries {
		fd, err := unix.Openat2(dirfd, name, &how)
		if err != unix.EAGAIN && err != unix.EINTR {
			return fd, err
		}
	}
	return -1, unix.EAGAIN
}

// realPath is where an open directory is. Links can make a path deeper than the
// names in it look, so depth is judged here.
func (t *tree) realPath(fd int) (string, error) {
	full, err := descriptorPath(fd)
	if errors.Is(err, unix.ENAMETOOLONG) {
		return "", fmt.Errorf("%w: it is too deep", ErrRefused)
	}
	if err != nil {
		return "", err
	}
	rel, ok := strings.CutPrefix(full, t.prefix)
	if !ok || rel != "" && rel[0] != '/' {
		return "", fmt.Errorf("%w: its path leads to %q, which is outside", ErrRefused, full)
	}
	rel = strings.TrimPrefix(rel, "/")
	if strings.Count(rel, "/") >= maxDepth {
		return "", fmt.Errorf("%w: it is deeper than %d directories", ErrRefused, maxDepth)
	}
	return rel, nil
}

func descriptorPath(fd int) (string, error) {
	buf := make([]byte, 2*maxPath)
	n, err := unix.Readlink(procPath(fd), buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// procPath is a name for an open file, as long as it is open.
func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// makeAll makes a directory and those on the way to it, each as the root of the
// image's and passable. A link on the way that leads nowhere is refused: to
// follow it would make directories where no entry names any.
func (t *tree) makeAll(name string) error {
	at := t.root
	defer func() { t.closeOther(at) }()
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		next, err := t.open(name[:i])
		if errors.Is(err, unix.ENOENT) {
			if err = t.makeOne(at.fd, name[:i]); err == nil {
				next, err = t.open(name[:i])
			}
		}
		if err != nil {
			return err
		}
		t.closeOther(at)
		at = next
	}
	return nil
}

// makeOne makes a directory, of which dirfd is the parent.
func (t *tree) makeOne(dirfd int, name string) error {
	if err := t.budget.entry(0); err != nil {
		return err
	}
	base := path.Base(name)
	err := unix.Mkdirat(dirfd, base, 0o755)
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w: its path leads over %q, a link to nowhere", ErrRefused, quotable(name))
	}
	if err != nil {
		return diskError(err)
	}
	return unix.Fchmodat(dirfd, base, 0o755, 0) // whatever the umask
}

func (t *tree) closeOther(d *directory) {
	if d != t.root {
		unix.Close(d.fd)
	}
}

// quotable cuts a hostile name to what fits into a message, which quotes it.
func quotable(name string) string {
	const most = 200
	if len(name) <= most {
		return name
	}
	return name[:most] + "…"
}
