package inside

import (
	"errors"
	"slices"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
)

func TestTmpfsSizes(t *testing.T) {
	for _, tt := range []struct {
		memory, tmp client.Size
		mode        client.WorktreeMode
		ok          bool
	}{
		{2 << 30, 256 << 20, client.WorktreeBind, true},
		{2 << 30, 256 << 20, client.WorktreeEmpty, true},
		{2 << 30, 1 << 30, client.WorktreeBind, false},
		{2 << 30, 0, client.WorktreeEmpty, true},
		{64 << 20, 0, client.WorktreeEmpty, true},
		{0, 0, client.WorktreeEmpty, true},
		{0, 10 << 30, client.WorktreeBind, true},
		{16 << 30, 0, client.WorktreeBind, true},
	} {
		sizes, _, err := SizeTmpfs(client.Limits{Memory: tt.memory, Tmp: tt.tmp}, &sandbox.Worktree{Mode: tt.mode}, true)
		sum := sizes.Sum()
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("memory %v, tmp %v: %v", tt.memory, tt.tmp, err)
		}
		if err == nil && tt.memory > 0 && sum > tt.memory/4*3 {
			t.Errorf("memory %v, tmp %v: %v of memory file systems", tt.memory, tt.tmp, sum)
		}
		if err == nil && sum == 0 {
			t.Errorf("memory %v, tmp %v: no bound", tt.memory, tt.tmp)
		}
	}
}

// TestPlaces: what lies where, and how large it is.
func TestPlaces(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		name      string
		l         client.Limits
		mode      client.WorktreeMode
		disks     bool
		want      TmpfsSizes
		disk      client.Size
		atTargets []string
	}{
		{"the default", client.Limits{Memory: 2048 * mib, Disk: 4096 * mib}, client.WorktreeBind, true, TmpfsSizes{Shm: 1024 * mib}, 4096 * mib, []string{"/tmp", sandbox.Home}},
		{"of an empty worktree", client.Limits{Memory: 2048 * mib, Disk: 4096 * mib}, client.WorktreeEmpty, true, TmpfsSizes{Shm: 1024 * mib}, 4096 * mib, []string{"/tmp", "/w", sandbox.Home}},
		{"a small /tmp", client.Limits{Memory: 2048 * mib, Tmp: 256 * mib, Disk: 4096 * mib}, client.WorktreeEmpty, true, TmpfsSizes{Tmp: 256 * mib, Shm: 1024 * mib, Worktree: 256 * mib}, 4096 * mib, []string{sandbox.Home}},
		{"a large /tmp", client.Limits{Memory: 2048 * mib, Tmp: 1024 * mib, Disk: 4096 * mib}, client.WorktreeBind, true, TmpfsSizes{Shm: 1024 * mib}, 5120 * mib, []string{"/tmp", sandbox.Home}},
		{"no disks", client.Limits{Memory: 2048 * mib, Disk: 4096 * mib}, client.WorktreeEmpty, false, TmpfsSizes{Tmp: 256 * mib, Shm: 256 * mib, Home: 768 * mib, Worktree: 256 * mib}, 0, nil},
		{"no bound of memory", client.Limits{Disk: 4096 * mib}, client.WorktreeBind, true, TmpfsSizes{Shm: 64 * mib}, 4096 * mib, []string{"/tmp", sandbox.Home}},
	} {
		got, disk, err := SizeTmpfs(tt.l, &sandbox.Worktree{Mode: tt.mode, Target: "/w"}, tt.disks)
		var at []string
		for _, p := range disk.Places {
			at = append(at, p.Target)
		}
		if err != nil || got != tt.want || disk.Size != tt.disk || !slices.Equal(at, tt.atTargets) {
			t.Errorf("%s: %+v, %v at %q, %v", tt.name, got, disk.Size, at, err)
		}
	}
}
