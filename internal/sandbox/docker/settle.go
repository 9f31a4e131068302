package docker

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/inside"
	"github.com/toold/toold/internal/sandbox/mount"
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
	for _, w := range c.sizes.Memories(c.spec.Worktree.Target) {
		if err := settle(root, w); err != nil {
			return fmt.Errorf("memory file system %s: %w", w.Target, err)
		}
	}
	return nil
}

func settle(root *os.File, m inside.Memory) error {
	f, err := mount.OpenPlace(root, m.Target)
	if err != nil {
		return fmt.Errorf("the image has something else than a directory there: %w", err)
	}
	defer f.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return err
	}
	// Rounded up to pages by the kernel.
	if bytes := int64(st.Blocks) * st.Bsize; st.Type != unix.TMPFS_MAGIC || bytes < int64(m.Size) || bytes > int64(m.Size)+1<<20 {
		return fmt.Errorf("it is not there: %w", sandbox.ErrMountTarget)
	}
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), m.Mode)
}
