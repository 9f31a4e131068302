package attack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/testrig"
)

// appendConfig adds a line to a section of the rig's configuration.
func appendConfig(t *testing.T, r *rig, section, line string) {
	t.Helper()
	b := read(r.config)
	must(t, os.WriteFile(r.config, []byte(strings.Replace(b, section+"\n", section+"\n"+line+"\n", 1)), 0o600))
}

// allowMount adds a directory to those that sessions may ask to have mounted.
func allowMount(t *testing.T, r *rig, dir string) {
	t.Helper()
	must(t, os.WriteFile(r.config, []byte(strings.Replace(read(r.config), "mounts = [", fmt.Sprintf("mounts = [%q, ", dir), 1)), 0o600))
}

// enterUserNS runs a shell command in the user and mount namespace of pid, as
// its root with every capability there and no filter.
func enterUserNS(t *testing.T, pid int, command string) string {
	t.Helper()
	out, err := exec.Command("nsenter", "-t", fmt.Sprint(pid), "-U", "-m", "-p", "--preserve-credentials", "-S", "0", "-G", "0", "/bin/sh", "-c", command).CombinedOutput()
	if err != nil {
		out2, err2 := exec.Command("nsenter", "-t", fmt.Sprint(pid), "-U", "-m", "-p", "-S", "0", "-G", "0", "/bin/sh", "-c", command).CombinedOutput()
		if err2 != nil {
			t.Fatalf("nsenter: %v %s / %v %s", err, out, err2, out2)
		}
		out = out2
	}
	return string(out)
}

// K11: a working directory that is a descriptor or a link to one.
func TestK11WorkingDirectory(t *testing.T) {
	s := newScene(t, "")
	for fd := range 64 {
		dir := fmt.Sprintf("/proc/self/fd/%d", fd)
		c, err := tryCall(s.a, s.attacker.ID, "bash", map[string]any{"command": "pwd; ls /proc/self/cwd/ | head", "workdir": dir})
		if err == nil && c.Status == client.CallCompleted && !c.IsError {
			t.Errorf("workdir %s was taken: %q", dir, c.Output)
		}
	}
	s.bash(t, "ln -s /proc/self/fd/3 /workspace/cwd; ln -s /proc/1/root /workspace/rootcwd")
	for _, dir := range []string{"/workspace/cwd", "/workspace/rootcwd", "/proc/1/root", "/proc/1/cwd", "/proc/self/root"} {
		c, err := tryCall(s.a, s.attacker.ID, "bash", map[string]any{"command": "pwd", "workdir": dir})
		if err == nil && c.Status == client.CallCompleted && !c.IsError {
			t.Errorf("workdir %s was taken: %q", dir, c.Output)
		}
	}
	// Control: an ordinary directory is taken, and getcwd says so.
	c := call(t, s.a, s.attacker.ID, "bash", map[string]any{"command": "pwd", "workdir": "/tmp"})
	if strings.TrimSpace(c.Output) != "/tmp" {
		t.Errorf("control: workdir /tmp gave %q %v", c.Output, c.Error)
	}
}

// K12: no descriptor of the agent's reaches a tool.
func TestK12Descriptors(t *testing.T) {
	s := newScene(t, "")
	out := s.bash(t, "exec /workspace/probe fds").Output
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "fd" && f[1] != "0" && f[1] != "1" && f[1] != "2" {
			holds(t, "descriptor", false, "leaked: %s", line)
		}
	}
	holds(t, "stdin", strings.Contains(out, "fd 0 /dev/null"), "not /dev/null: %s", out)
	// Control: a descriptor that is passed on purpose is seen.
	if out := s.bash(t, "exec /workspace/probe fds 7</etc/passwd").Output; !strings.Contains(out, "fd 7 /etc/passwd") {
		t.Errorf("control: the probe does not see a passed descriptor: %s", out)
	}
	// The agent itself holds its socket, the cgroups that it has made for calls, the directory
	// of its journal, and nothing that the host gave by mistake.
	pid, ok := agentPID(s.attacker.ID)
	if !ok {
		t.Fatal("no agent")
	}
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	for _, fd := range fds {
		link, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
		if strings.HasPrefix(link, "/") && link != "/dev/null" && link != "/" && !strings.HasPrefix(link, "/memfd:") && !strings.HasPrefix(link, "/proc") && !strings.HasPrefix(link, "/call-") && link != sandbox.JournalDir {
			holds(t, "agent", false, "it holds %s -> %s", fd.Name(), link)
		}
	}
}

