package root

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Dir is an open directory of a tree that is walked by descriptors: everything in it is
// named by one name alone, so that the length of its path costs nothing. No link is
// followed and no other mount is entered. Its methods are for one goroutine at a time,
// and cheap within Lend.
type Dir struct {
	r     *Root
	fd    int
	path  string // for messages
	mount uint64 // 0 where the kernel does not tell
	dev   uint64
	top   bool // of its mount
}

// Node is one entry of a Dir as it was when it was listed.
type Node struct {
	Name  string // any bytes but NUL and "/"
	Kind  Kind   // KindUnknown for what could not be looked at
	Mode  uint32 // the permission bits, setuid, setgid, sticky
	Size  int64
	MTime int64 // ns
	CTime int64 // ns
	// Denied: a directory that the tool user cannot look into.
	Denied bool
	// Mount: another file system, or another part of this one, is mounted there.
	Mount bool
	// Nameless: no directory has it any more. An overlay goes on to show what was removed
	// or replaced below it, as long as it remembers that. Some file systems count no names.
	Nameless bool
}

// treeResolve opens one name, or a path without a link. That it stays in the mount is
// checked afterwards: not every kernel that tools run on has RESOLVE_NO_XDEV.
const treeResolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// OpenDir opens the directory at a canonical path.
func (r *Root) OpenDir(ctx context.Context, canonical string) (*Dir, error) {
	if err := checkPath(canonical); err != nil {
		return nil, err
	}
	return r.newDir(ctx, canonical, func() (int, error) { return r.openDir(canonical, unix.O_RDONLY) })
}

// OpenDirFD opens, as the tool user, a directory that somebody else has opened: fd stays
// the caller's. What the directory is called in messages is shown.
func (r *Root) OpenDirFD(ctx context.Context, fd int, shown string) (*Dir, error) {
	return r.newDir(ctx, shown, func() (int, error) {
		fd, err := openat2(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY, treeResolve)
		return fd, sysError("open", shown, err)
	})
}

// Dir opens a directory below d, by a path without links and other mounts.
func (d *Dir) Dir(ctx context.Context, below string) (*Dir, error) {
	child, err := d.r.newDir(ctx, d.at(below), func() (int, error) {
		fd, err := openat2(d.fd, below, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, treeResolve)
		return fd, judgedError("open", d.at(below), err)
	})
	if err == nil && (child.mount != d.mount || child.dev != d.dev) {
		child.Close()
		return nil, judgedError("open", child.path, unix.EXDEV)
	}
	return child, err
}

