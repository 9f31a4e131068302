package oci_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/inside"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
	"github.com/toold/toold/internal/testrig"
)

func TestAgentProcess(t *testing.T) {
	f := newFixture(t)
	l := f.create(f.Spec())
	status := readHost(t, "/proc/"+itoa(l.Record().PID)+"/status")
	for _, want := range []string{
		"CapInh:\t0000000000000000", "CapPrm:\t00000000000000e0", "CapEff:\t00000000000000e0",
		"CapBnd:\t00000000000000e0", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2",
	} {
		if !strings.Contains(status, want) {
			t.Errorf("status of the agent lacks %q", want)
		}
	}
	for _, ns := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		own, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			t.Fatal(err)
		}
		its, err := os.Readlink("/proc/" + itoa(l.Record().PID) + "/ns/" + ns)
		if err != nil {
			t.Fatal(err)
		}
		if own == its {
			t.Errorf("agent is in the host's %s namespace", ns)
		}
	}
	fds, err := os.ReadDir("/proc/" + itoa(l.Record().PID) + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, err := os.Readlink("/proc/" + itoa(l.Record().PID) + "/fd/" + fd.Name())
		if err == nil && strings.HasPrefix(to, "/") && to != "/dev/null" && !strings.HasPrefix(to, "/memfd:") {
			t.Errorf("agent has descriptor %s of %s", fd.Name(), to)
		}
	}
	limits := readHost(t, "/proc/"+itoa(l.Record().PID)+"/limits")
	// With 0 a program of the host's core pattern would be started. It is 0 where this process may
	// have no more.
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &own); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("Max core file size %d %[1]d ", min(inside.CoreLimit, own.Max)); !strings.Contains(strings.Join(strings.Fields(limits), " "), want) {
		t.Errorf("not %q:\n%s", want, limits)
	}
}

