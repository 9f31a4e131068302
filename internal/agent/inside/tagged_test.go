package inside

import (
	"fmt"
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

func TestTags(t *testing.T) {
	tags := newTags()
	seen := make(map[uint32]bool)
	for range lastTag - firstTag + 1 {
		tag := tags.take()
		if tag < firstTag || tag > lastTag || seen[tag] {
			t.Fatalf("tag %d is out of range or taken", tag)
		}
		seen[tag] = true
	}
	if tag := tags.take(); tag != 0 {
		t.Errorf("tag %d, although all are in use", tag)
	}
	tags.give(firstTag + 7)
	if tag := tags.take(); tag != firstTag+7 {
		t.Errorf("tag %d, want the one that is free", tag)
	}
}

func TestTaggedHas(t *testing.T) {
	threads := func(state, groups string, n int) []byte {
		return fmt.Appendf(nil, "Name:\tGroups:\t50001\nState:\t%s\nGroups:\t%s\nNSsid:\t70\t7\nThreads:\t%d\n", state, groups, n)
	}
	status := func(state, groups string) []byte { return threads(state, groups, 1) }
	tag, sid := &tagged{tag: 50001}, &tagged{sid: 7}
	for _, tt := range []struct {
		name   string
		g      *tagged
		status []byte
		want   bool
	}{
		{"its own", tag, status("S (sleeping)", "50001 "), true},
		{"one of several", tag, status("T (stopped)", "4 50001 60000 "), true},
		{"longer", tag, status("S (sleeping)", "500011 "), false},
		{"none", tag, status("S (sleeping)", " "), false},
		{"a zombie", tag, status("Z (zombie)", "50001 "), false},
		{"a zombie that does not count", tag, threads("Z (zombie)", "50001 ", 0), false},
		{"only its first thread has ended", tag, threads("Z (zombie)", "50001 ", 2), true},
		{"another's, of which the first thread has ended", tag, threads("Z (zombie)", "50002 ", 2), false},
		{"dead", tag, status("X (dead)", "50001 "), false},
		{"by session", sid, status("R (running)", " "), true},
		{"another session", &tagged{sid: 8}, status("R (running)", " "), false},
		{"nothing", tag, nil, false},
	} {
		if got := tt.g.has(tt.status); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}
