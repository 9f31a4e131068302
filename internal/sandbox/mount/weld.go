package mount

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
)

// The attributes by which an overlay of RenamesRedirect says what a directory of a layer is. No
// process without the daemon's rights can set them.
const (
	overlayAttr  = "trusted.overlay."
	redirectAttr = overlayAttr + "redirect"
	opaqueAttr   = overlayAttr + "opaque"
	metacopyAttr = overlayAttr + "metacopy"
	originAttr   = overlayAttr + "origin" // what a copied directory was in the layer below
)

// maxWeldOpen bounds the directories that Weld has open at once, and maxWeldLed what it gives, in
// bytes of paths: each may have megabytes.
const (
	maxWeldOpen = 8192
	maxWeldLed  = 32 << 20
)

// ErrWeld: these layers cannot be made one without a look into their files.
var ErrWeld = errors.New("the layers cannot be made one as they are")

// Weld makes an empty directory on the file system of some layers a layer that is the same as
// all of them together, the uppermost first, over whatever lies below. All are of
// RenamesRedirect. No file is read: each gets one name more, whatever it is, and whoever may
// read it. Whoever works with the layers sees that in its change time. Led are the directories
// that show what a layer below has under another name, as paths in the layer.
//
// It follows fs/overlayfs/namei.c. Layers on several file systems are ErrWeld, and what is too
// deep. After an error the directory has a part.
func Weld(ctx context.Context, into *os.File, layers []*os.File) (led []string, err error) {
	w := &weld{ctx: ctx, room: maxWeldLed}
	defer func() {
		for _, r := range w.roots {
			w.close(r.fd)
		}
	}()
	_, top, _ := strings.Cut(layerUpper, "/")
	for i, l := range layers {
		fd, err := w.open(int(l.Fd()), top)
		if errors.Is(err, unix.ENOENT) {
			continue // it was never mounted
		}
		if err != nil {
			return nil, err
		}
		w.roots = append(w.roots, part{i, fd})
	}
	if len(w.roots) == 0 {
		return nil, nil
	}
	err = w.dir(int(into.Fd()), top, "", &looked{dirs: w.roots, name: "/"})
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EMLINK) || errors.Is(err, unix.EMFILE) {
		err = fmt.Errorf("%w: %w", ErrWeld, err)
	}
	return w.led, err
}

// weld is what goes on in Weld.
type weld struct {
	ctx    context.Context //nolint:containedctx // of the one call that it lives for
	roots  []part
	opened int
	led    []string
	room   int // of maxWeldLed
}

// part is a directory of one layer.
type part struct{ layer, fd int }

// looked is what the layers have at one name.
type looked struct {
	dirs []part // the uppermost first
	// file: it is none, and from is the directory that has it.
	file bool
	from int
	mode uint32
	// name is that under which layers below have it: one, or with a slash before it a path
	// from their roots. stop: they do not show.
	name string
	stop bool
	gone bool // there is nothing, whatever they have
}

func (w *weld) open(dir int, name string) (int, error) {
	if w.opened >= maxWeldOpen {
		return -1, fmt.Errorf("%w: too deep", ErrWeld)
	}
	fd, err := beneath.Open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err == nil {
		w.opened++
	}
	return fd, err
}

func (w *weld) close(fd int) {
	w.opened--
	_ = unix.Close(fd) // it was only read
}

func (w *weld) closeAll(parts []part) {
	for _, p := range parts {
		w.close(p.fd)
	}
}

// dir makes one directory, and all that is in it.
func (w *weld) dir(into int, name, place string, from *looked) error {
	if err := unix.Mkdirat(into, name, 0o700); err != nil {
		return &os.PathError{Op: "mkdir", Path: place, Err: err}
	}
	fd, err := w.open(into, name)
	if err != nil {
		return err
	}
	defer w.close(fd)
	if err := w.marks(fd, place, from); err != nil {
		return err
	}
	names, err := w.names(from.dirs)
	if err != nil {
		return err
	}
	for _, n := range names {
		if w.ctx.Err() != nil {
			return context.Cause(w.ctx)
		}
		if err := w.entry(fd, n, path.Join(place, n), from); err != nil {
			return err
		}
	}
	origin, copied, err := attrOf(from.dirs[len(from.dirs)-1].fd, originAttr)
	if err == nil && copied { // it is empty where what lies below has no file handles
		err = unix.Fsetxattr(fd, originAttr, []byte(origin), 0)
	}
	return cmp.Or(err, like(fd, from.dirs[0].fd))
}

