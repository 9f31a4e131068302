package root

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// xattrMax is the kernel's limit for one value and for the list of names.
const xattrMax = 64 << 10

// aclName is the access control list of a file.
const aclName = "system.posix_acl_access"

// copyACL gives to the access control list of from, or none when from has none:
// a new file may have got one from its directory. It reports whether from has one.
func copyACL(from, to int) (has bool, err error) {
	_, err = unix.Fgetxattr(from, aclName, nil)
	switch {
	case err == nil:
		return true, copyXattr(from, to, aclName)
	case !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EOPNOTSUPP):
		return false, err
	}
	err = unix.Fremovexattr(to, aclName)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		err = nil
	}
	return false, err
}

// copyXattrs copies the extended attributes that belong to the file's user; the
// others are the system's to set. It returns the names of those that could not
// be kept.
func copyXattrs(from, to int) (notKept []string) {
	names, err := userXattrs(place(from))
	if err != nil {
		return []string{"xattrs"}
	}
	for _, name := range names {
		if err := copyXattr(from, to, name); err != nil {
			notKept = append(notKept, "xattr "+name)
		}
	}
	return notKept
}

// userXattrs are the names of those that belong to a file's user.
func userXattrs(path string) (names []string, err error) {
	n, err := unix.Listxattr(path, nil)
	if err != nil || n <= 0 {
		return nil, nil // none, or a file system without them
	}
	list := make([]byte, min(n, xattrMax))
	if n, err = unix.Listxattr(path, list); err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		if strings.HasPrefix(name, "user.") {
			names = append(names, name)
		}
	}
	return names, nil
}

// place is the path of an open file.
func place(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// Attributes are extended attributes of a file or directory that belong to its user, by their
// names ("user.x").
type Attributes map[string]string

// Attributes gives those of an entry of d, with no more than most bytes of names and values
// together. Left counts the others, and those that the tool user may not read.
func (d *Dir) Attributes(ctx context.Context, name string, most int) (all Attributes, left int, err error) {
	err = d.do(ctx, "read the attributes of", name, func() error {
		fd, err := openat2(d.fd, name, unix.O_PATH|unix.O_NOFOLLOW, treeResolve)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		names, err := userXattrs(place(fd))
		if err != nil {
			left++
		}
		for _, x := range names {
			value := make([]byte, xattrMax)
			n, err := unix.Getxattr(place(fd), x, value)
			if err != nil || len(x)+n > most {
				left++
				continue
			}
			if all == nil {
				all = make(Attributes)
			}
			all[x] = string(value[:n])
			most -= len(x) + n
		}
		return nil
	})
	return all, left, err
}

func copyXattr(from, to int, name string) error {
	n, err := unix.Fgetxattr(from, name, nil)
	if err != nil {
		return err
	}
	value := make([]byte, min(n, xattrMax))
	if n > 0 {
		if n, err = unix.Fgetxattr(from, name, value); err != nil {
			return err
		}
	}
	return unix.Fsetxattr(to, name, value[:n], 0)
}
