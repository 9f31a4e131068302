package exec

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	landlockScopes = 6 // the first ABI that bounds signals and abstract sockets
	landlockHides  = 3 // the first that bounds truncation, without which a file could be emptied

	// What ABI 3 knows to bound: all that reads, lists, makes, writes, runs or removes a file. What it does not
	// know is to look at attributes of a file and to change them, to read where a link leads, to watch a
	// directory for changes, and to connect to a socket that lies there.
	accessAll  = 1<<15 - 1
	accessFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
)

// landlock is what the kernel has of it.
type landlock struct {
	abi   int
	scope int // the ruleset of programs from which nothing is kept: see newLandlock; -1: none
}

// newLandlock makes the Landlock ruleset that each program is put under: it can
// signal, and reach by abstract sockets, only what it has started itself. The note says why where
// the kernel has no such thing.
func newLandlock() (l landlock, note string) {
	l.scope = -1
	abi, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return l, fmt.Sprintf("no Landlock (%v): calls of this session can signal each other", e)
	}
	if l.abi = int(abi); l.abi < landlockScopes {
		return l, fmt.Sprintf("Landlock ABI %d has no scopes (%d has): calls of this session can signal each other", abi, landlockScopes)
	}
	var err error
	if l.scope, err = l.ruleset(0); err != nil {
		return landlock{scope: -1}, fmt.Sprintf("no Landlock ruleset (%v): calls of this session can signal each other", err)
	}
	return l, ""
}

// hides reports whether directories can be kept from programs.
func (l landlock) hides() bool { return l.abi >= landlockHides }

func (l landlock) close() {
	if l.scope >= 0 {
		_ = unix.Close(l.scope)
	}
}

// ruleset makes one that bounds these accesses to files, and signals where the kernel can.
func (l landlock) ruleset(access uint64) (fd int, err error) {
	attr, length := unix.LandlockRulesetAttr{Handled_access_fs: access}, unsafe.Sizeof(access) // of the first ABI
	if l.abi >= landlockScopes {
		attr.Scoped, length = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET|unix.LANDLOCK_SCOPE_SIGNAL, unsafe.Offsetof(attr.Scoped)+unsafe.Sizeof(attr.Scoped)
	}
	n, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), length, 0)
	if e != 0 {
		return -1, e
	}
	unix.CloseOnExec(int(n)) // it is made so; this only says it
	return int(n), nil
}

// without makes the ruleset of a program from which these directories are kept. A ruleset only
// ever allows, and what it allows of a directory holds for all below it: so everything is allowed
// that lies beside the way to one of them, and the directories on that way cannot be listed.
//
// It is made for each program anew. What is mounted in the meantime, such as the worktree after a
// checkpoint, is another place.
func (l landlock) without(unseen []string) (fd int, err error) {
	if !l.hides() {
		return -1, errors.New("the kernel has no means to keep a directory from a program")
	}
	if fd, err = l.ruleset(accessAll); err != nil {
		return -1, err
	}
	if err = allowBeside(fd, "/", unseen); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// allowBeside allows all that is in dir but what is unseen, and what leads there.
func allowBeside(ruleset int, dir string, unseen []string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		at := dir + e.Name()
		leads := slices.ContainsFunc(unseen, func(p string) bool { return strings.HasPrefix(p, at+"/") })
		switch {
		case e.Type()&os.ModeSymlink != 0: // where it leads is another place
		case slices.Contains(unseen, at):
		case leads:
			if err := allowBeside(ruleset, at+"/", unseen); err != nil {
				return err
			}
		default:
			if err := allow(ruleset, at); err != nil {
				return fmt.Errorf("allow %s: %w", at, err)
			}
		}
	}
	return nil
}

// allow allows everything at path and below.
func allow(ruleset int, path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil // it has been removed since
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err = addRule(ruleset, fd, accessAll); errors.Is(err, unix.EINVAL) { // it is no directory, which not every file system says
		err = addRule(ruleset, fd, accessFile)
	}
	return err
}

func addRule(ruleset, fd int, access uint64) error {
	attr := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	if _, _, e := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0); e != 0 {
		return e
	}
	return nil
}
