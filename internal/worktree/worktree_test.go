package worktree_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/needs"
	"github.com/toold/toold/internal/worktree"
)

// tree makes root/{project, other, link → project, file} and a neighbour.
func tree(t *testing.T) (root, outside string) {
	t.Helper()
	needs.OpenAt2(t)
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, outside = filepath.Join(base, "root"), filepath.Join(base, "outside")
	for _, d := range []string{root + "/project/sub", root + "/other", outside, base + "/root2"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	links := map[string]string{"link": "project", "escape": outside, "up": "../outside", "etc": "/etc"}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(root+"/file", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return root, outside
}

func TestPin(t *testing.T) {
	root, outside := tree(t)
	tests := []struct {
		name, source string
		want         error
		says         string
	}{
		{"a directory", root + "/project", nil, ""},
		{"a directory below", root + "/project/sub", nil, ""},
		{"the root itself", root, nil, ""},
		{"outside", outside, worktree.ErrForbidden, "not below an allowed root"},
		{"a name that begins like the root", root + "2", worktree.ErrForbidden, "not below"},
		{"dots out", root + "/../outside", worktree.ErrInvalidPath, "write it as"},
		{"trailing slash", root + "/project/", worktree.ErrInvalidPath, "write it as"},
		{"relative", "project", worktree.ErrInvalidPath, "absolute"},
		{"empty", "", worktree.ErrInvalidPath, "empty"},
		{"NUL", root + "/a\x00b", worktree.ErrInvalidPath, "NUL"},
		{"too long", root + "/" + strings.Repeat("x/", 3000) + "x", worktree.ErrInvalidPath, "longer"},
		{"link inside the root", root + "/link", worktree.ErrInvalidPath, "symbolic link"},
		{"below a link", root + "/link/sub", worktree.ErrInvalidPath, "symbolic link"},
		{"link out", root + "/escape", worktree.ErrInvalidPath, "symbolic link"},
		{"relative link out", root + "/up", worktree.ErrInvalidPath, "symbolic link"},
		{"link to a host place", root + "/etc", worktree.ErrInvalidPath, "symbolic link"},
		{"a file", root + "/file", worktree.ErrInvalidPath, "not a directory"},
		{"missing", root + "/nothing", worktree.ErrInvalidPath, "no such file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := worktree.Pin(tt.source, worktree.Rules{Roots: []string{root}})
			if !errors.Is(err, tt.want) || (err != nil && !strings.Contains(err.Error(), tt.says)) {
				t.Fatalf("Pin = %v, want %v saying %q", err, tt.want, tt.says)
			}
			if err == nil {
				defer d.Close()
				if d.Path != tt.source || d.UID != uint32(os.Getuid()) || d.GID != uint32(os.Getgid()) {
					t.Errorf("pinned %s of %d:%d", d.Path, d.UID, d.GID)
				}
			}
		})
	}
}

// Nobody gets the host's own places: not an administrator, not by a root that
// contains them.
func TestPinRefusesHostPlaces(t *testing.T) {
	private := filepath.Join(t.TempDir(), "state")
	if err := os.MkdirAll(private+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{
		"/", "/etc", "/etc/ssl", "/proc", "/proc/1", "/proc/self/root", "/sys", "/sys/fs/cgroup", "/dev", "/dev/shm",
		"/run", "/run/toold", "/var", "/var/run", "/var/run/docker", "/var/lib", "/var/lib/toold", "/var/lib/toold/x",
		"/usr", "/usr/bin", "/usr/local", "/usr/local/lib", "/bin", "/lib", "/boot", "/var/lib/docker", "/var/spool",
		private, private + "/sub", filepath.Dir(private),
	} {
		for name, rules := range map[string]worktree.Rules{
			"administrator": {AnyRoot: true},
			"root /":        {Roots: []string{"/"}},
			"own root":      {Roots: []string{source}},
		} {
			rules.Private = []string{private}
			d, err := worktree.Pin(source, rules)
			if !errors.Is(err, worktree.ErrForbidden) {
				t.Errorf("%s as %s: %v, want forbidden", source, name, err)
			}
			if d != nil {
				d.Close()
			}
		}
	}
}

func TestPinWithoutRoots(t *testing.T) {
	root, _ := tree(t)
	if _, err := worktree.Pin(root+"/project", worktree.Rules{}); !errors.Is(err, worktree.ErrForbidden) {
		t.Errorf("no roots: %v, want forbidden", err)
	}
	d, err := worktree.Pin(root+"/project", worktree.Rules{AnyRoot: true})
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	// An administrator's roots bind him too.
	if _, err := worktree.Pin(root+"/other", worktree.Rules{AnyRoot: true, Roots: []string{root + "/project"}}); !errors.Is(err, worktree.ErrForbidden) {
		t.Errorf("other root: %v, want forbidden", err)
	}
}

// A root may be reached over a link, but then it is judged by where it leads.
func TestPinLinkedRoot(t *testing.T) {
	root, outside := tree(t)
	d, err := worktree.Pin(root+"/escape", worktree.Rules{Roots: []string{root + "/escape"}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Path != outside {
		t.Errorf("pinned %s, want %s", d.Path, outside)
	}
	if _, err := worktree.Pin(root+"/etc", worktree.Rules{Roots: []string{root + "/etc"}}); !errors.Is(err, worktree.ErrForbidden) {
		t.Errorf("root that leads to /etc: %v, want forbidden", err)
	}
}

// The descriptor stays with the directory, whatever happens to the path.
func TestPinHolds(t *testing.T) {
	root, _ := tree(t)
	d, err := worktree.Pin(root+"/project", worktree.Rules{Roots: []string{root}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var before, after unix.Stat_t
	if err := unix.Stat(root+"/project", &before); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(root+"/project", root+"/moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", root+"/project"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fstat(int(d.Fd()), &after); err != nil {
		t.Fatal(err)
	}
	if before.Ino != after.Ino || before.Dev != after.Dev {
		t.Error("descriptor has moved to another directory")
	}
}

// While others exchange a directory with a link, Pin gives the directory or
// refuses, and never where the link leads.
func TestPinRace(t *testing.T) {
	root, outside := tree(t)
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			err := unix.Renameat2(unix.AT_FDCWD, root+"/project", unix.AT_FDCWD, root+"/escape", unix.RENAME_EXCHANGE)
			if err != nil {
				done <- err
				return
			}
		}
	}()
	var want unix.Stat_t
	if err := unix.Stat(outside, &want); err != nil {
		t.Fatal(err)
	}
	// Until both have been seen: who exchanges may be stopped for longer than any
	// number of tries takes, and then there is no race.
	pinned, refused := 0, 0
	for end := time.Now().Add(time.Minute); pinned+refused < 2000 || pinned < 10 || refused < 10; {
		if time.Now().After(end) {
			t.Errorf("%d pinned and %d refused: the race proves nothing", pinned, refused)
			break
		}
		d, err := worktree.Pin(root+"/project", worktree.Rules{Roots: []string{root}})
		if err != nil {
			refused++
			continue
		}
		pinned++
		var st unix.Stat_t
		if err := unix.Fstat(int(d.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		if st.Ino == want.Ino {
			t.Fatal("pinned the target of a link")
		}
		d.Close()
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
