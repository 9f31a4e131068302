package apply

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/strictjson"
)

// attributes are the extended attributes of a file that belong to its user, and those alone: what
// a session says of others (security.*, trusted.*, system.*) is not heard. Its access control list
// names users of the sandbox; a file that is replaced keeps the list that it has.
type attributes struct {
	User []attribute `json:"user,omitempty"`
	Left int         `json:"left,omitempty"` // others that it should have
	// Known: they are what the file has in the session. Agents of older versions do not tell: then
	// it keeps those that it has in the source.
	Known bool `json:"known,omitempty"`
}

type attribute struct {
	Name  raw `json:"name"`
	Value raw `json:"value"`
}

const (
	// maxAttributes and maxAllAttributes bound the bytes of those of one file, and of all.
	maxAttributes    = 256 << 10
	maxAllAttributes = 16 << 20
	// maxAttribute is the kernel's bound of a value, or of a list of names.
	maxAttribute  = 64 << 10
	userAttribute = "user."
	aclAttribute  = "system.posix_acl_access"
)

// read reads the record of an entry.
func (a *attributes) read(records map[string]string, kind beneath.Kind) error {
	text, ok := records[recordAttributes]
	if !ok {
		return nil
	}
	if err := strictjson.Decode([]byte(text), a); err != nil || a.Known || a.Left < 0 || kind != beneath.File && kind != beneath.Dir || a.size() > maxAttributes {
		return errors.New("attributes that are none")
	}
	for _, x := range a.User {
		if !strings.HasPrefix(string(x.Name), userAttribute) || len(x.Name) == len(userAttribute) || len(x.Name) > maxName ||
			strings.ContainsRune(string(x.Name), 0) || len(x.Value) > maxAttribute {
			return fmt.Errorf("an attribute %.40q", string(x.Name))
		}
	}
	a.Known = true
	return nil
}

func (a *attributes) size() (n int) {
	for _, x := range a.User {
		n += len(x.Name) + len(x.Value)
	}
	return n
}

// give gives them to a file. Those that its file system does not take are no reason to leave it
// out.
func (a *attributes) give(fd int) {
	for _, x := range a.User {
		if unix.Fsetxattr(fd, string(x.Name), []byte(x.Value), 0) != nil {
			a.Left++
		}
	}
}

// adorn gives a new file its attributes, and the access control list of the one that it replaces.
func (w *writer) adorn(t *task, fd int) error {
	if t.Was.Kind != beneath.File {
		t.Attrs.give(fd)
		return nil
	}
	old, err := w.replaced(t)
	if err != nil {
		t.Attrs.give(fd)
		return nil // it is another one by now, which is seen when it takes its place
	}
	defer unix.Close(old)
	from := fmt.Sprintf("/proc/self/fd/%d", old)
	if !t.Attrs.Known {
		t.Attrs.User, t.Attrs.Left = userAttributes(from)
	}
	t.Attrs.give(fd)
	acl := make([]byte, maxAttribute)
	n, err := unix.Getxattr(from, aclAttribute, acl)
	switch {
	case err == nil:
		err = unix.Fsetxattr(fd, aclAttribute, acl[:n], 0)
	case errors.Is(err, unix.ENODATA):
		err = unix.Fremovexattr(fd, aclAttribute) // what its directory gave it
	}
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}

// replaced opens the file that a task replaces, for its attributes alone.
func (w *writer) replaced(t *task) (int, error) {
	parent, err := w.parent(t)
	if err != nil {
		return -1, err
	}
	defer unix.Close(parent)
	return beneath.Open(parent, path.Base(string(t.Path)), unix.O_PATH|unix.O_NOFOLLOW, 0)
}

// userAttributes are those that a file has, and how many there are that cannot be read.
func userAttributes(from string) (all []attribute, left int) {
	buf := make([]byte, maxAttribute)
	n, err := unix.Listxattr(from, buf)
	if err != nil {
		return nil, 0 // a file system without them
	}
	for name := range strings.SplitSeq(string(buf[:n]), "\x00") {
		if !strings.HasPrefix(name, userAttribute) {
			continue
		}
		n, err := unix.Getxattr(from, name, buf)
		if err != nil {
			left++
			continue
		}
		all = append(all, attribute{raw(name), raw(buf[:n])})
	}
	return all, left
}

// date gives a file its time of modification: of a directory and a name, or of itself. A file
// system that takes no times is no reason to leave it out.
func (t *task) date(fd int, name string, flags int) {
	if t.MTime != 0 {
		times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(t.MTime)}
		_ = unix.UtimesNanoAt(fd, name, times, flags)
	}
}
