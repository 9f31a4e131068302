package root

import (
	"errors"
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
	n, err := unix.Flistxattr(from, nil)
	if err != nil || n <= 0 {
		return nil // none, or a file system without them
	}
	list := make([]byte, min(n, xattrMax))
	if n, err = unix.Flistxattr(from, list); err != nil {
		return []string{"xattrs"}
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		if !strings.HasPrefix(name, "user.") {
			continue
		}
		if err := copyXattr(from, to, name); err != nil {
			notKept = append(notKept, "xattr "+name)
		}
	}
	return notKept
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