// marks says in a directory what of the layers below it shows.
func (w *weld) marks(fd int, place string, from *looked) error {
	switch {
	case place == "":
		return nil
	case from.stop:
		return unix.Fsetxattr(fd, opaqueAttr, []byte("y"), 0)
	case from.name == path.Base(place):
		return nil
	case len(from.name) > beneath.MaxPath:
		return fmt.Errorf("%w: a directory leads to a path of %d bytes", ErrWeld, len(from.name))
	}
	if w.room -= len(place); w.room < 0 {
		return fmt.Errorf("%w: the paths of renamed directories have more than %d bytes", ErrWeld, maxWeldLed)
	}
	w.led = append(w.led, place)
	return unix.Fsetxattr(fd, redirectAttr, []byte(from.name), 0)
}

// names are those in some directories, each once.
func (w *weld) names(dirs []part) ([]string, error) {
	all := map[string]struct{}{}
	for _, p := range dirs {
		d, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", p.fd), unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return nil, err
		}
		names, err := d.Readdirnames(-1)
		_ = d.Close()
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			all[n] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// entry makes one name of a directory.
func (w *weld) entry(into int, name, place string, in *looked) error {
	l, err := w.look(in, name)
	if err != nil {
		return fmt.Errorf("%s: %w", place, err)
	}
	defer w.closeAll(l.dirs)
	switch {
	case l.file:
		defer w.close(l.from)
		err = unix.Linkat(l.from, l.name, into, name, 0)
	case l.gone && !in.stop:
		err = unix.Mknodat(into, name, unix.S_IFCHR, 0)
	case l.gone:
	default:
		// What its parent hides can show by a path from the root alone.
		l.stop = l.stop || in.stop && l.name[0] != '/'
		return w.dir(into, name, place, l)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", place, err)
	}
	return nil
}

// look finds what the layers have at a name in a directory, as ovl_lookup does.
func (w *weld) look(in *looked, name string) (*looked, error) {
	l := &looked{name: name}
	parts := in.dirs
	for i := 0; i < len(parts) && !l.stop; i++ {
		was := l.name
		found, err := w.lookIn(parts[i], l)
		if err != nil {
			w.closeAll(l.dirs)
			return nil, err
		}
		switch {
		case l.file:
			return l, nil
		case found < 0:
			continue
		}
		l.dirs = append(l.dirs, part{parts[i].layer, found})
		if !l.stop && l.name != was && l.name[0] == '/' && was[0] != '/' {
			// From here on it is a path from the roots.
			layer := parts[i].layer
			parts = w.roots
			i = slices.IndexFunc(parts, func(p part) bool { return p.layer == layer })
		}
	}
	l.gone = len(l.dirs) == 0
	if l.gone && !l.stop {
		return nil, fmt.Errorf("it was there, and is not: %w", ErrWeld)
	}
	return l, nil
}

// lookIn looks into a directory of one layer, as ovl_lookup_layer does; -1 is no directory.
func (w *weld) lookIn(p part, l *looked) (int, error) {
	if l.name[0] != '/' {
		return w.lookAt(p.fd, l, l.name, 0, "")
	}
	// Counted from the end, since the way there can change.
	at := p.fd
	for rest := len(l.name) - 1; ; {
		begin := len(l.name) - rest
		next, _, more := strings.Cut(l.name[begin:], "/")
		after := l.name[begin+len(next):]
		fd, err := w.lookAt(at, l, next, begin, after)
		if at != p.fd {
			w.close(at)
		}
		if err != nil || fd < 0 || !more {
			return fd, err
		}
		at, rest = fd, rest-len(next)-1
	}
}

// lookAt looks at one name, as ovl_lookup_single does: before it are so many bytes of the path,
// after it the rest.
func (w *weld) lookAt(dir int, l *looked, name string, before int, after string) (int, error) {
	st, err := beneath.Lstat(dir, name)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENAMETOOLONG) {
		return -1, nil
	}
	if err != nil {
		return -1, err
	}
	kind := st.Mode & unix.S_IFMT
	switch {
	case kind == unix.S_IFCHR && st.Rdev == 0:
		l.stop = true
		return -1, nil
	case kind != unix.S_IFDIR:
		l.stop = true
		if after != "" || len(l.dirs) > 0 {
			return -1, nil
		}
		return -1, w.file(dir, l, name, &st)
	}
	fd, err := w.open(dir, name)
	if err != nil {
		return -1, err
	}
	if err := directs(fd, l, before, after); err != nil {
		w.close(fd)
		return -1, err
	}
	return fd, nil
}

