package session

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/call"
	"github.com/toold/toold/internal/sandbox/loopdisk"
	"github.com/toold/toold/internal/session/room"
	"github.com/toold/toold/internal/testrig"
)

// smallHost puts a house on a disk of its own.
func smallHost(t *testing.T, h *realHouse, size client.Size) {
	t.Helper()
	disk, err := loopdisk.Unnamed(t.TempDir(), "host", size)
	if err != nil {
		t.Skip(err)
	}
	defer disk.Close()
	was, err := os.Open(h.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer was.Close()
	if err := unix.MoveMount(int(disk.Fd()), "", unix.AT_FDCWD, h.Dir, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(h.Dir, 0); err != nil {
			t.Errorf("the disk of the house is still used: %v", err)
			_ = unix.Unmount(h.Dir, unix.MNT_DETACH)
		}
	})
	cp := exec.Command("cp", "-a", "/proc/self/fd/3/.", h.Dir)
	cp.ExtraFiles = []*os.File{was}
	if out, err := cp.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Chmod(h.Dir, 0o711); err != nil {
		t.Fatal(err)
	}
}

// takeAllBut is another program of the host, which leaves so many bytes free.
func takeAllBut(t *testing.T, file string, v room.Volume, left int64) {
	t.Helper()
	f, err := os.Create(file)
	if err == nil {
		err = errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, max(1, v.Free-left)), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestRealFloor: sessions that fill their disks at once, which have more together than there
// is, leave the host what must stay free. Each call says why it ended, the sessions live on,
// and new ones are refused until there is room again.
func TestRealFloor(t *testing.T) {
	sessions := 12
	if testrig.Rounds(1) > 1 {
		sessions = 50
	}
	// A host as users have it: half a floor of 1 GiB is what writers have for themselves between
	// two looks. That of a host of 512 MiB, 32 MiB, is written within the tenth of a second that
	// a busy machine may keep the daemon from its next look.
	const size, disk = 8 << 30, 64 << 20
	h := newRealHouse(t)
	smallHost(t, h, size)
	m, stop, err := h.open(slog.New(slog.NewTextHandler(logTo{t}, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		t.Fatal(err)
	}
	set := *m.settings.Load()
	set.HostFree, set.DiskOvercommit = room.Floor{Bytes: 1 << 30}, 10
	set.Limits.Disk, set.Limits.FileSize, set.MaxLimits.FileSize = disk, disk, disk
	set.Policy, set.Approvals.None = rules(t, "[permission]\nexternal_directory = \"allow\"\n"), true
	m.Reload(set)
	var ids []string
	for range sessions {
		s, err := m.Create(t.Context(), alice, client.SessionCreate{})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.ID)
		if c := realCall(t, m, s.ID, "bash", object{"command": "echo mine >~/mine"}); c.IsError || c.Error != nil {
			t.Fatalf("%+v", c)
		}
	}
	v, err := room.At(h.Dir)
	if err != nil {
		t.Fatal(err)
	}
	above := int64(sessions) * disk * 3 / 4 // less than the disks of all take together
	takeAllBut(t, h.Dir+"/neighbour", v, set.HostFree.Of(v.Size)+above)
	var wg sync.WaitGroup
	calls := make([]*client.Call, sessions)
	for i, id := range ids {
		wg.Go(func() {
			c, err := m.calls.Call(t.Context(), alice, id, bashCall("trap '' TERM; while :; do head -c 1M /dev/zero; done >~/x 2>/dev/null"), call.Options{})
			if err != nil {
				t.Error(err)
			}
			calls[i] = c
		})
	}
	wg.Wait()
	var stopped int
	for _, c := range calls {
		switch {
		case c == nil:
		case c.Metadata["reason"] == "disk" && strings.Contains(c.Output, "the disk of the host is nearly full"):
			stopped++
		case c.Error != nil && c.Error.Code == client.CodeAborted && strings.Contains(c.Error.Message, "the disk of the host is nearly full"):
			stopped++ // before its program ran
		case c.Error != nil && c.Error.Code == client.CodeOverloaded && strings.Contains(c.Error.Message, "the host's disk is nearly full"):
			stopped++
		default:
			t.Errorf("%v, %q, error %+v", c.Metadata, c.Output, c.Error)
		}
	}
	if stopped != sessions {
		t.Errorf("%d of %d calls were stopped", stopped, sessions)
	}
	unix.Sync()
	v, err = room.At(h.Dir)
	if floor := set.HostFree.Of(v.Size); err != nil || v.Free < floor {
		t.Errorf("%d bytes are free, the floor is %d, %v", v.Free, floor, err)
	}
	t.Logf("free %d MiB of %d, floor %d", v.Free>>20, v.Size>>20, set.HostFree.Of(v.Size)>>20)
	fill := h.Dir + "/fill"
	takeAllBut(t, fill, v, 8<<20)
	_, err = m.Create(t.Context(), alice, client.SessionCreate{})
	if codeOfErr(err) != client.CodeOverloaded || !strings.Contains(err.Error(), "must stay (daemon.host_free)") || !strings.Contains(err.Error(), "toolctl gc") {
		t.Errorf("a new session: %v", err)
	}
	if err := os.Remove(fill); err != nil {
		t.Error(err)
	}
	if err := m.EndAll(t.Context()); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	for len(h.own(t)) > 0 && t.Context().Err() == nil {
	}
}
