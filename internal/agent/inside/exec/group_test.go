package exec

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A cgroup that cannot be removed is tried again before the next program.
func TestLeftoverGroups(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	g := &groups{parent: fd}
	first, err := g.make()
	if err != nil {
		t.Fatal(err)
	}
	busy := filepath.Join(dir, "call-1", "busy")
	if err := os.WriteFile(busy, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first.remove()
	second, err := g.make()
	if err != nil {
		t.Fatal(err)
	}
	second.remove()
	if _, err := os.Stat(filepath.Join(dir, "call-1")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(busy); err != nil {
		t.Fatal(err)
	}
	third, err := g.make()
	if err != nil {
		t.Fatal(err)
	}
	third.remove()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 || len(g.left) != 0 {
		t.Errorf("left: %v %v %v", left, g.left, err)
	}
}

func TestGroupWithoutTheRightToMakeOne(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	g := &groups{parent: int(f.Fd())}
	if os.Getuid() == 0 {
		// Root may make a directory; it is no cgroup, so nothing can be started in it.
		made, err := g.make()
		if err != nil {
			t.Fatal(err)
		}
		made.kill()
		if len(made.pids()) != 0 {
			t.Error("processes in a plain directory")
		}
		made.remove()
		made.bill(&usage{})
		return
	}
	if _, err := g.make(); err == nil {
		t.Error("no error")
	}
}

func TestStatField(t *testing.T) {
	stat := []byte("usage_usec 1234\nuser_usec 5\nbad x\n")
	for name, want := range map[string]int64{"usage_usec": 1234, "user_usec": 5, "usec": 0, "bad": 0} {
		if got := statField(stat, name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}