func (r *Root) newDir(ctx context.Context, path string, open func() (int, error)) (*Dir, error) {
	d := &Dir{r: r, path: path}
	err := r.do(ctx, func() (err error) {
		if d.fd, err = open(); err != nil {
			return err
		}
		var st unix.Statx_t
		if err = statx(d.fd, "", unix.AT_EMPTY_PATH, &st); err != nil {
			unix.Close(d.fd)
			return sysError("stat", path, err)
		}
		d.mount, d.dev = mountOf(&st), unix.Mkdev(st.Dev_major, st.Dev_minor)
		d.top = st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
		return nil
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Close closes the directory.
func (d *Dir) Close() { unix.Close(d.fd) }

// Mounted reports whether something was mounted at d's path when it was opened. It is false where the
// kernel does not say, such as in gVisor.
func (d *Dir) Mounted() bool { return d.top }

// InMemory reports whether d lies in a tmpfs, as what an Engine puts where mounts of toold's are to come.
func (d *Dir) InMemory() bool {
	var st unix.Statfs_t
	return unix.Fstatfs(d.fd, &st) == nil && st.Type == unix.TMPFS_MAGIC
}

func (d *Dir) at(name string) string { return d.path + "/" + name }

// List gives the entries whose names come after `after`, sorted by their bytes, the first
// most of them; more says that there are others. It reads the whole directory each time
// and holds about twice as many names as it gives.
func (d *Dir) List(ctx context.Context, after string, most int) (nodes []Node, more bool, err error) {
	err = d.r.do(ctx, func() error {
		var names []Entry
		if names, more, err = d.names(ctx, after, most); err != nil {
			return err
		}
		nodes = make([]Node, 0, len(names))
		gone := false
		for _, e := range names {
			n, ok := d.node(e.Name)
			gone = gone || !ok
			nodes = append(nodes, n)
		}
		if gone {
			nodes, err = d.there(ctx, names, nodes)
		}
		return err
	})
	return nodes, more, err
}

// there drops nodes that are gone. Of what is still listed nobody knows what it is: an overlay that
// was changed below lists names that it does not find.
func (d *Dir) there(ctx context.Context, names []Entry, nodes []Node) ([]Node, error) {
	now, _, err := d.names(ctx, "", math.MaxInt32)
	if err != nil {
		return nil, err
	}
	listed := make(map[string]bool, len(now))
	for _, e := range now {
		listed[e.Name] = true
	}
	left := nodes[:0]
	for i, n := range nodes {
		if name := names[i].Name; n.Name == "" && listed[name] {
			var ok bool
			if n, ok = d.node(name); !ok {
				n = Node{Name: name, Kind: KindUnknown}
			}
		}
		if n.Name != "" {
			left = append(left, n)
		}
	}
	return left, nil
}

// Look looks at the entries of some names, and leaves out what is not there.
func (d *Dir) Look(ctx context.Context, names []string) (nodes []Node, err error) {
	err = d.r.do(ctx, func() error {
		nodes = make([]Node, 0, len(names))
		for i, name := range names {
			if i%1000 == 0 && ctx.Err() != nil {
				return aborted(ctx)
			}
			if n, ok := d.node(name); ok {
				nodes = append(nodes, n)
			}
		}
		return nil
	})
	return nodes, err
}

func (d *Dir) names(ctx context.Context, after string, most int) (names []Entry, more bool, err error) {
	l := listings.Get().(*listing)
	defer listings.Put(l)
	if _, err := unix.Seek(d.fd, 0, unix.SEEK_SET); err != nil {
		return nil, false, sysError("list", d.path, err)
	}
	keep := func(name []byte, _ Kind) bool { return string(name) > after }
	cut := func() {
		slices.SortFunc(names, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
		more = more || len(names) > most
		names = names[:min(len(names), most)]
	}
	for left := true; left; {
		if ctx.Err() != nil {
			return nil, false, aborted(ctx)
		}
		if names, left, err = readEntries(d.fd, d.path, l.buf[:], names, keep); err != nil {
			return nil, false, err
		}
		if len(names) > 2*max(most, 1000) {
			cut()
		}
	}
	cut()
	return names, more, nil
}

// node looks at one name; false for one that is gone.
func (d *Dir) node(name string) (Node, bool) {
	var st unix.Statx_t
	err := statx(d.fd, name, 0, &st)
	switch {
	case errors.Is(err, unix.ENOENT):
		return Node{}, false
	case err != nil:
		return Node{Name: name, Kind: KindUnknown}, true
	}
	n := Node{
		Name: name, Kind: kindOf(uint32(st.Mode)), Mode: uint32(st.Mode) & 0o7777, Size: int64(st.Size),
		MTime: st.Mtime.Sec*1e9 + int64(st.Mtime.Nsec), CTime: st.Ctime.Sec*1e9 + int64(st.Ctime.Nsec),
		Nameless: st.Nlink == 0,
	}
	if n.Kind == KindDir {
		n.Mount = unix.Mkdev(st.Dev_major, st.Dev_minor) != d.dev
		n.Denied = !n.Mount && unix.Faccessat(d.fd, name, unix.R_OK|unix.X_OK, unix.AT_EACCESS) != nil
	}
	if m := mountOf(&st); m != 0 && d.mount != 0 {
		n.Mount = m != d.mount
	}
	return n, true
}

// statx looks at one name, or at dirfd itself. It allocates nothing, as it is called for
// every entry of a tree.
func statx(dirfd int, name string, flags int, st *unix.Statx_t) error {
	var buf [256]byte
	if len(name) >= len(buf) {
		return unix.ENAMETOOLONG
	}
	copy(buf[:], name)
	for {
		_, _, e := unix.Syscall6(unix.SYS_STATX, uintptr(dirfd), uintptr(unsafe.Pointer(&buf)), uintptr(flags|unix.AT_SYMLINK_NOFOLLOW),
			unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, uintptr(unsafe.Pointer(st)), 0)
		switch e {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return e
		}
	}
}

// mountOf is 0 where the kernel does not tell the mount.
func mountOf(st *unix.Statx_t) uint64 {
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return 0
	}
	return st.Mnt_id
}

// Open opens a regular file in d. What is something else by now is NotRegular.
func (d *Dir) Open(ctx context.Context, name string) (*File, error) {
	var f *File
	err := d.r.do(ctx, func() (err error) {
		f, err = d.r.openFile(d.fd, name, d.at(name), treeResolve)
		return err
	})
	return f, err
}

// Readlink is where the link of that name in d leads.
func (d *Dir) Readlink(ctx context.Context, name string) (target string, err error) {
	err = d.r.do(ctx, func() error {
		target, err = readlinkat(d.fd, name)
		return sysError("read the link", d.at(name), err)
	})
	return target, err
}
