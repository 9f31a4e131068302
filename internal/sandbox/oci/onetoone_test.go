package oci_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/mount"
)

// File systems without id-mapped mounts: the owner is mapped 1:1, user and group
// each for itself.
func TestOneToOne(t *testing.T) {
	for name, source := range map[string]func(*testing.T) *os.File{"ramfs": ramfs, "overlay": overlay} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			src := source(t)
			if err := unix.Fchown(int(src.Fd()), 4321, 5432); err != nil {
				t.Fatal(err)
			}
			if err := unix.Fchmod(int(src.Fd()), 0o700); err != nil {
				t.Fatal(err)
			}
			spec := f.Spec()
			spec.Worktree = sandbox.Worktree{Source: src, Mode: client.WorktreeBind, Target: sandbox.Workspace, UID: 4321, GID: 5432}
			l := f.create(spec)
			if l.IDMap() != "mapped 1:1" {
				t.Errorf("IDMap is %q", l.IDMap())
			}
			if notes := strings.Join(l.Notes(), "\n"); !strings.Contains(notes, "uid 4321 and gid 5432") {
				t.Errorf("notes do not say with which ids tools run: %s", notes)
			}
			if got := l.out("cd /workspace && echo new >f && stat -c %u:%g . f"); got != "1000:1000\n1000:1000" {
				t.Errorf("owners inside are %q", got)
			}
			var st unix.Stat_t
			if err := unix.Fstatat(int(src.Fd()), "f", &st, 0); err != nil {
				t.Fatal(err)
			}
			if st.Uid != 4321 || st.Gid != 5432 {
				t.Errorf("new file belongs to %d:%d on the host, want 4321:5432", st.Uid, st.Gid)
			}
		})
	}
}

// Neither root nor any session's ids are given to a sandbox.
func TestOneToOneRefuses(t *testing.T) {
	f := newFixture(t)
	f.cfg.UIDBase = 1 << 29
	f.driver = f.open()
	src := ramfs(t)
	own := f.Spec().UIDBase
	for _, tt := range []struct {
		uid, gid uint32
		says     string
	}{
		{0, 0, "user root"},
		{0, 4321, "user root"},
		{4321, 0, "group root"},
		{own, 4321, "those of sessions"},
		{own + 3*sandbox.RangeSize, 4321, "those of sessions"},
		{4321, 1 << 29, "those of sessions"},
		{1<<32 - 2, 4321, "those of sessions"},
	} {
		spec := f.Spec()
		spec.Worktree = sandbox.Worktree{Source: src, Mode: client.WorktreeBind, Target: sandbox.Workspace, UID: tt.uid, GID: tt.gid}
		sb, err := f.driver.Create(f.Ctx(), spec)
		if err == nil {
			sb.Close()
		}
		if !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%d:%d: %v, want a refusal saying %q", tt.uid, tt.gid, err, tt.says)
		}
	}
}

// ramfs is a directory of a file system that knows no id maps, mounted nowhere.
func ramfs(t *testing.T) *os.File {
	return mountedNowhere(t, "ramfs", nil)
}

// overlay is a directory of an overlay file system, mounted nowhere.
func overlay(t *testing.T) *os.File {
	options := map[string]string{"lowerdir": t.TempDir()}
	base := t.TempDir() // upper and work have to be on one file system
	for _, name := range []string{"upperdir", "workdir"} {
		options[name] = base + "/" + name
		if err := os.Mkdir(options[name], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return mountedNowhere(t, "overlay", options)
}

func mountedNowhere(t *testing.T, fstype string, options map[string]string) *os.File {
	t.Helper()
	needOCI(t)
	m, err := mount.New(fstype, fstype, options, unix.MOUNT_ATTR_NODEV)
	if errors.Is(err, unix.ENODEV) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	root, err := unix.Openat(int(m.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	dir := os.NewFile(uintptr(root), fstype+" directory")
	t.Cleanup(func() { dir.Close() })
	return dir
}
