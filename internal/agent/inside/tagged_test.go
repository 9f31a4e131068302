package inside

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/toold/toold/internal/agent"
)

func newTaggedRig(t *testing.T) (*rig, *agent.Conn) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to change groups")
	}
	r := newRig(t)
	c, w := r.connect(r.hello())
	if len(w.Notes) == 0 || !strings.Contains(strings.Join(w.Notes, "\n"), "additional group id") {
		t.Errorf("notes %q say nothing of the group", w.Notes)
	}
	return r, c
}

// Without cgroups, whatever a call starts is gone after it all the same.
func TestTagged(t *testing.T) {
	r, c := newTaggedRig(t)
	nothingSurvives(t, r, c)
}

// A process whose first thread has ended is shown as dead. It is not.
func TestTaggedHeadless(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3 to end a first thread")
	}
	r, c := newTaggedRig(t)
	out, o := r.bash(c, "b", `setsid python3 -c '
import ctypes, os, threading, time
threading.Thread(target=lambda: time.sleep(300)).start()
print(os.getpid(), flush=True)
ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)' & until state=$(cut -d" " -f3 /proc/$!/stat); [ $state = Z ]; do sleep 0.01; done; echo $state`)
	pid, state, _ := strings.Cut(strings.TrimSpace(out), "\n")
	if state != "Z" || o.Exit.BackgroundKilled != 1 {
		t.Errorf("%q %+v", out, o.Exit)
	}
	gone(t, pid)
}

// No program has the group of another one, nor can it get rid of its own.
func TestTagsDiffer(t *testing.T) {
	r, c := newTaggedRig(t)
	long := make(chan error, 1)
	began := make(chan struct{})
	first := sync.OnceFunc(func() { close(began) })
	s := sink{hook: func(int64) error { first(); return nil }}
	go func() {
		_, err := c.Run(t.Context(), bashCall("long", "id -G; setsid bash -c '"+until("end")+"'; echo done"), &s)
		long <- err
	}()
	<-began
	out, _ := r.bash(c, "short", "id -G; setsid sleep 300 & python3 -c 'import os; os.setgroups([])' 2>&1 | tail -1; newgrp - 2>&1 </dev/null | head -1; id -G")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if lines[0] != lines[len(lines)-1] {
		t.Errorf("groups were %s and are %s", lines[0], lines[len(lines)-1])
	}
	r.release("end")
	if err := <-long; err != nil {
		t.Fatal(err)
	}
	if text := string(s.data); !strings.HasSuffix(text, "done\n") || strings.HasPrefix(text, lines[0]+"\n") {
		t.Errorf("the other call was hit, or has the same groups %s: %q", lines[0], text)
	}
}
