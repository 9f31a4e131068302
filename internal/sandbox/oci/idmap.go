package oci

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// singleID is an id map that shows one owner as one user and group, and everyone
// else as nobody.
type singleID struct{ uid, gid, asUID, asGID uint32 }

// idmapCache keeps user namespaces for id-mapped mounts: making one takes about
// a millisecond and a child process.
type idmapCache struct {
	// mu guards files and order.
	mu    sync.Mutex
	files map[singleID]*os.File
	order []singleID // oldest first
}

// maxIDMaps bounds the descriptors that the cache holds.
const maxIDMaps = 64

// get gives a descriptor of its own to the caller, who closes it.
func (c *idmapCache) get(m singleID) (*os.File, error) {
	if f, err := c.cached(m); f != nil || err != nil {
		return f, err
	}
	f, err := newUserNamespace(m)
	if err != nil {
		return nil, fmt.Errorf("user namespace for id map: %w", err)
	}
	c.put(m, f)
	return f, nil
}

func (c *idmapCache) cached(m singleID) (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, ok := c.files[m]; ok {
		return duplicate(f)
	}
	return nil, nil
}

func (c *idmapCache) put(m singleID, f *os.File) {
	own, err := duplicate(f)
	if err != nil {
		return // out of descriptors: then without the cache
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.files[m]; ok {
		own.Close()
		return
	}
	if c.files == nil {
		c.files = map[singleID]*os.File{}
	}
	if len(c.order) == maxIDMaps {
		c.files[c.order[0]].Close()
		delete(c.files, c.order[0])
		c.order = c.order[1:]
	}
	c.files[m] = own
	c.order = append(c.order, m)
}

func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// newUserNamespace makes a user namespace that nobody is in. Its only process is
// traced from birth and stopped before the first instruction of its program, so
// that it runs nothing; it is killed as soon as the namespace is open.
func newUserNamespace(m singleID) (*os.File, error) {
	goruntime.LockOSThread() // ptrace belongs to the thread
	defer goruntime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: int(m.uid), HostID: int(m.asUID), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: int(m.gid), HostID: int(m.asGID), Size: 1}},
		Ptrace:      true,
		Pdeathsig:   syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	f, err := os.Open("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/ns/user")
	killed := cmd.Process.Kill()
	// It was killed: how it ended says nothing.
	_ = cmd.Wait()
	if err := errors.Join(err, killed); err != nil {
		return nil, err
	}
	return f, nil
}
