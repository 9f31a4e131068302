package docker_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toold/toold/internal/sandbox/sandboxtest"
	"github.com/toold/toold/internal/testrig"
)

// traces are what an Engine in dir with this cgroup has on this machine: processes, mounts, cgroups,
// files.
func traces(t *testing.T, dir, group string) []string {
	t.Helper()
	var found []string
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		line, err := os.ReadFile(p)
		if err == nil && strings.Contains(string(line), dir) {
			found = append(found, p+": "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.Contains(s.Text(), dir) {
			found = append(found, s.Text())
		}
	}
	for _, pattern := range []string{"/sys/fs/cgroup" + group, "/sys/fs/cgroup/*" + group} {
		groups, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, groups...)
	}
	if _, err := os.Lstat(dir); err == nil {
		found = append(found, dir)
	}
	return found
}

// A private Engine leaves nothing, also when what started it is killed while a
// container runs.
func TestEngineLeavesNothing(t *testing.T) {
	needDocker(t)
	for name, sig := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "terminated": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			outer := testrig.TempDir(t, "toold-test-docker-")
			cmd := exec.Command("../../../scripts/engine", "run", "/bin/sh", "-c", `echo "$DOCKER_HOST"; exec sleep 1000`)
			cmd.Env = append(os.Environ(), "TMPDIR="+outer)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			host, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			dir := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(host), "unix://"), "/docker.sock")
			e := &sandboxtest.Engine{Dir: dir}
			if err := e.ImportImage(); err != nil {
				t.Fatal(err)
			}
			f := newFixture(t, e, sandboxtest.BuildAgent(t))
			sb, _ := f.create()
			// A container without a parent of ours too.
			body := fmt.Sprintf(`{"Image":%q,"Cmd":["/bin/sleep","1000"],"HostConfig":{"NetworkMode":"none"}}`, sandboxtest.EngineImage)
			if err := e.API("POST", "/containers/create?name=plain", strings.NewReader(body)); err != nil {
				t.Fatal(err)
			}
			if err := e.API("POST", "/containers/plain/start", nil); err != nil {
				t.Fatal(err)
			}
			group, err := e.Cgroup()
			if err != nil {
				t.Fatal(err)
			}
			if len(traces(t, dir, group)) == 0 {
				t.Fatal("this test finds nothing of an Engine that runs")
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it was killed
			sandboxtest.AwaitEnd(t, sb)
			var left []string
			for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
				if left = traces(t, dir, group); len(left) == 0 {
					break
				}
			}
			if len(left) > 0 {
				t.Errorf("left:\n%s", strings.Join(left, "\n"))
			}
			entries, err := os.ReadDir(outer)
			if err != nil || slices.ContainsFunc(entries, func(os.DirEntry) bool { return true }) {
				t.Errorf("left in %s: %v, %v", outer, entries, err)
			}
			f.Lost = true
		})
	}
}
