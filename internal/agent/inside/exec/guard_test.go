package exec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/wire"
)

// tree is a cgroup hierarchy of plain files.
type tree struct {
	t   *testing.T
	dir string
}

func (x *tree) write(file, text string) {
	x.t.Helper()
	path := filepath.Join(x.dir, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		x.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		x.t.Fatal(err)
	}
}

func (x *tree) read(file string) string {
	x.t.Helper()
	b, err := os.ReadFile(filepath.Join(x.dir, file))
	if err != nil {
		x.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func (x *tree) open(name string) int {
	x.t.Helper()
	fd, err := unix.Open(filepath.Join(x.dir, name), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func (x *tree) call(of *groups, name, memory string) *cgroup {
	x.write(name+"/memory.current", memory)
	x.write(name+"/cgroup.kill", "")
	return &cgroup{of: of, name: name, dir: x.open(name), events: -1}
}

func TestGuardKillsTheLargest(t *testing.T) {
	x := &tree{t, t.TempDir()}
	x.write("memory.current", "900")
	x.write("pids.events", "max 3\n")
	g := &guard{tools: x.open("."), memory: 1000}
	of := &groups{guard: g}
	small, large := x.call(of, "call-1", "200"), x.call(of, "call-2", "700")
	g.enter(small)
	g.enter(large)
	time.Sleep(5 * guardPause)
	if small.limit() != limitNone || large.limit() != limitNone {
		t.Error("somebody was hit below the limit")
	}
	x.write("memory.current", "1001")
	testrig.Eventually(t, "the largest is hit above the limit", func() bool {
		return large.limit() == limitMemory && x.read("call-2/cgroup.kill") == "1"
	})
	if small.limit() != limitNone || x.read("call-1/cgroup.kill") != "" {
		t.Error("the small one was hit too")
	}
	x.write("pids.events", "max 4\n")
	if small.limit() != limitPIDs {
		t.Error("a refused process was not noticed")
	}
	g.leave(small)
	g.leave(large)
	g.wg.Wait()
	// It begins again with the next program.
	next := x.call(of, "call-3", "1001")
	g.enter(next)
	testrig.Eventually(t, "it looks again", func() bool { return next.limit() == limitMemory })
	g.leave(next)
	g.wg.Wait()
}

// Files that are not there, or hold what cannot be, are nothing.
func TestGuardFigures(t *testing.T) {
	x := &tree{t, t.TempDir()}
	x.write("a", "12\n")
	x.write("b", "max\n")
	dir := x.open(".")
	for file, want := range map[string]int64{"a": 12, "b": 0, "absent": 0} {
		if got := figure(dir, file); got != want {
			t.Errorf("%s: %d, want %d", file, got, want)
		}
	}
}

func TestOwnCgroups(t *testing.T) {
	x := &tree{t, t.TempDir()}
	if _, err := makeOwnCgroups(x.dir, 7); err == nil || !strings.Contains(err.Error(), x.dir) {
		t.Errorf("a directory that is no hierarchy: %v", err)
	}
}

// Who is asked to keep limits and cannot does not begin.
func TestLimitsWithoutCgroups(t *testing.T) {
	var notes []string
	if err := (&groups{parent: -1}).contain(Config{Hello: &wire.Hello{Memory: 1}}, &notes); err == nil {
		t.Error("promised to keep a limit on memory without a means")
	}
}
