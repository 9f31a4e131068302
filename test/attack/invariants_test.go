package attack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/testrig"
)

// scene is one attack: an attacker's session beside a neighbour's, on a daemon
// whose state is known. Its end checks what must hold after every attack.
type scene struct {
	*rig
	tree      string // the attacker's worktree on the host
	attacker  *client.Session
	neighbour *client.Session
	canary    string // the neighbour's file
	before    host
	fds       int
	base      uint32   // first host uid of the attacker's session; 0 where it has none
	groups    []string // the cgroups of its agent
}

// newScene sets the scene; the invariants are checked when the test ends.
func newScene(t *testing.T, extra string) *scene {
	t.Helper()
	return newSceneIn(t, nil, extra)
}

// newSceneIn is newScene with a program that starts the daemon.
func newSceneIn(t *testing.T, wrap []string, extra string) *scene {
	t.Helper()
	s := &scene{rig: newRig(t, wrap, extra)}
	s.tree = s.rig.tree(t)
	theirs := s.rig.tree(t)
	s.canary = filepath.Join(theirs, "canary")
	must(t, os.WriteFile(s.canary, []byte("untouched"), 0o600))
	s.neighbour = s.session(t, s.b, client.SessionCreate{Worktree: client.Worktree{Source: theirs}})
	s.before = look(t, s.dir)
	s.fds = countFDs(s.daemon.Cmd.Process.Pid)
	s.attacker = s.session(t, s.a, client.SessionCreate{Worktree: client.Worktree{Source: s.tree}})
	if s.base, _ = sessionRange(s.attacker.ID); s.base == 0 && !current.engine {
		t.Fatal("the attacker's session has no range of uids")
	}
	s.groups = cgroupsOf(s.attacker.ID)
	pid := s.daemon.Cmd.Process.Pid
	t.Cleanup(func() {
		s.invariants(t, pid)
	})
	return s
}

// bash runs a command in the attacker's session.
func (s *scene) bash(t *testing.T, command string) *client.Call {
	t.Helper()
	return bash(t, s.a, s.attacker.ID, command)
}

// probe runs the hostile program in the attacker's session.
func (s *scene) probe(t *testing.T, args ...string) outcomes {
	t.Helper()
	return probe(t, s.a, s.attacker.ID, args...)
}

// invariants are checked after every attack.
func (s *scene) invariants(t *testing.T, pid int) {
	ctx := context.Background()
	// The daemon is the same process, or the one that the test itself started.
	if s.daemon.Cmd.Process.Pid != pid && s.daemon.Cmd.ProcessState != nil {
		t.Error("the daemon died")
	}
	if h, err := s.admin.Health(ctx); err != nil || h.Status != "ok" {
		t.Errorf("health after the attack: %+v, %v", h, err)
	}
	// The neighbour works and its canary is as it was.
	if c, err := tryCall(s.b, s.neighbour.ID, "bash", map[string]any{"command": "echo still here"}); err != nil {
		t.Errorf("neighbour: %v", err)
	} else if strings.TrimSpace(c.Output) != "still here" {
		t.Errorf("neighbour's echo: %q, %v", c.Output, c.Error)
	}
	if b, _ := os.ReadFile(s.canary); string(b) != "untouched" {
		t.Errorf("the neighbour's canary reads %q", b)
	}
	// The attacker's session ends and nothing of it is left.
	s.a.EndSession(ctx, s.attacker.ID, client.EndOptions{Force: true})
	if s.base != 0 {
		testrig.Eventually(t, "no process in the attacker's uid range", func() bool {
			return len(processesIn(s.base)) == 0
		})
	}
	testrig.Eventually(t, "no cgroup of the attacker's session", func() bool {
		for _, g := range s.groups {
			if _, err := os.Stat(g); err == nil {
				return false
			}
		}
		left, _ := filepath.Glob("/sys/fs/cgroup/*/" + cgroupParent + "/*" + s.attacker.ID + "*")
		return len(left) == 0
	})
	if current.engine {
		testrig.Eventually(t, "no container of the attacker's session", func() bool {
			_, ok := containerPID(s.attacker.ID)
			return !ok
		})
	}
	testrig.Eventually(t, "no mount of the attacker's session", func() bool {
		return !strings.Contains(read("/proc/self/mountinfo"), s.attacker.ID)
	})
	// The host is as it was.
	after := look(t, s.dir)
	for m := range strings.Lines(after.mounts) {
		// What is gone was another program's: the namespace began as a copy.
		if !strings.Contains("\n"+s.before.mounts, "\n"+m) {
			t.Errorf("a mount has come: %s", m)
		}
	}
	after.mounts = s.before.mounts
	if after != s.before {
		t.Errorf("the host changed:\nbefore %+v\nafter  %+v", s.before, after)
	}
	if s.daemon.Cmd.Process.Pid == pid {
		testrig.Eventually(t, "the daemon's descriptors are back", func() bool {
			return countFDs(pid) <= s.fds+8 // pooled connections
		})
	}
}

