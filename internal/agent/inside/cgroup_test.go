package inside

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
)

func newCgroupRig(t testing.TB, tools ...run.Tool) (*rig, *agent.Conn) {
	t.Helper()
	cg := testrig.CallCgroup(t) // before the server, so that it goes after it
	r := newRig(t, tools...)
	h := r.hello()
	h.CallCgroup = cg
	c, w := r.connect(h)
	for _, n := range w.Notes {
		if strings.Contains(n, "cgroup") {
			t.Errorf("note %q with a cgroup", n)
		}
	}
	return r, c
}

// The shell that has been started after a call is the one of the next.
func TestNextCallHasTheShellThatWaits(t *testing.T) {
	cg := testrig.CallCgroup(t)
	r := newRig(t)
	h := r.hello()
	h.CallCgroup = cg
	c, _ := r.connect(h)
	r.bash(c, "first", "true")
	var pid string
	testrig.Eventually(t, "a shell waits", func() bool {
		groups, _ := filepath.Glob(cg.Name() + "/call-*/cgroup.procs")
		for _, g := range groups {
			b, _ := os.ReadFile(g)
			pid = strings.TrimSpace(string(b))
		}
		return pid != ""
	})
	if out, _ := r.bash(c, "second", "echo $$"); strings.TrimSpace(out) != pid {
		t.Errorf("process %s waited, and %q ran the command", pid, out)
	}
}

func TestCallCgroup(t *testing.T) {
	r, c := newCgroupRig(t)
	out, o := r.bash(c, "a", "grep ^0: /proc/self/cgroup; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
	if !strings.Contains(out, "/call-") {
		t.Errorf("cgroup %q", out)
	}
	if o.Exit.CPUMillis <= 0 {
		t.Errorf("bill %+v", o.Exit)
	}
	nothingSurvives(t, r, c)
}

// nothingSurvives makes calls that leave processes behind in all ways: whatever a call
// starts is gone after it.
func nothingSurvives(t *testing.T, r *rig, c *agent.Conn) {
	t.Helper()
	out, o := r.bash(c, "b", `setsid sleep 300 & echo $!; (setsid bash -c 'echo $$; : > born; sleep 300' &); `+until("born"))
	pids := strings.Fields(out)
	if len(pids) != 2 || o.Exit.BackgroundKilled < 2 || o.Exit.Code != 0 {
		t.Errorf("%q %+v", out, o.Exit)
	}
	for _, pid := range pids {
		gone(t, pid)
	}
	// Signals are ignored, the leader is stopped, its children have sessions of their own.
	var s sink
	s.hook = func(int64) error {
		pids := strings.Fields(string(s.data))
		if len(pids) < 3 {
			return nil
		}
		stopped(t, pids[2]) // the leader
		return c.Abort("c", run.ReasonAborted)
	}
	o, err := c.Run(t.Context(), bashCall("c", `trap '' TERM; (trap '' TERM; setsid bash -c 'echo $$; : > born2; while :; do sleep 1; done') &
`+until("born2")+`; echo $!; echo $$; while :; do kill -STOP $$; done`), &s)
	if err != nil || o.Err != nil || o.Exit.Reason != run.ReasonAborted || o.Exit.Signal != "SIGKILL" {
		t.Fatal(err, o, o.Exit)
	}
	for pid := range strings.FieldsSeq(string(s.data)) {
		gone(t, pid)
	}
}

// stopped waits until a process is stopped.
func stopped(t *testing.T, pid string) {
	testrig.Eventually(t, "process "+pid+" is stopped", func() bool {
		stat, _ := os.ReadFile("/proc/" + pid + "/stat")
		return bytes.Contains(stat, []byte(") T "))
	})
}

// A process of another call holds the pipe: the call ends all the same.
func TestPipeHeldByAnotherCall(t *testing.T) {
	r, c := newCgroupRig(t)
	holder := make(chan error, 1)
	go func() {
		_, err := c.Run(t.Context(), bashCall("holder", `python3 - <<'E'
import socket, os, array, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
s.bind('s'); s.listen(1)
open('ready','w').close()
c, _ = s.accept()
c.recvmsg(1, socket.CMSG_SPACE(4))
open('held','w').close()
time.sleep(300)
E`), &sink{})
		holder <- err
	}()
	testrig.Eventually(t, "somebody listens", func() bool {
		_, err := os.Stat(filepath.Join(r.dir, "ready"))
		return err == nil
	})
	out, o := r.bash(c, "a", `python3 - <<'E'
import socket, os, array, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
s.connect('s')
s.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [1]))])
while not os.path.exists('held'): time.sleep(0.01)
print('given')
E`)
	if out != "given\n" || o.Exit.Code != 0 {
		t.Errorf("%q %+v", out, o.Exit)
	}
	if err := c.Abort("holder", run.ReasonAborted); err != nil {
		t.Fatal(err)
	}
	if err := <-holder; err != nil {
		t.Error(err)
	}
}

// BenchmarkBash is a whole call, with a cgroup of its own.
func BenchmarkBash(b *testing.B) {
	_, c := newCgroupRig(b)
	i := 0
	for b.Loop() {
		i++
		id := fmt.Sprint(i)
		o, err := c.Run(b.Context(), bashCall(id, "true"), &sink{})
		if err != nil || o.Err != nil {
			b.Fatal(err, o)
		}
		if err := c.Forget(id); err != nil {
			b.Fatal(err)
		}
	}
}
