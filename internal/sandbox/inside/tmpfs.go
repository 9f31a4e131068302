package inside

import (
	"fmt"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
)

// TmpfsSizes are the bounds of a sandbox's memory file systems. Worktree is 0 unless
// the worktree is empty, and so in memory; Disk is 0 unless the root's writable layer
// is in memory too.
type TmpfsSizes struct{ Tmp, Shm, Home, Worktree, Disk client.Size }

// Sum is what they can hold together.
func (t TmpfsSizes) Sum() client.Size { return t.Tmp + t.Shm + t.Home + t.Worktree + t.Disk }

// Inodes bounds a memory file system of this size in files: an empty file costs a
// kilobyte of kernel memory that its size does not count.
func Inodes(size client.Size) int64 { return max(1024, int64(size)/(8<<10)) }

// SizeTmpfs refuses limits that do not fit together. A worktree in memory, of the mode
// empty, is one of what they bound.
//
// Pages that a tool wrote count as the tools' memory. A tmpfs that can fill all of
// it would wedge the session: even rm would be killed for memory, until the agent
// has made room. Together they stay at or below three quarters of it. The home
// directory is the largest: build caches live there, and that of a small Go program
// with its part of the standard library takes over 100 MiB.
func SizeTmpfs(l client.Limits, worktree client.WorktreeMode) (TmpfsSizes, error) {
	const leastTmp, unlimited = 1 << 20, 256 << 20
	t := TmpfsSizes{Tmp: l.Tmp}
	if t.Tmp == 0 {
		t.Tmp = unlimited
		if m := l.Memory; m > 0 {
			t.Tmp = max(leastTmp, min(t.Tmp, m/8))
		}
	}
	t.Home, t.Shm = 3*t.Tmp, t.Tmp/4
	if worktree == client.WorktreeEmpty {
		t.Worktree = t.Tmp
	}
	if m := l.Memory; m > 0 && t.Sum() > m/4*3 {
		return t, fmt.Errorf("limits.tmp %v: with the home directory, /dev/shm and an empty worktree this makes %v of memory file systems, more than three quarters of limits.memory %v: lower limits.tmp or raise limits.memory: %w",
			t.Tmp, t.Sum(), l.Memory, sandbox.ErrUnsupported)
	}
	return t, nil
}