// K13: the programs of host and agent cannot be written through /proc.
func TestK13ProgramsStay(t *testing.T) {
	s := newScene(t, "")
	var wg sync.WaitGroup
	var got outcomes
	wg.Go(func() {
		c, err := tryCall(s.a, s.attacker.ID, "bash", map[string]any{"command": "/workspace/probe exe-writer 8000"})
		if err == nil {
			got = parseOutcomes(c.Output)
		}
	})
	n := 40
	if testing.Short() {
		n = 5
	}
	for range n {
		x := s.session(t, s.a, client.SessionCreate{})
		bash(t, s.a, x.ID, "true")
		s.a.EndSession(t.Context(), x.ID, client.EndOptions{Force: true})
	}
	wg.Wait()
	if len(got) == 0 {
		t.Fatal("the writer saw nothing")
	}
	for n := range got {
		holds(t, n, n != "open-exe-ok" && n != "open-exe-own-ok", "an executable was opened for writing: %v", got)
	}
	// Control: a program of the tool's own can be opened while it does not run.
	if c := s.bash(t, "cp /workspace/probe /tmp/own && : >> /tmp/own && echo writable"); !strings.Contains(c.Output, "writable") {
		t.Errorf("control: %q", c.Output)
	}
}

// K14: a mount target inside the worktree that an earlier session turned into a
// symlink. The mount must not follow it.
func TestK14MountTargetIsLink(t *testing.T) {
	extra := t.TempDir()
	must(t, os.Chmod(extra, 0o755))
	must(t, os.Chmod(filepath.Dir(extra), 0o755))
	must(t, os.WriteFile(filepath.Join(extra, "mark"), []byte("cache"), 0o644))
	s := newScene(t, "")
	allowMount(t, s.rig, extra)
	_, err := s.admin.Reload(t.Context(), false)
	must(t, err)
	s.bash(t, "mkdir plain; ln -s /etc link; mkdir dir; ln -s ../dir dir/inner; ln -s / root")
	for _, target := range []string{"/workspace/link", "/workspace/root", "/workspace/dir/inner", "/workspace/root/etc"} {
		x, err := s.a.CreateSession(t.Context(), client.SessionCreate{
			Worktree: client.Worktree{Source: s.tree}, Mounts: []client.Mount{{Source: extra, Target: target}},
		})
		if err == nil {
			out := bash(t, s.a, x.ID, "ls /etc/mark /mark 2>/dev/null; cat /etc/hostname").Output
			t.Errorf("mount on %s was made: %q", target, out)
			s.a.EndSession(t.Context(), x.ID, client.EndOptions{Force: true})
		}
	}
	// Control: a plain directory takes the mount.
	x := s.session(t, s.a, client.SessionCreate{
		Worktree: client.Worktree{Source: s.tree}, Mounts: []client.Mount{{Source: extra, Target: "/workspace/plain"}},
	})
	if out := bash(t, s.a, x.ID, "cat plain/mark; touch plain/x 2>&1").Output; !strings.HasPrefix(out, "cache") || !strings.Contains(out, "Read-only") {
		t.Errorf("control: %q", out)
	}
	s.a.EndSession(t.Context(), x.ID, client.EndOptions{Force: true})
}

// K15: the mount target is swapped with a link, again and again, while sessions
// are made. A mount lands on the directory, or there is no session.
func TestK15MountTargetRace(t *testing.T) {
	extra := t.TempDir()
	must(t, os.Chmod(extra, 0o755))
	must(t, os.Chmod(filepath.Dir(extra), 0o755))
	must(t, os.WriteFile(filepath.Join(extra, "mark"), []byte("cache"), 0o644))
	s := newScene(t, "")
	allowMount(t, s.rig, extra)
	_, err := s.admin.Reload(t.Context(), false)
	must(t, err)
	plain, link := filepath.Join(s.tree, "plain"), filepath.Join(s.tree, "link")
	must(t, os.Mkdir(plain, 0o755))
	must(t, os.Symlink("/etc", link))
	stop := swapping(plain, link)
	n, tried, made := 60, 0, 0
	if testing.Short() {
		n = 20
	}
	// On until both have been seen.
	for ; tried < n || (made == 0 || made == tried) && tried < 10*n; tried++ {
		x, err := s.a.CreateSession(t.Context(), client.SessionCreate{
			Profile: "wall", Worktree: client.Worktree{Source: s.tree}, Mounts: []client.Mount{{Source: extra, Target: "/workspace/plain"}},
		})
		if err != nil {
			continue
		}
		made++
		// By either name: the directory goes on being renamed.
		out := bash(t, s.a, x.ID, "ls -d /etc/mark 2>/dev/null; for i in $(seq 200); do cat plain/mark link/mark 2>/dev/null && break; done").Output
		holds(t, "target", strings.HasPrefix(out, "cache") && !strings.Contains(out, "/etc/mark"), "the mount is elsewhere: %q", out)
		s.a.EndSession(t.Context(), x.ID, client.EndOptions{Force: true})
	}
	stop()
	t.Logf("%d of %d sessions were made", made, tried)
	if made == 0 || made == tried {
		t.Errorf("control: %d of %d sessions were made: the race was never on", made, tried)
	}
}

