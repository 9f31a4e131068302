package exec

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/wire"
)

// bounded are the file systems that programs write to: they fail when those are full, and
// mostly say no more than that. Home and Tmp are there by the time that a program runs,
// whatever lies there now. Others may be the host's, whose file systems can be full for years, or
// hang: they are looked at for those that failed.
func bounded(h *wire.Hello) (own, others []string) {
	for _, p := range append(slices.Clone(h.Bounded), h.Home, h.Tmp, "/dev/shm", h.Worktree, "/") {
		var st unix.Statfs_t
		switch {
		case p == "" || slices.Contains(own, p) || slices.Contains(others, p) || unix.Statfs(p, &st) != nil:
		case p == h.Home || p == h.Tmp || slices.Contains(h.Bounded, p) || st.Type == unix.TMPFS_MAGIC || p == "/" && st.Flags&unix.ST_RDONLY == 0:
			own = append(own, p)
		case p == h.Worktree:
			others = append(others, p)
		}
	}
	return own, others
}

// fullBelow is how much may be free in a place of this size where no space is left:
// programs write in pieces, and a piece for which there is no room leaves what there is. File
// systems take pieces of up to 2 MiB at once.
func fullBelow(size uint64) uint64 { return max(64<<10, min(2<<20, size/16)) }

// noteFull adds to the exit of a program which of the places is full. Of one that was ended with 0 too,
// for its own: that of a pipe is its last command's.
func noteFull(e *run.Exit, own, others []string) {
	if e.Reason == run.ReasonDisk { // which is the host's
		return
	}
	places := own
	if e.Code != 0 || e.Signal != "" {
		places = slices.Concat(own, others)
	}
	for _, p := range places {
		var st unix.Statfs_t
		if unix.Statfs(p, &st) != nil || st.Blocks == 0 || st.Flags&unix.ST_RDONLY != 0 {
			continue
		}
		if st.Bavail*uint64(st.Bsize) < fullBelow(st.Blocks*uint64(st.Bsize)) || st.Files > 0 && st.Ffree == 0 {
			e.Full = p
			return
		}
	}
}
