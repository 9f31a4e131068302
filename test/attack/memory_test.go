package attack

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// smallCgroup makes a cgroup whose programs may have so many bytes of memory, until the test is over. It
// gives the file that takes processes, and how many were killed for want of memory.
func smallCgroup(t *testing.T, name string, memory int64) (procs string, killed func() int64) {
	t.Helper()
	dir, limit, events := filepath.Join("/sys/fs/cgroup", name), "memory.max", "memory.events"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		dir, limit, events = filepath.Join("/sys/fs/cgroup/memory", name), "memory.limit_in_bytes", "memory.oom_control"
	}
	must(t, testrig.Doomed(name))
	must(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() {
		testrig.Eventually(t, "nothing is in the cgroup any more", func() bool { return os.Remove(dir) == nil })
	})
	must(t, os.WriteFile(filepath.Join(dir, limit), fmt.Append(nil, memory), 0))
	return filepath.Join(dir, "cgroup.procs"), func() int64 {
		_, rest, found := strings.Cut(read(filepath.Join(dir, events)), "oom_kill ")
		first, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.ParseInt(strings.TrimSpace(first), 10, 64)
		if !found || err != nil {
			t.Errorf("%s: %q, %v", events, read(filepath.Join(dir, events)), err)
		}
		return n
	}
}

// TestLargeInputs: a daemon that may have 200 MiB of memory is sent by one tenant, at once, many times as
// much in inputs. Each is taken or refused, nothing is killed for it, and another tenant's calls go on.
func TestLargeInputs(t *testing.T) {
	if why != "" {
		t.Skip(why)
	}
	if current != tiers[0] {
		t.Skip("is about the daemon alone")
	}
	procs, killed := smallCgroup(t, cgroupParent+"-small", 200<<20)
	r := newRig(t, []string{"sh", "-c", "echo $$ >" + procs + ` && exec "$@"`, "sh"}, "")
	mine, theirs := r.session(t, r.a, client.SessionCreate{}), r.session(t, r.b, client.SessionCreate{})
	const (
		callers = 16
		size    = 8 << 20
	)
	var taken, refused atomic.Int64
	var wait sync.WaitGroup
	for n := range callers {
		wait.Go(func() {
			input, err := json.Marshal(map[string]string{"file_path": fmt.Sprint("f", n), "content": strings.Repeat("0123456789abcde\n", size/16)})
			if err != nil {
				t.Error(err)
			}
			for range 3 {
				_, err := r.a.CreateCall(t.Context(), mine.ID, client.CallCreate{Tool: "write", Input: input}, client.CallOptions{})
				e, answered := errors.AsType[*client.Error](err)
				switch {
				case err == nil:
					taken.Add(1)
				case answered && e.Code != client.CodeInternal:
					refused.Add(1)
				default:
					t.Errorf("a large input: %v", err)
				}
			}
		})
	}
	over := make(chan struct{})
	go func() { wait.Wait(); close(over) }()
	calls := 0
	for done := false; !done; calls++ {
		select {
		case <-over:
			done = true
		default:
		}
		c, err := tryCall(r.b, theirs.ID, "bash", map[string]any{"command": "echo here"})
		if err != nil || c.Output != "here\n" {
			t.Errorf("meanwhile another tenant's call: %+v, %v", c, err)
			break
		}
	}
	<-over
	if n := killed(); n != 0 {
		t.Errorf("%d processes were killed for want of memory", n)
	}
	if taken.Load() == 0 {
		t.Error("no large input was taken")
	}
	t.Logf("of %d inputs of %d MiB %d were taken and %d refused, beside %d calls of another", callers*3, size>>20, taken.Load(), refused.Load(), calls)
}
