package loopdisk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox/inside"
)

// TestPlaces: each place is empty and its owner's, the disk bounds them together, and they are
// all that there is of it: the file has no name, and the device goes with the last of them.
func TestPlaces(t *testing.T) {
	dir := disk(t) // or there are none here
	d := inside.Disk{Size: Least, Places: []inside.Place{
		{Name: "tmp", Target: "/tmp", Mode: 0o1777},
		{Name: "home", Target: "/home/tool", Mode: 0o700, Tool: true},
	}}
	mounts, err := Places(dir, "ses_x", d, Owners{RootUID: 7, RootGID: 8, ToolUID: 9, ToolGID: 10})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []unix.Stat_t{{Mode: unix.S_IFDIR | 0o1777, Uid: 7, Gid: 8}, {Mode: unix.S_IFDIR | 0o700, Uid: 9, Gid: 10}} {
		var st unix.Stat_t
		m := mounts[i]
		if err := unix.Fstat(int(m.File.Fd()), &st); err != nil || st.Mode != want.Mode || st.Uid != want.Uid || st.Gid != want.Gid || m.Target != d.Places[i].Target {
			t.Errorf("%s: mode %o, %d:%d, %v", m.Target, st.Mode, st.Uid, st.Gid, err)
		}
		if names, err := os.ReadDir(fmt.Sprintf("/proc/self/fd/%d", m.File.Fd())); err != nil || len(names) > 0 {
			t.Errorf("%s has %v, %v", m.Target, names, err)
		}
	}
	// How much the first of them takes is the file system's matter: what it had set aside for
	// itself it may give back a moment later.
	var written int64
	for _, m := range mounts {
		if err := put(t, m.File, "big", make([]byte, Least)); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%s took as much as the disk: %v", m.Target, err)
		}
		var st unix.Stat_t
		if err := unix.Fstatat(int(m.File.Fd()), "big", &st, 0); err != nil {
			t.Fatal(err)
		}
		written += st.Size
	}
	if written < int64(Least)/2 || written > int64(Least) {
		t.Errorf("the places took %d bytes of a disk of %d", written, int64(Least))
	}
	if s := Look(dir); s.Promised != int64(Least) {
		t.Errorf("there are disks of %d bytes", s.Promised)
	}
	for _, m := range mounts {
		if err := m.File.Close(); err != nil {
			t.Error(err)
		}
	}
	for Look(dir).Promised > 0 { // the kernel lets go of it a moment later
		if t.Context().Err() != nil {
			t.Fatal("a device is left")
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ownPrefix+"*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestProbeSweeps: what a daemon left that was killed in the middle of making a disk goes.
func TestProbeSweeps(t *testing.T) {
	dir := disk(t)
	left := filepath.Join(dir, ownPrefix+"ses_killed")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := Probe{Dir: dir}
	if err := p.Works(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("it is still there")
	}
	if _, err := os.Stat(filepath.Join(dir, "one")); err != nil {
		t.Error("another's disk is not there any more")
	}
	if err := (&Probe{Dir: "/proc/none"}).Works(); err == nil {
		t.Error("a directory that cannot be has disks")
	}
}