// file notes that there is something which is no directory.
func (w *weld) file(dir int, l *looked, name string, st *unix.Stat_t) error {
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		_, err := unix.Lgetxattr(fmt.Sprintf("/proc/self/fd/%d/%s", dir, name), metacopyAttr, nil)
		if err == nil {
			return fmt.Errorf("%w: the content is in a layer below", ErrWeld)
		}
	}
	fd, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	w.opened++
	l.file, l.from, l.name, l.mode = true, fd, name, st.Mode
	return nil
}

// directs reads what a directory says of the layers below it.
func directs(fd int, l *looked, before int, after string) error {
	if v, err := attr(fd, opaqueAttr); err != nil || v == "y" {
		l.stop = l.stop || v == "y"
		return err
	}
	to, err := attr(fd, redirectAttr)
	if err != nil || to == "" {
		return err
	}
	if path.Clean("/"+to) != "/"+strings.TrimPrefix(to, "/") {
		return fmt.Errorf("%w: a directory leads to %q", ErrWeld, to)
	}
	if to[0] == '/' {
		l.stop = false
		l.name = to + after
	} else {
		l.name = l.name[:before] + to + after
	}
	return nil
}

// attr is an attribute, "" for none.
func attr(fd int, name string) (string, error) {
	v, _, err := attrOf(fd, name)
	return v, err
}

// attrOf is attr, and whether there is one: it may be empty.
func attrOf(fd int, name string) (value string, there bool, err error) {
	buf := make([]byte, beneath.MaxPath+1)
	n, err := unix.Fgetxattr(fd, name, buf)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return "", false, nil
	}
	return string(buf[:max(n, 0)]), err == nil, err
}

// like gives a directory the owner, attributes, mode and times of another.
func like(to, from int) error {
	var st unix.Stat_t
	if err := unix.Fstat(from, &st); err != nil {
		return err
	}
	names := make([]byte, 64<<10)
	n, err := unix.Flistxattr(from, names)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(names[:max(n, 0)]), "\x00"), "\x00") {
		if name == "" || strings.HasPrefix(name, overlayAttr) {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Fgetxattr(from, name, value)
		if err == nil {
			err = unix.Fsetxattr(to, name, value[:n], 0)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return cmp.Or(
		unix.Fchown(to, int(st.Uid), int(st.Gid)),
		unix.Fchmod(to, st.Mode&0o7777),
		unix.UtimesNanoAt(to, "", []unix.Timespec{st.Atim, st.Mtim}, unix.AT_EMPTY_PATH),
	)
}

// Hide has directories of a layer show nothing of those below any more.
func Hide(layer *os.File, dirs []string) error {
	_, top, _ := strings.Cut(layerUpper, "/")
	for _, d := range dirs {
		f, err := beneath.OpenFile(layer, top+"/"+d, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		err = errors.Join(
			unix.Fsetxattr(int(f.Fd()), opaqueAttr, []byte("y"), 0),
			unix.Fremovexattr(int(f.Fd()), redirectAttr),
			f.Close())
		if err != nil {
			return err
		}
	}
	return nil
}
