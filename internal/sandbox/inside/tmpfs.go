package inside

import (
	"fmt"
	"slices"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
)

// Disk is what of a sandbox's writable places lies on the disk of its session, which bounds
// them together.
type Disk struct {
	Size   client.Size // 0 = there is none
	Places []Place     // home comes last: where it is, all are
}

// Place is a directory inside that lies on the disk, and is empty at first.
type Place struct {
	Name   string // on the disk
	Target string // inside
	Mode   uint32
	Tool   bool // it is the tool user's; else root's of the sandbox
}

// TmpfsSizes are the bounds of a sandbox's memory file systems, 0 for what is not in memory:
// Worktree unless it is empty, Disk unless it is the root's writable layer.
type TmpfsSizes struct{ Tmp, Shm, Home, Worktree, Disk client.Size }

// LeastDisk is the smallest disk that is of any use.
const LeastDisk client.Size = 16 << 20

// Sum is what they can hold together.
func (t TmpfsSizes) Sum() client.Size { return t.Tmp + t.Shm + t.Home + t.Worktree + t.Disk }

// Inodes bounds a memory file system of this size in files: an empty file costs a
// kilobyte of kernel memory that its size does not count.
func Inodes(size client.Size) int64 { return max(1024, int64(size)/(8<<10)) }

// Memory is a memory file system that tools may write to.
type Memory struct {
	Target string
	Size   client.Size
	Mode   uint32
	Tool   bool // it is the tool user's; else root's of the sandbox
	NoExec bool
}

// Memories are those of a sandbox with these sizes; worktree is the worktree's target.
func (t TmpfsSizes) Memories(worktree string) []Memory {
	list := []Memory{
		{Target: "/tmp", Size: t.Tmp, Mode: 0o1777},
		{Target: "/dev/shm", Size: t.Shm, Mode: 0o1777, NoExec: true},
		{Target: sandbox.Home, Size: t.Home, Mode: 0o700, Tool: true},
		{Target: worktree, Size: t.Worktree, Mode: 0o755, Tool: true},
	}
	return slices.DeleteFunc(list, func(m Memory) bool { return m.Size == 0 })
}

// Options are those of its mount, which bound it in bytes and in files.
func (m Memory) Options() []string {
	list := []string{"nosuid", "nodev", "exec", fmt.Sprintf("size=%d", m.Size), fmt.Sprintf("nr_inodes=%d", Inodes(m.Size)), fmt.Sprintf("mode=%o", m.Mode)}
	if m.Tool {
		list = append(list, fmt.Sprintf("uid=%d", sandbox.ToolUID), fmt.Sprintf("gid=%d", sandbox.ToolGID))
	}
	if m.NoExec {
		list[2] = "noexec"
	}
	return list
}

// SizeTmpfs says how large the writable places of a sandbox are, and which of them lie on
// disks; disks is false where there can be none. It refuses limits that do not fit together.
//
// Pages that a tool wrote to memory count as the tools' memory. A tmpfs that can fill all of
// it would wedge the session: even rm would be killed for memory, until the agent
// has made room. Together they stay at or below three quarters of it. With disks, the home
// directory is on the session's (build caches live there, and that of a small Go program with
// its part of the standard library takes over 100 MiB). So are /tmp and an empty worktree, which
// limits.disk bounds with it (the linker of a few Go tests takes 1 GiB in /tmp), unless limits.tmp
// is set: then they have a size of their own, and lie in memory up to an eighth of that.
// /dev/shm is half of the memory, as on a machine, or what the others leave.
func SizeTmpfs(l client.Limits, w *sandbox.Worktree, disks bool) (t TmpfsSizes, disk Disk, err error) {
	t = TmpfsSizes{Tmp: l.Tmp}
	if t.Tmp == 0 {
		t.Tmp = inMemory(l)
	}
	t.Home = 3 * t.Tmp
	if w.Mode == client.WorktreeEmpty {
		t.Worktree = t.Tmp
	}
	if disks && l.Disk > 0 {
		disk = t.toDisk(l, w.Target)
	}
	t.Shm = inMemory(l) / 4
	if l.Memory > 0 {
		t.Shm = max(t.Shm, min(l.Memory/2, l.Memory/4*3-t.Tmp-t.Home-t.Worktree))
	}
	if m := l.Memory; m > 0 && t.Sum() > m/4*3 {
		return t, Disk{}, fmt.Errorf("limits.tmp %v: with the home directory, /dev/shm and an empty worktree this makes %v of memory file systems, more than three quarters of limits.memory %v: lower limits.tmp or raise limits.memory: %w",
			t.Tmp, t.Sum(), l.Memory, sandbox.ErrUnsupported)
	}
	return t, disk, nil
}

// inMemory is how large /tmp can be that lies in memory.
func inMemory(l client.Limits) client.Size {
	const leastTmp, unlimited = 1 << 20, 256 << 20
	if l.Memory == 0 {
		return unlimited
	}
	return max(leastTmp, min(unlimited, l.Memory/8))
}

// toDisk takes what belongs on the disk out of memory.
func (t *TmpfsSizes) toDisk(l client.Limits, worktree string) Disk {
	d := Disk{Size: l.Disk}
	if l.Tmp == 0 || t.Tmp > max(inMemory(l), l.Memory/8) {
		d.Places = append(d.Places, Place{Name: "tmp", Target: "/tmp", Mode: 0o1777})
		if t.Worktree > 0 {
			d.Places = append(d.Places, Place{Name: "worktree", Target: worktree, Mode: 0o755, Tool: true})
		}
		if l.Tmp > 0 {
			d.Size += t.Tmp + t.Worktree
		}
		t.Tmp, t.Worktree = 0, 0
	}
	t.Home = 0
	d.Places = append(d.Places, Place{Name: "home", Target: sandbox.Home, Mode: 0o700, Tool: true})
	return d
}
