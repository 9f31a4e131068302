package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
)

// ownedDir is a directory of a user and a group.
func ownedDir(t *testing.T, uid, gid int) *os.File {
	t.Helper()
	needRoot(t)
	dir := t.TempDir()
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// unmappable is a directory of a file system that knows no id maps.
func unmappable(t *testing.T, uid, gid int) *os.File {
	t.Helper()
	needRoot(t)
	m, err := New("ramfs", "ramfs", nil, unix.MOUNT_ATTR_NODEV)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	fd, err := unix.Openat(int(m.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "ramfs")
	t.Cleanup(func() { f.Close() })
	if err := f.Chown(uid, gid); err != nil {
		t.Fatal(err)
	}
	return f
}

// described says of each mount where it goes, whose its directory is there, and what
// it forbids.
func described(t *testing.T, set *Set) []string {
	t.Helper()
	var list []string
	for _, m := range set.Mounts {
		var fs unix.Statfs_t
		var st unix.Stat_t
		if err := errors.Join(unix.Fstatfs(int(m.File.Fd()), &fs), unix.Fstat(int(m.File.Fd()), &st)); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%s %d:%d", m.Target, st.Uid, st.Gid)
		for _, flag := range []struct {
			bit  int64
			name string
		}{{unix.ST_RDONLY, "ro"}, {unix.ST_NOEXEC, "noexec"}, {unix.ST_NOSUID, "nosuid"}, {unix.ST_NODEV, "nodev"}} {
			if fs.Flags&flag.bit != 0 {
				line += " " + flag.name
			}
		}
		list = append(list, line)
	}
	return list
}

func TestSession(t *testing.T) {
	const unbounded = "the worktree is a directory of the host: its size has no bound"
	const roots = "the worktree belongs to root: what a session leaves there is root's, on the host a program with all rights; give it to another user"
	const unreadable = "ramfs: its file system has no id-mapped mounts: only what everyone may read is readable"
	refusal := errors.New("not to this one")
	asTool := func(w *os.File, uid, gid uint32) sandbox.Worktree {
		return sandbox.Worktree{Source: w, Target: "/work", UID: uid, GID: gid}
	}
	mine, other, plain := ownedDir(t, 41, 42), ownedDir(t, 51, 52), unmappable(t, 41, 42)
	out := ownedDir(t, 0, 0).Name()
	for name, tt := range map[string]struct {
		session Session
		claim   sandbox.Claim
		mounts  []string
		idMap   string
		notes   []string
		err     string
	}{
		"nothing": {},
		"all, in its order": {
			claim: sandbox.Claim{Worktree: asTool(mine, 41, 42), OutputDir: out, Mounts: []sandbox.Mount{
				{Source: other, Target: "/work/a/in", UID: 51, GID: 52},
				{Source: mine, Target: "/cache", UID: 41, GID: 42},
				{Source: other, Target: "/work/a", UID: 61, GID: 52},
			}},
			mounts: []string{
				"/work 7001:7002 nosuid nodev", "/run/toold/output 0:0 ro noexec nosuid nodev", "/cache 7001:7002 ro nosuid nodev",
				"/work/a 51:7002 ro nosuid nodev", "/work/a/in 7001:7002 ro nosuid nodev",
			},
			idMap: "idmapped", notes: []string{unbounded},
		},
		"read-only": {
			session: Session{ReadOnly: true}, claim: sandbox.Claim{Worktree: asTool(mine, 41, 42)},
			mounts: []string{"/work 7001:7002 ro nosuid nodev"}, idMap: "idmapped",
		},
		"root's": {
			claim:  sandbox.Claim{Worktree: asTool(mine, 0, 0)},
			mounts: []string{"/work 41:42 nosuid nodev"}, idMap: "idmapped", notes: []string{unbounded, roots},
		},
		"beside the owner": {
			session: Session{Beside: []Range{{FS: 41, Host: 8001, Size: 1}, {FS: 42, Host: 8002, Size: 1}}},
			claim:   sandbox.Claim{Worktree: asTool(mine, 61, 62)},
			mounts:  []string{"/work 8001:8002 nosuid nodev"}, idMap: "idmapped", notes: []string{unbounded},
		},
		"outputs where root is root": {
			session: Session{RootIsRoot: true}, claim: sandbox.Claim{OutputDir: out},
			mounts: []string{"/run/toold/output 65534:65534 ro noexec nosuid nodev"},
		},
		"one to one": {
			session: Session{OneToOne: func() error { return nil }},
			claim: sandbox.Claim{Worktree: asTool(plain, 41, 42), Mounts: []sandbox.Mount{
				{Source: other, Target: "/a", UID: 51, GID: 52}, {Source: plain, Target: "/b"},
			}},
			mounts: []string{"/work 41:42 nosuid nodev", "/a 41:42 ro nosuid nodev", "/b 41:42 ro nosuid nodev"},
			idMap:  "mapped 1:1", notes: []string{unbounded, unreadable},
		},
		"refused": {
			session: Session{OneToOne: func() error { return refusal }},
			claim:   sandbox.Claim{Worktree: asTool(plain, 41, 42)},
			err:     "worktree: not to this one",
		},
		"no outputs": {
			claim: sandbox.Claim{Worktree: asTool(mine, 41, 42), OutputDir: "/nonexistent"},
			err:   "output directory: open /nonexistent: no such file or directory",
		},
		"not the owner's": {
			claim:  sandbox.Claim{Worktree: asTool(mine, 61, 42)},
			mounts: []string{"/work 41:7002 nosuid nodev"}, idMap: "idmapped", notes: []string{unbounded},
		},
		"closed": {
			claim: sandbox.Claim{Worktree: asTool(mine, 41, 42), Mounts: []sandbox.Mount{{Source: closed(t), Target: "/a"}}},
			err:   "mount /a: open_tree: bad file descriptor",
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := descriptors(t)
			s := tt.session
			s.Claim, s.ToolUID, s.ToolGID = &tt.claim, 7001, 7002
			set, err := s.Detach()
			if fmt.Sprint(err) != tt.err && (err != nil || tt.err != "") {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if err == nil {
				if got := described(t, set); !slices.Equal(got, tt.mounts) {
					t.Errorf("mounts:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(tt.mounts, "\n"))
				}
				if set.IDMap != tt.idMap || !slices.Equal(set.Notes, tt.notes) {
					t.Errorf("id map %q and notes %q, want %q and %q", set.IDMap, set.Notes, tt.idMap, tt.notes)
				}
				for _, m := range set.Mounts {
					m.File.Close()
				}
			}
			if after := descriptors(t); !slices.Equal(after, before) {
				t.Errorf("descriptors are left: %v, were %v", after, before)
			}
		})
	}
}

func closed(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	return f
}

// descriptors are what this process has open but for the runtime's own.
func descriptors(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, name := range names {
		if to, err := os.Readlink(name); err == nil && !strings.HasPrefix(to, "anon_inode:") && !strings.HasSuffix(to, "/fd") {
			list = append(list, to)
		}
	}
	slices.Sort(list)
	return list
}
