package image

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// A layer says what it removes from those below it by empty files: ".wh.name"
// removes name, ".wh..wh..opq" all that its directory had. Other names with the
// doubled prefix are notes that old storage drivers left for themselves.
const (
	whiteoutPrefix = ".wh."
	whiteoutMeta   = ".wh..wh."
	whiteoutOpaque = ".wh..wh..opq"
)

// made remembers what the current layer has made, since a layer's whiteouts only
// speak of the layers below, whatever the order of its entries; and the whiteouts
// themselves, whose names nothing else has. 16 bytes for each entry: a name is kept
// as its hash, with a seed that no image can know.
type made struct {
	seed maphash.Seed
	set  map[madeKey]struct{}
}

type madeKey struct {
	dir  uint64 // inode. One that is used again belongs to this layer, as all in it
	name uint64
}

func newMade() *made {
	return &made{seed: maphash.MakeSeed(), set: map[madeKey]struct{}{}}
}

func (m *made) add(dir uint64, name string) { m.set[m.key(dir, name)] = struct{}{} }

func (m *made) has(dir uint64, name string) bool {
	_, ok := m.set[m.key(dir, name)]
	return ok
}

func (m *made) key(dir uint64, name string) madeKey {
	return madeKey{dir, maphash.String(m.seed, name)}
}

// whiteout applies a whiteout, of which base is the last part of the name.
func (u *unpacker) whiteout(name, base string) error {
	hidden := strings.TrimPrefix(base, whiteoutPrefix)
	opaque := base == whiteoutOpaque
	switch {
	case !opaque && strings.HasPrefix(base, whiteoutMeta):
		return nil
	case hidden == "" || hidden == "." || hidden == "..":
		return fmt.Errorf("%w: it removes %q", ErrRefused, hidden)
	}
	at, err := u.tree.find(name, false)
	if errors.Is(err, unix.ENOENT) {
		return nil // below nothing there is nothing to hide
	}
	if err != nil {
		return err
	}
	// Once is enough, for nothing of the layers below comes back. Again and again
	// would be a look at all that the layer itself has put there, each time.
	if u.made.has(at.dir.ino, base) {
		return nil
	}
	u.made.add(at.dir.ino, base)
	if opaque {
		err = u.hideAll(at.dir.fd, ".", at.dir.ino)
	} else {
		err = u.hide(at.dir.fd, at.dir.ino, hidden)
	}
	u.tree.forget()
	return err
}

// hide removes what the layers below have put at a name of a directory. Of what
// is there, that of the current layer stays.
func (u *unpacker) hide(dirfd int, dir uint64, name string) error {
	mine := u.made.has(dir, name)
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return ignore(err, unix.ENOENT)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if mine {
			return nil
		}
		return unix.Unlinkat(dirfd, name, 0)
	}
	if err := u.hideAll(dirfd, name, st.Ino); err != nil || mine {
		return err
	}
	// One that is not empty holds something of the current layer.
	return ignore(unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR), unix.ENOTEMPTY)
}

// hideAll hides all that a directory holds.
func (u *unpacker) hideAll(dirfd int, name string, dir uint64) error {
	return eachName(dirfd, name, func(fd int, name string) error { return u.hide(fd, dir, name) })
}

// eachName opens a directory and calls do for each name in it, in the order of
// the file system, with the directory's descriptor. do may remove the name. Of a
// large directory only a part of the names is held at a time.
func eachName(dirfd int, name string, do func(fd int, name string) error) error {
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	for {
		names, err := f.Readdirnames(256)
		for _, n := range names {
			if err := do(fd, n); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func ignore(err, harmless error) error {
	if errors.Is(err, harmless) {
		return nil
	}
	return err
}