// What a tool sees of the kernel's files.
func TestKernelFiles(t *testing.T) {
	f := newFixture(t)
	l := f.create(f.Spec())
	if got := l.out("ls /dev | tr '\n' ' '"); got != "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero" {
		t.Errorf("/dev has %s", got)
	}
	for name, want := range inside.Sysctls {
		if got := l.out("cat /proc/sys/" + strings.ReplaceAll(name, ".", "/")); strings.Join(strings.Fields(got), " ") != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := l.out("cat /proc/sys/net/core/tstamp_allow_data 2>/dev/null || echo 0"); strings.TrimSpace(got) != "0" {
		t.Errorf("tstamp_allow_data is %q, want 0 where a network has it", got)
	}
	if got := l.out("find /sys -path '/sys/fs/cgroup/*/*' -prune -o -path /sys/fs/cgroup/cgroup.procs -prune -o -type f -print"); got != "/sys/devices/system/cpu/online" {
		t.Errorf("/sys has %s", got)
	}
	for _, script := range []string{
		"echo h >/proc/sysrq-trigger", "echo x >/proc/sys/kernel/core_pattern", "echo 1 >/proc/sys/vm/drop_caches",
		"echo 1 >/proc/sys/user/max_user_namespaces", "head -c 1 /proc/kcore | grep -q .", "grep -q . /proc/keys",
		"grep -q . /proc/timer_list", "grep -q . /proc/sched_debug", "ls /proc/acpi | grep -q .", "echo 1 >/proc/irq/default_smp_affinity",
		"mkdir /sys/x", "mknod /tmp/x c 1 3", "mknod /tmp/x b 254 0", "echo x >/run/toold/agent", "chmod u+w /run/toold/agent",
		"cat /proc/1/environ", "cat /proc/1/mem", "ls /proc/1/fd", "ls /proc/1/root/", "ls -A /run/toold/control | grep .", "find /sys -writable | grep .", "mkdir /sys/fs/cgroup/memory/x", "echo 0 >/sys/devices/system/cpu/online",
	} {
		if r := l.sh(script); r.Code == 0 {
			t.Errorf("%s: succeeded: %s", script, r.Output)
		}
	}
	if got := l.out("cat /proc/sys/user/max_user_namespaces"); got != "0" {
		t.Errorf("max_user_namespaces is %s in the sandbox", got)
	}
	if got := l.out("cat /proc/self/cgroup"); strings.Contains(got, f.cfg.CgroupParent) {
		t.Errorf("cgroup paths of the host are visible:\n%s", got)
	}
	if got := l.out("for m in $(cut -d' ' -f6 /proc/self/mountinfo | sort -u); do echo $m; done | grep -v -e nosuid -e ^ro, -e /dev || true"); strings.Contains(got, "rw") && !strings.Contains(got, "rw,relatime") {
		t.Errorf("writable mounts without nosuid: %s", got)
	}
}

// A session's cgroups are not for its tools, and the agent's descriptor ends at
// the directory it was given.
func TestCallCgroup(t *testing.T) {
	f := newFixture(t)
	l := f.create(f.Spec())
	if got := l.out("tail -n 1 /proc/self/cgroup"); !strings.Contains(got, "/tools/call-") {
		t.Errorf("call is in cgroup %s", got)
	}
	up, err := unix.Openat(int(l.cg.Fd()), "..", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(up)
	var a, b unix.Stat_t
	if err := unix.Fstat(up, &a); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fstat(int(l.cg.Fd()), &b); err != nil {
		t.Fatal(err)
	}
	if a.Ino != b.Ino {
		t.Error("the descriptor of the calls' cgroup has a way up")
	}
	const write = "for f in $(find /sys/fs/cgroup -type f); do (echo 0 >$f) 2>/dev/null && echo $f; done; find /sys/fs/cgroup -type d | grep -q . && echo seen"
	if r := l.ask(agentRequest{Agent: true, Argv: []string{"/bin/sh", "-c", write}}); strings.TrimSpace(r.Output) != "seen" {
		t.Errorf("the agent can write to what it sees of its cgroups: %s", r.Output)
	}
}

// A host without a mounted v2 hierarchy: the driver has one of its own, and the
// runtime sees none at all.
func TestDetachedHierarchy(t *testing.T) {
	f := newFixture(t)
	if _, err := os.Stat("/sys/fs/cgroup/unified"); err != nil {
		t.Skip("no hybrid host: the runtime could not do without v2 here")
	}
	script := filepath.Join(t.TempDir(), "runc")
	content := `#!/bin/sh
exec unshare --mount sh -c 'umount /sys/fs/cgroup/unified && exec ` + f.cfg.Runtimes["runc"] + ` "$@"' sh "$@"
`
	if err := testrig.WriteProgram(script, []byte(content)); err != nil {
		t.Fatal(err)
	}
	f.cfg.Runtimes = map[string]string{"runc": script}
	f.driver = f.open()
	if err := f.driver.Detached(); err != nil {
		t.Fatal(err)
	}
	spec := f.Spec()
	spec.Limits.CPUs = 1
	l := f.create(spec)
	if got := l.out("nproc; tail -n 1 /proc/self/cgroup | grep -c /tools/call-"); got != "1\n1" {
		t.Errorf("inside: %q", got)
	}
	l.sh("setsid sleep 1000 >/dev/null 2>&1 &")
	if err := f.driver.Destroy(f.Ctx(), l.Record()); err != nil {
		t.Fatal(err)
	}
	f.nothingLeft(spec)
}

// A target in a shared worktree is exchanged with a link while sandboxes are
// made: the mount lands on the directory or the creation is refused.
func TestTargetRace(t *testing.T) {
	f := newFixture(t)
	src, cache := t.TempDir(), t.TempDir()
	if err := os.Mkdir(src+"/place", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/tmp", src+"/link"); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, src+"/place", unix.AT_FDCWD, src+"/link", unix.RENAME_EXCHANGE)
			}
		}
	}()
	defer func() { close(stop); <-done }()
	made := 0
	for range 12 {
		spec := f.Spec()
		spec.Worktree = sandbox.Worktree{Source: open(t, src), Mode: client.WorktreeBind, Target: sandbox.Workspace, UID: 0}
		spec.Mounts = []sandbox.Mount{{Source: open(t, cache), Target: sandbox.Workspace + "/place"}}
		sb, err := f.driver.Create(f.Ctx(), spec)
		if err != nil {
			continue
		}
		made++
		mounts := readHost(t, "/proc/"+itoa(sb.Record().PID)+"/mountinfo")
		if strings.Count(mounts, " /tmp ") != 1 {
			t.Errorf("mount has landed at the target of a link:\n%s", mounts)
		}
		sb.Close()
		if err := f.driver.Destroy(f.Ctx(), sb.Record()); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of 12 made", made)
}

func open(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// An agent that prints without end and dies fills nothing, and what it said is
// in the error or the log.
func TestBrokenAgent(t *testing.T) {
	f := newFixture(t)
	agent := filepath.Join(t.TempDir(), "agent")
	script := "#!/bin/sh\nyes 'no such luck' | head -c 10000000 >&2 2>/dev/null; exec /bin/sleep 1000\n"
	if err := testrig.WriteProgram(agent, []byte(script)); err != nil {
		t.Fatal(err)
	}
	f.cfg.AgentBinary = agent
	f.driver = f.open()
	spec := f.Spec()
	sb, err := f.driver.Create(f.Ctx(), spec)
	if err == nil { // it was still printing when Create had all it needs
		sb.Close()
	}
	if err := os.WriteFile(agent, []byte("not a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	f.driver = f.open()
	spec = f.Spec()
	switch sb, err := f.driver.Create(f.Ctx(), spec); {
	case err == nil: // the runtime had all it needs before the program was to begin
		defer sb.Close()
		sandboxtest.AwaitEnd(t, sb)
	case !strings.Contains(err.Error(), "exec format error"):
		t.Errorf("error does not say why: %v", err)
	default:
		f.nothingLeftOf(spec.SessionID)
	}
}

func (f *fixture) nothingLeftOf(id string) {
	f.Helper()
	list, err := f.driver.List(f.Ctx(), f.Owner)
	if err != nil {
		f.Fatal(err)
	}
	for _, rec := range list {
		if rec.SessionID == id {
			f.Errorf("%s has left something", id)
		}
	}
}

// A root filesystem from a directory, which may be hostile.
func TestDirectoryRootfs(t *testing.T) {
	f := newFixture(t)
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"bin", "etc", "lib", "lib64", "var/log", "tmp", "home/tool"} {
		if err := os.MkdirAll(root+"/"+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	copyPrograms(t, root, []string{"sh", "cat", "ls", "id"}, f.cfg.AgentBinary)
	put(t, root+"/etc/os-release", "ID=test\n")
	put(t, root+"/etc/passwd", "evil:x:0:0::/:/bin/sh\n")
	for link, to := range map[string]string{
		"/dev": "/proc/sys/kernel", "/proc": "/etc", "/sys": "/", "/run": "/run", "/etc/hosts": "/etc/shadow", "/etc/shadow": "/etc/shadow", "/usr": ".",
	} {
		if err := os.Symlink(to, root+link); err != nil {
			t.Fatal(err)
		}
	}
	pattern := readHost(t, "/proc/sys/kernel/core_pattern")
	f.cfg.Rootfs = root
	f.driver = f.open()
	l := f.create(f.Spec())
	if got := l.out("cat /etc/os-release; id -un; cat /proc/self/comm; ls /dev/null"); got != "ID=test\ntool\ncat\n/dev/null" {
		t.Errorf("inside: %q", got)
	}
	for _, script := range []string{"cat /etc/shadow", "echo >/bin/x", "echo >/var/log/x", "ls /etc/ssl"} {
		if r := l.sh(script); r.Code == 0 {
			t.Errorf("%s succeeded: %s", script, r.Output)
		}
	}
	if got := readHost(t, "/proc/sys/kernel/core_pattern"); got != pattern {
		t.Errorf("the host's core pattern has become %q", got)
	}
	if got, err := os.ReadDir(root + "/home/tool"); err != nil || len(got) != 0 {
		t.Errorf("something was written into the root filesystem: %v %v", got, err)
	}
}

// The runtime and the agent that sandboxes execute are not the host's files.
func TestAgentCopy(t *testing.T) {
	f := newFixture(t)
	l := f.create(f.Spec())
	var own, its unix.Stat_t
	if err := unix.Stat(f.cfg.AgentBinary, &own); err != nil {
		t.Fatal(err)
	}
	if err := unix.Stat("/proc/"+itoa(l.Record().PID)+"/exe", &its); err != nil {
		t.Fatal(err)
	}
	if own.Dev == its.Dev && own.Ino == its.Ino {
		t.Error("sandboxes execute the host's own agent file")
	}
}

// An agent that is stopped by the host is still killed.
func TestDestroyStopped(t *testing.T) {
	f := newFixture(t)
	l := f.create(f.Spec())
	if err := unix.Kill(l.Record().PID, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := f.driver.Destroy(f.Ctx(), l.Record()); err != nil {
		t.Fatal(err)
	}
	sandboxtest.AwaitEnd(t, l)
}
