package docker

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/process"
)

// settleTmpfs makes sure that the memory file systems are where they should be, and
// gives them their modes: some runtimes take that of the image's directory of the
// same name instead of the one that they are told. A link there would have moved
// them elsewhere.
func (c *creation) settleTmpfs(p *process.Process) error {
	root, err := p.Open("root", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, w := range c.writable() {
		if err := settle(root, w); err != nil {
			return fmt.Errorf("memory file system %s: %w", w.target, err)
		}
	}
	return nil
}

func settle(root *os.File, m memory) error {
	fd, err := unix.Openat2(int(root.Fd()), strings.TrimPrefix(m.target, "/"), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return fmt.Errorf("%w: the image has something else than a directory there: %w", sandbox.ErrMountTarget, err)
	}
	defer unix.Close(fd)
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return err
	}
	// Rounded up to pages by the kernel.
	if bytes := int64(st.Blocks) * st.Bsize; st.Type != unix.TMPFS_MAGIC || bytes < int64(m.size) || bytes > int64(m.size)+1<<20 {
		return fmt.Errorf("it is not there: %w", sandbox.ErrMountTarget)
	}
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), m.mode)
}