// swapping exchanges two names until it is stopped.
func swapping(a, b string) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			default:
				renameExchange(a, b)
			}
		}
	}()
	return func() { close(end); <-done }
}

// K16: no cgroup but the session's own can be seen, and none can be written.
func TestK16Cgroups(t *testing.T) {
	s := newScene(t, "")
	got := s.probe(t, "cgroups")
	for _, n := range got.keys("cgroup-mount-") {
		at := strings.TrimPrefix(n, "cgroup-mount-")
		root, options, _ := strings.Cut(got[n], " ")
		own := strings.HasPrefix(at, "/sys/fs/cgroup") && root == "/" || at == "/sys/devices/system/cpu/online"
		for _, o := range []string{"ro", "nosuid", "nodev", "noexec"} {
			own = own && slices.Contains(strings.Split(options, ","), o)
		}
		holds(t, "cgroup-mounts", own, "at %s: %s", at, got[n])
		holds(t, "cgroup-names", !strings.Contains(root, cgroupParent) && !strings.Contains(root, s.attacker.ID) && !strings.HasPrefix(root, "/.."), "at %s is the host's %s", at, root)
	}
	for _, n := range got.keys("directory-") {
		name := strings.TrimPrefix(n, "directory-")
		holds(t, "cgroup-others", !strings.Contains(name, "ses_") && !strings.Contains(name, cgroupParent), "%s can be seen", got[n])
	}
	holds(t, "cgroup-changed", len(got.keys("changed-")) == 0, "%q worked", got.keys("changed-"))
	for _, n := range append(got.keys("write-"), got.keys("mount-")...) {
		holds(t, n, got[n] != "ok", "it worked")
	}
	if n, _ := strconv.Atoi(got["cgroup-files"]); n < 20 && current.name == "runc" {
		t.Errorf("control: the session sees %d files of its cgroups", n)
	}
	control := weak{root: true, initial: true}.run(t, "cgroups")
	if control["mount-cgroup2"] != "ok" && control["mount-cgroup"] != "ok" {
		t.Errorf("control: a capable root cannot mount cgroups: %v", control)
	}
}

// K17: a crash leaves no core file.
func TestK17Core(t *testing.T) {
	s := newScene(t, "")
	c := s.bash(t, "ulimit -c unlimited 2>&1; ulimit -Hc; bash -c 'kill -SEGV $$'; ls /workspace /tmp | grep -c core")
	lines := strings.Fields(c.Output)
	holds(t, "core", strings.Contains(c.Output, "\n0\n") && len(lines) > 0, "limit or file: %q", c.Output)
	if m, _ := filepath.Glob(filepath.Join(s.tree, "core*")); len(m) > 0 {
		t.Errorf("core files: %v", m)
	}
}

// K18: nothing can be typed into a terminal.
func TestK18Terminal(t *testing.T) {
	s := newScene(t, "")
	got := s.probe(t, "tiocsti")
	for _, n := range got.keys("tio") {
		got.refused(t, "EPERM EIO ENOTTY ENOENT EACCES", n)
	}
	for n := range got {
		holds(t, n, !strings.Contains(n, "tty") || got[n] != "ok", "there is a controlling terminal")
	}
}

// K20: no more of the machine than was given.
func TestK20Priority(t *testing.T) {
	s := newScene(t, "")
	got := s.probe(t, "priority")
	for _, n := range []string{"nice", "sched_fifo", "prlimit-nofile", "rlimit-core", "mlock-1GiB", "ioprio-rt", "oom_score_adj"} {
		holds(t, n, got[n] != "ok", "it worked")
	}
	holds(t, "rlimit-core-was", got["rlimit-core-was"] == "EPERM", "%s, want EPERM", got["rlimit-core-was"])
	if control := (weak{}).run(t, "priority"); control["rlimit-core-was"] != "ok" {
		t.Errorf("control: rlimit-core-was is %s without the filter", control["rlimit-core-was"])
	}
}

