package mount

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/testrig"
)

func TestPlan(t *testing.T) {
	var mounts []Detached
	for _, target := range []string{"/work", "/work/deep/modules", "/worker", "/cache", "/cache/a/b"} {
		mounts = append(mounts, Detached{Target: target})
	}
	want := []Staged{{"/b/0", "/work"}, {"/b/2", "/worker"}, {"/b/3", "/cache"}}
	if got := Plan("/b", mounts); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// What lies in a mount that lies in another is found through both.
func TestStageDeep(t *testing.T) {
	mounts := []Detached{detached(t, "/tree", "a/x"), detached(t, "/tree/a", "b/x"), detached(t, "/tree/a/b", "deep")}
	dir := t.TempDir()
	err := Stage(dir, mounts, func() error {
		_, err := os.Stat(filepath.Join(dir, "0/a/b/deep"))
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// needRoot skips a test where no mount can be made. TOOLD_TEST_REQUIRE turns the skip
// into a failure.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		testrig.Skipf(t, "oci", "mounts are made by root only")
	}
}

// detached makes a directory with these files, and a mount of it.
func detached(t *testing.T, target string, files ...string) Detached {
	t.Helper()
	needRoot(t)
	dir := t.TempDir()
	for _, f := range files {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(f)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), []byte(f), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	src, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	f, err := Detach(src, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return Detached{File: f, Target: target}
}

func TestStage(t *testing.T) {
	work := detached(t, "/work", "file", "modules/hidden")
	cache := detached(t, "/work/modules", "shown")
	dir := t.TempDir()
	var names []string
	err := Stage(dir, []Detached{work, cache}, func() error {
		for _, f := range []string{"0/file", "0/modules/shown", "0/modules/hidden"} {
			if _, err := os.Stat(filepath.Join(dir, f)); err == nil {
				names = append(names, f)
			}
		}
		return Bind(filepath.Join(dir, "0"), "/dev/shm")
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"0/file", "0/modules/shown"}; !slices.Equal(names, want) {
		t.Errorf("f saw %v, want %v", names, want)
	}
	// Nobody else sees any of it, during or after.
	if list, err := os.ReadDir(filepath.Join(dir, "0")); err != nil || len(list) != 0 {
		t.Errorf("the host sees %v, %v", list, err)
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(info), dir) {
		t.Errorf("a mount is left, or %v", err)
	}
}

// A target that is a link leads nowhere, and f is not called.
func TestStageFollowsNoLink(t *testing.T) {
	work := detached(t, "/work", "file")
	cache := detached(t, "/work/link", "shown")
	at := t.TempDir()
	if err := unix.Symlinkat("/etc", int(work.File.Fd()), "link"); err != nil {
		t.Fatal(err)
	}
	err := Stage(at, []Detached{work, cache}, func() error {
		t.Error("f was called")
		return nil
	})
	if !errors.Is(err, sandbox.ErrMountTarget) {
		t.Errorf("error %v, want %v", err, sandbox.ErrMountTarget)
	}
}
