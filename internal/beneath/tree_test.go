package beneath

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/needs"
)

// deep makes a directory so deep that no path names its end, with a file in each.
func deep(t *testing.T, dir string, levels int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for i := 0; err == nil && i < levels; i++ {
		var f, next int
		if f, err = unix.Openat(fd, "f", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600); err != nil {
			break
		}
		_, err = unix.Write(f, []byte("x"))
		unix.Close(f)
		if err == nil {
			err = unix.Mkdirat(fd, "d", 0o700)
		}
		if err == nil {
			next, err = unix.Openat(fd, "d", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	if err != nil {
		t.Fatal(err)
	}
}

// few lets the test have no more descriptors than it needs, and some.
func few(t *testing.T) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 2 * deepest, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
	})
}

// TestDeepTree: whoever makes a tree as deep as he can does not take the daemon's
// descriptors with it.
func TestDeepTree(t *testing.T) {
	needs.OpenAt2(t)
	dir := filepath.Join(t.TempDir(), "layer")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	const levels = 3000
	deep(t, dir, levels)
	few(t)
	if got, err := Usage(dir); err != nil || got < levels*512 {
		t.Errorf("usage %d, %v", got, err)
	}
	if err := RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Error("it is still there:", err)
	}
	if err := RemoveAll(dir); err != nil {
		t.Error("of nothing:", err)
	}
}

// TestUsageIsThatOfDu compares with du on random trees with links, holes and names of
// all bytes, and sees that nothing outside goes with them.
func TestUsageIsThatOfDu(t *testing.T) {
	needs.OpenAt2(t)
	for seed := range uint64(40) {
		dir := filepath.Join(t.TempDir(), "layer")
		outside := filepath.Join(t.TempDir(), "outside")
		if err := os.Mkdir(outside, 0o700); err != nil {
			t.Fatal(err)
		}
		randomTree(t, rand.New(rand.NewPCG(seed, 1)), dir, outside)
		out, err := exec.Command("du", "-s", "-B", "512", dir).Output()
		if err != nil {
			t.Skip("du:", err)
		}
		blocks, _, _ := strings.Cut(string(out), "\t")
		want, err := strconv.ParseInt(blocks, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Usage(dir)
		if err != nil || max(got-want*512, want*512-got) > 64 { // of files with three names a third is counted thrice
			t.Errorf("seed %d: usage %d, du %d, %v", seed, got, want*512, err)
		}
		if err := RemoveAll(dir); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if _, err := os.Lstat(dir); !os.IsNotExist(err) {
			t.Errorf("seed %d: it is still there", seed)
		}
		if _, err := os.Lstat(outside); err != nil {
			t.Errorf("seed %d: a link was followed: %v", seed, err)
		}
	}
}

func randomTree(t *testing.T, r *rand.Rand, dir, outside string) {
	t.Helper()
	dirs, files := []string{dir}, []string{}
	err := os.Mkdir(dir, 0o700)
	for i := 0; err == nil && i < 60; i++ {
		at := filepath.Join(dirs[r.IntN(len(dirs))], fmt.Sprintf("%d\n\xff", i))
		switch r.IntN(6) {
		case 0, 1:
			err = os.Mkdir(at, 0o700)
			dirs = append(dirs, at)
		case 2:
			err = os.WriteFile(at, make([]byte, r.IntN(20000)), 0o600)
			files = append(files, at)
		case 3:
			if err = os.WriteFile(at, []byte("x"), 0o600); err == nil {
				err = os.Truncate(at, 1<<20)
			}
		case 4:
			err = os.Symlink(outside, at)
		case 5:
			if len(files) > 0 {
				err = os.Link(files[r.IntN(len(files))], at)
			} else {
				err = unix.Mkfifo(at, 0o600)
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestRemoveAllStopsAtMounts(t *testing.T) {
	needs.OpenAt2(t)
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	dir := t.TempDir()
	for _, d := range []string{"/a/b", "/victim"} {
		if err := os.MkdirAll(dir+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dir+"/victim/file", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(dir+"/victim", dir+"/a/b", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	err := RemoveAll(dir + "/a")
	if unmounted := unix.Unmount(dir+"/a/b", 0); unmounted != nil {
		t.Fatal(unmounted)
	}
	if err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(dir + "/victim/file"); err != nil {
		t.Error("removed what was mounted:", err)
	}
	if err := RemoveAll(dir + "/a"); err != nil {
		t.Error(err)
	}
	if err := RemoveAll(dir + "/a"); err != nil {
		t.Error("second time:", err)
	}
}