// host is what an attack must not change.
type host struct {
	corePattern, modprobe string
	mounts                string // those that are not below the daemon's own directory
	programs              string
	netns                 string
}

func look(t *testing.T, own string) host {
	t.Helper()
	h := host{corePattern: read("/proc/sys/kernel/core_pattern"), modprobe: read("/proc/sys/kernel/modprobe")}
	for line := range strings.Lines(read("/proc/self/mountinfo")) {
		if f := strings.Fields(line); len(f) > 4 && !strings.HasPrefix(f[4], own+"/") {
			h.mounts += f[4] + "\n"
		}
	}
	for _, p := range []string{bin.toold, bin.agent, bin.runtime, "/bin/bash", "/usr/bin/env"} {
		if p == "" {
			continue
		}
		// Nothing writes to a file, or takes its place, and leaves all of these.
		var st unix.Stat_t
		must(t, unix.Stat(p, &st))
		h.programs += fmt.Sprintln(p, st.Dev, st.Ino, st.Size, st.Mode, st.Uid, st.Ctim)
	}
	names, _ := filepath.Glob("/run/netns/*")
	h.netns = strings.Join(names, " ")
	return h
}

func read(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

func countFDs(pid int) int {
	e, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(e)
}

// cgroupsOf lists the directories of the cgroups that a session's agent is in, other
// than the roots.
func cgroupsOf(session string) (dirs []string) {
	pid, ok := agentPID(session)
	if !ok {
		return nil
	}
	for line := range strings.Lines(read(fmt.Sprintf("/proc/%d/cgroup", pid))) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || f[2] == "/" {
			continue
		}
		hierarchies := []string{strings.TrimPrefix(f[1], "name=")}
		if f[1] == "" { // version 2, wherever it is
			hierarchies = []string{"unified", ""}
		}
		for _, h := range hierarchies {
			dir := filepath.Join("/sys/fs/cgroup", h, f[2])
			if _, err := os.Stat(dir); err == nil {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// agentPID finds the host pid of a session's agent: the process that runs the
// agent and is alone the first of its pid namespace.
func agentPID(session string) (int, bool) {
	if current.engine {
		return containerPID(session)
	}
	for _, glob := range []string{"/sys/fs/cgroup/memory/", "/sys/fs/cgroup/"} {
		found := 0
		filepath.WalkDir(glob+cgroupParent, func(p string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() || e.Name() != "cgroup.procs" || !strings.Contains(p, session) {
				return nil
			}
			for line := range strings.Lines(read(p)) {
				pid, _ := strconv.Atoi(strings.TrimSpace(line))
				for l := range strings.Lines(read(fmt.Sprintf("/proc/%d/status", pid))) {
					if f := strings.Fields(l); len(f) > 1 && f[0] == "NSpid:" && f[len(f)-1] == "1" {
						found = pid
					}
				}
			}
			return nil
		})
		if found != 0 {
			return found, true
		}
	}
	return 0, false
}

// sessionRange is the first host uid of a session that has a range.
func sessionRange(session string) (uint32, bool) {
	pid, ok := agentPID(session)
	if !ok {
		return 0, false
	}
	f := strings.Fields(read(fmt.Sprintf("/proc/%d/uid_map", pid)))
	if len(f) < 3 {
		return 0, false
	}
	n, err := strconv.ParseUint(f[1], 10, 32)
	return uint32(n), err == nil && n > 0
}

// processesIn lists the processes whose uid lies in the range that begins at base.
// One that is dead is none: the host's init may take its time to reap it.
func processesIn(base uint32) (pids []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, p := range all {
		uid, dead := uint64(0), false
		for l := range strings.Lines(read(p)) {
			switch f := strings.Fields(l); {
			case len(f) < 2:
			case f[0] == "State:":
				dead = f[1] == "Z" || f[1] == "X"
			case f[0] == "Threads:":
				dead = dead && f[1] <= "1" // one whose first thread alone has ended looks the same
			case f[0] == "Uid:":
				uid, _ = strconv.ParseUint(f[1], 10, 32)
			}
		}
		if !dead && uid >= uint64(base) && uid < uint64(base)+65536 {
			pids = append(pids, filepath.Base(filepath.Dir(p)))
		}
	}
	return pids
}