// K21: what the kernel counts by user runs out for the attacker alone.
func TestK21PerUser(t *testing.T) {
	s := newScene(t, "")
	now := int64(0)
	x, err := s.a.CreateCall(t.Context(), s.attacker.ID, client.CallCreate{
		Tool: "bash", Input: []byte(`{"command":"ulimit -n $(ulimit -Hn); /workspace/probe peruid 100000 hold","timeout":600000}`), WaitMillis: &now,
	}, client.CallOptions{})
	must(t, err)
	testrig.Eventually(t, "all is taken", func() bool { return strings.Contains(outputSoFar(t, s.a, s.attacker.ID), "pipes") })
	theirs := probe(t, s.b, s.neighbour.ID, "peruid", "5")
	holds(t, "neighbour", theirs["inotify"] == "5" && theirs["pipes"] == "5", "meanwhile it can have %v", theirs)
	own := s.probe(t, "peruid", "5")
	holds(t, "control", own["inotify"] == "0", "what is taken by the attacker's own user is there: %v", own)
	x, err = s.a.AbortCall(t.Context(), x.ID)
	must(t, err)
	holds(t, "inotify", !strings.Contains(x.Output, "inotify 100000"), "instances are not bounded: %q", x.Output)
}

// K22: nothing of another session in shared memory, queues or abstract names.
func TestK22IPC(t *testing.T) {
	s := newScene(t, "")
	theirs := s.rig.tree(t)
	n := s.session(t, s.b, client.SessionCreate{Worktree: client.Worktree{Source: theirs}})
	now := int64(0)
	_, err := s.b.CreateCall(t.Context(), n.ID, client.CallCreate{
		Tool: "bash", Input: []byte(`{"command":"/workspace/probe ipc canary","timeout":600000}`), WaitMillis: &now,
	}, client.CallOptions{})
	must(t, err)
	testrig.Eventually(t, "all is left", func() bool { return strings.Contains(outputSoFar(t, s.b, n.ID), "leave-abstract") })
	got := s.probe(t, "ipc")
	holds(t, "shm", got["shm"] == "0", "seen from another session: %v", got)
	holds(t, "sysv", got["sysv"] != "ok", "seen from another session: %v", got)
	holds(t, "sysvipc", got["sysvipc"] == "0" || got["sysvipc"] == "-1", "seen from another session: %v", got)
	// Control: in the session that left them they are there.
	own := probe(t, s.b, n.ID, "ipc")
	if own["shm"] != "1" {
		t.Errorf("control: the canary's own session sees %v", own)
	}
	s.b.EndSession(t.Context(), n.ID, client.EndOptions{Force: true})
}

// K23: a tool may trace what it has started itself, and nothing of the host's or of
// another session's is there to be traced.
func TestK23Ptrace(t *testing.T) {
	s := newScene(t, "")
	pids := []string{strconv.Itoa(s.daemon.Cmd.Process.Pid), strconv.Itoa(os.Getpid())}
	if pid, ok := agentPID(s.neighbour.ID); ok {
		pids = append(pids, strconv.Itoa(pid))
	}
	got := s.probe(t, append([]string{"ptrace"}, pids...)...)
	for i := range pids {
		got.refused(t, "ESRCH", fmt.Sprintf("pidfd-%d", i), fmt.Sprintf("seize-%d", i), fmt.Sprintf("kill-%d", i))
	}
	if o := got["own-child"]; o != "ok" && o != "EPERM" {
		t.Errorf("own child: %s", o)
	}
	control := weak{}.run(t, "ptrace", "1")
	if control["own-child"] != "ok" || control["kill-0"] == "ESRCH" {
		t.Errorf("control: the probe can trace nothing where it may: %v", control)
	}
}

// K25: a set-uid file made inside would be one of the worktree's owner on the host,
// for any local user to run.
func TestK25NoSetuidFilesComeOut(t *testing.T) {
	s := newScene(t, "")
	got := s.probe(t, "setuid", "/workspace")
	for n, o := range got {
		switch n {
		case "left":
			holds(t, "left", false, "a set-id file: %s", o)
		case "chmod-plain":
			if o != "ok" {
				t.Errorf("control: an ordinary chmod = %s", o)
			}
		default:
			holds(t, n, o != "ok", "it worked")
		}
	}
	c := call(t, s.a, s.attacker.ID, "write", map[string]any{"file_path": "/workspace/w", "content": "x"})
	if c.IsError || c.Error != nil {
		t.Fatalf("write: %v %v", c.Output, c.Error)
	}
	must(t, os.Chmod(filepath.Join(s.tree, "w"), 0o755|os.ModeSetuid|os.ModeSetgid))
	call(t, s.a, s.attacker.ID, "write", map[string]any{"file_path": "/workspace/w", "content": "y"})
	st, err := os.Stat(filepath.Join(s.tree, "w"))
	must(t, err)
	if st.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		t.Errorf("a rewritten file kept its set-id bits: %v", st.Mode())
	}
	control := weak{}.run(t, "setuid", "/tmp")
	if control["chmod"] != "ok" {
		t.Errorf("control: chmod 4755 = %s without the filter", control["chmod"])
	}
}
