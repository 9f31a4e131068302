package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/testrig"
	"github.com/toold/toold/internal/tool/run"
)

var build = sync.OnceValues(func() (string, error) {
	dir, err := testrig.MkdirTemp("toold-toolagent-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "toolagent")
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func binary(t *testing.T) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := build(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func TestRefusesToBeStartedByHand(t *testing.T) {
	out, err := exec.Command(binary(t)).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "init process") {
		t.Errorf("%v: %s", err, out)
	}
}

// uidBase is the first host id of the tests' user namespace.
const uidBase = 1_500_000_000

// sandbox is the real agent as PID 1 of new user, pid and mount namespaces.
type sandbox struct {
	t      *testing.T
	cmd    *exec.Cmd
	sock   string
	nonce  []byte
	cgroup *os.File
	log    *bytes.Buffer
	waited chan error
}

func newSandbox(t *testing.T) *sandbox {
	t.Helper()
	if os.Getuid() != 0 {
		testrig.Skipf(t, "oci", "needs root to make namespaces")
	}
	dir := t.TempDir()
	s := &sandbox{t: t, sock: filepath.Join(dir, "s"), nonce: make([]byte, nonceSize), log: new(bytes.Buffer), waited: make(chan error, 1)}
	_, _ = rand.Read(s.nonce)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.sock, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ln.SetUnlinkOnClose(false)
	lf, err := ln.File()
	if err != nil {
		t.Fatal(err)
	}
	defer lf.Close()
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pr.Close()
	// The shell makes /proc that of the new pid namespace, then becomes the agent.
	script := `mount --make-rprivate / && mount -t proc proc /proc && mount -t tmpfs -o mode=1777 tmpfs /tmp && mkdir /tmp/work && chown 1000:1000 /tmp/work && ulimit -n 4096 &&
exec setpriv --bounding-set=-all,+setuid,+setgid,+kill --inh-caps=-all --no-new-privs /run/agent`
	mount := fmt.Sprintf("mount -t tmpfs tmpfs /run && cp %s /run/agent && ", binary(t))
	s.cmd = exec.Command("/bin/sh", "-c", mount+script)
	s.cmd.ExtraFiles = []*os.File{lf, pr}
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:                 syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: uidBase, Size: 65536}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: uidBase, Size: 65536}},
		GidMappingsEnableSetgroups: true,
		Credential:                 &syscall.Credential{Uid: 0, Gid: 0},
		Pdeathsig:                  syscall.SIGKILL,
		Setsid:                     true,
	}
	if err := s.cmd.Start(); err != nil {
		testrig.Skipf(t, "oci", "cannot make namespaces here: %v", err)
	}
	go func() { s.waited <- s.cmd.Wait() }()
	t.Cleanup(s.kill)
	s.makeCgroup()
	if _, err := pw.Write(s.nonce); err != nil {
		t.Fatal(err)
	}
	pw.Close()
	return s
}

const unified = "/sys/fs/cgroup/unified"

// makeCgroup makes what the driver gives an agent: a cgroup of the session, with
// the agent already below it, and a detached view of it.
func (s *sandbox) makeCgroup() {
	base := unified
	if _, err := os.Stat(base + "/cgroup.procs"); err != nil {
		base = "/sys/fs/cgroup"
	}
	if _, err := os.Stat(base + "/cgroup.controllers"); err != nil {
		s.t.Log("no cgroup v2 here; without cgroups of calls")
		return
	}
	dir := filepath.Join(base, fmt.Sprintf("toold-agent-test-%d", s.cmd.Process.Pid))
	testrig.Must(s.t, testrig.Doomed(filepath.Base(dir)))
	if err := os.MkdirAll(dir+"/agent", 0o755); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = os.WriteFile(dir+"/cgroup.kill", []byte("1"), 0)
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			if os.Remove(dir + "/agent"); os.Remove(dir) == nil {
				return
			}
			subs, _ := filepath.Glob(dir + "/call-*")
			if len(subs) > 2 { // of the shell that waits, and for the one after it
				s.t.Errorf("left over: %v", subs)
			}
			for _, sub := range subs {
				os.Remove(sub)
			}
			time.Sleep(10 * time.Millisecond)
		}
		s.t.Errorf("cgroup %s is left over", dir)
	})
	if err := os.WriteFile(dir+"/agent/cgroup.procs", []byte(strconv.Itoa(s.cmd.Process.Pid)), 0); err != nil {
		s.t.Fatal(err)
	}
	for _, p := range []string{dir, dir + "/cgroup.procs"} {
		if err := os.Chown(p, uidBase, uidBase); err != nil {
			s.t.Fatal(err)
		}
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		s.t.Fatal(err)
	}
	s.cgroup = os.NewFile(uintptr(fd), "cgroup")
	s.t.Cleanup(func() { s.cgroup.Close() })
}

func (s *sandbox) kill() {
	_ = s.cmd.Process.Kill()
	select {
	case err := <-s.waited:
		s.waited <- err
	case <-time.After(time.Minute):
		s.t.Error("the agent does not die")
	}
	if s.t.Failed() {
		s.t.Logf("agent: %s", s.log)
	}
}

func (s *sandbox) connect(change func(*agent.Hello)) (*agent.Conn, *agent.Welcome) {
	s.t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.sock, Net: "unix"})
	if err != nil {
		s.t.Fatal(err)
	}
	h := agent.Hello{
		Nonce: s.nonce, Worktree: "/tmp/work", Home: "/tmp", Tmp: "/tmp", OutputDir: "/tmp",
		ToolUID: 1000, ToolGID: 1000, OpenFiles: 1024, FileSize: 1 << 30,
		Env:        []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp"},
		Shell:      []string{"/bin/bash", "--noprofile", "--norc"},
		CallCgroup: s.cgroup,
	}
	if change != nil {
		change(&h)
	}
	conn, w, err := agent.Connect(s.t.Context(), c, h)
	if err != nil {
		time.Sleep(200 * time.Millisecond)
		s.t.Fatalf("%v\n%s", err, s.log)
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn, w
}

type buffer struct {
	bytes.Buffer
	came func() // after each piece; may be nil
}

func (b *buffer) Output(_ int64, _ bool, p []byte) error {
	_, err := b.Write(p)
	if b.came != nil {
		b.came()
	}
	return err
}
func (b *buffer) Metadata(map[string]any) {}

func request(id, command string) agent.Request {
	in, _ := json.Marshal(map[string]any{"command": command})
	return agent.Request{CallID: id, Tool: "bash", Input: in}
}

func (s *sandbox) bash(c *agent.Conn, id, command string) (string, *agent.Outcome) {
	s.t.Helper()
	var b buffer
	o, err := c.Run(s.t.Context(), request(id, command), &b)
	if err != nil || o.Err != nil {
		s.t.Fatalf("%s: %v %+v", command, err, o)
	}
	return b.String(), o
}

func TestSandboxedCall(t *testing.T) {
	s := newSandbox(t)
	c, w := s.connect(nil)
	t.Logf("welcome %+v", w)
	if w.ForkTID <= 1 {
		t.Errorf("fork thread %d", w.ForkTID)
	}
	out, _ := s.bash(c, "c1", `id -u; id -g; id -G; grep -E '^(Cap(Eff|Prm|Bnd)|NoNewPrivs|Seccomp):' /proc/self/status | cut -f2 | tr '\n' ' '; ulimit -n; ulimit -f; cat /proc/self/cgroup | grep ^0; ls /proc/self/fd | tr '\n' ' '`)
	t.Log(out)
	if !strings.HasPrefix(out, "1000\n1000\n1000\n") {
		t.Errorf("ids: %q", out)
	}
	// What a tool can see of PID 1 (the negative control is the tool's own).
	out, _ = s.bash(c, "c2", `for f in mem environ maps root cwd exe fd fd/3; do for p in 1 self; do
(exec 9< /proc/$p/$f) 2>/dev/null && echo "$p/$f open"; done; done; readlink /proc/1/exe; ls /proc/1/fd 2>&1 | head -1
for n in $(seq 1 64); do kill -s $n 1 2>/dev/null; done; kill -9 -1; echo here`)
	if strings.Contains(out, "1/") && strings.Contains(out, "\n1/") || strings.HasPrefix(out, "1/") {
		t.Errorf("PID 1 is open: %s", out)
	}
	t.Log(out)
	if err := c.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	uid, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if !bytes.Contains(uid, fmt.Appendf(nil, "Uid:\t%d\t%[1]d\t%[1]d\t%[1]d", uidBase)) {
		t.Errorf("ids of PID 1: %s", uid)
	}
}

func TestNothingSurvivesACall(t *testing.T) {
	s := newSandbox(t)
	if s.cgroup == nil {
		testrig.Skipf(t, "oci", "no cgroup v2")
	}
	c, _ := s.connect(nil)
	out, o := s.bash(c, "c1", `setsid sleep 300 & (setsid bash -c 'sleep 300 & : > born; sleep 300' &) ; echo hi; until [ -e born ]; do sleep 0.02; done`)
	if out != "hi\n" || o.Exit.BackgroundKilled < 3 {
		t.Errorf("%q %+v", out, o.Exit)
	}
	s.nobody(c, "c2")
	// What is left of cgroups is kept for the next command, with the shell that waits.
	subs, err := filepath.Glob(fmt.Sprintf("%s/toold-agent-test-%d/call-*", unified, s.cmd.Process.Pid))
	if err != nil || len(subs) > 2 {
		t.Errorf("left over: %v, %v", subs, err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		left := strangers(subs)
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("left over: %q", left)
			break
		}
	}
	// A stopped process, one that ignores signals, and a killed leader.
	for i, cmd := range []string{
		`trap '' TERM INT HUP; (trap '' TERM; while :; do :; done) & echo x; kill -STOP $$; sleep 300`,
		`setsid bash -c 'trap "" TERM; echo x; sleep 300' & sleep 300`,
	} {
		id := fmt.Sprint("t", i)
		var once sync.Once
		b := &buffer{came: func() { once.Do(func() { _ = c.Abort(id, run.ReasonAborted) }) }}
		o, err := c.Run(t.Context(), request(id, cmd), b)
		if err != nil || o.Err != nil || o.Exit.Reason != run.ReasonAborted {
			t.Errorf("%v %+v", err, o)
		}
	}
	s.nobody(c, "c3")
}

// nobody checks that nothing is left of the commands that sleep and trap. What has
// ended and was not waited for yet does not count: see TestZombies.
func (s *sandbox) nobody(c *agent.Conn, id string) {
	s.t.Helper()
	out, _ := s.bash(c, id, `ps -eo stat=,args=`)
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "Z") && (strings.Contains(line, "sleep") || strings.Contains(line, "trap")) {
			s.t.Errorf("alive: %s", out)
		}
	}
}

func TestZombies(t *testing.T) {
	s := newSandbox(t)
	c, _ := s.connect(nil)
	n := 10000
	if testing.Short() {
		n = 500
	}
	_, o := s.bash(c, "c", fmt.Sprintf(`for i in $(seq %d); do (true &) ; done`, n))
	if o.Exit.Code != 0 {
		t.Errorf("%+v", o.Exit)
	}
	end := time.Now().Add(time.Minute)
	for i := 0; time.Now().Before(end); i++ {
		id := fmt.Sprint("z", i)
		out, _ := s.bash(c, id, `ps -eo stat | grep -c Z`)
		if strings.TrimSpace(out) == "0" {
			return
		}
		_ = c.Forget(id)
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("zombies are left")
}

func TestSetIDBits(t *testing.T) {
	s := newSandbox(t)
	c, _ := s.connect(nil)
	out, _ := s.bash(c, "c", `touch f; chmod 755 f && echo plain; chmod u+s f 2>&1; chmod 2755 f 2>&1; mkdir d; chmod g+s d 2>&1; cp -p /usr/bin/passwd p; stat -c %a f p
unshare -U true 2>&1; unshare -m true 2>&1
python3 - <<'E' 2>&1
import os, fcntl, ctypes
def t(name, f):
    try: f(); print(name, 'done')
    except OSError as e: print(name, e.errno)
t('chmod', lambda: os.chmod('f', 0o4755))
t('fchmod', lambda: os.fchmod(os.open('f', os.O_RDWR), 0o4755))
t('open', lambda: os.open('n1', os.O_CREAT|os.O_WRONLY, 0o4755))
t('openplain', lambda: os.open('n2', os.O_CREAT|os.O_WRONLY, 0o755))
t('tmpfile', lambda: os.open('.', os.O_TMPFILE|os.O_RDWR, 0o2755))
t('mknod', lambda: os.mknod('n3', 0o104755))
t('mkdir', lambda: os.mkdir('n4', 0o2755))
t('tiocsti', lambda: fcntl.ioctl(0, 0x5412, b'x'))
t('tioclinux', lambda: fcntl.ioctl(0, 0x541c, b'x'))
l = ctypes.CDLL(None, use_errno=True)
def sc(nr, *a):
    l.syscall(ctypes.c_long(nr), *a); return ctypes.get_errno()
if os.uname().machine == 'x86_64':
    print('clone3', sc(435, 0, 0), 'openat2', sc(437, -100, b'f', 0, 0), 'io_uring', sc(425, 1, 0), 'fchmodat2', sc(452, -100, b'f', 0o4755, 0), 'creat', sc(85, b'q', 0o6755))
E
`)
	t.Log(out)
	for _, bad := range []string{"chmod done", "fchmod done", "open done", "tmpfile done", "mknod done", "mkdir done", "tiocsti done", "tioclinux done", "4755", "2755", "6755"} {
		for line := range strings.Lines(out) {
			if strings.TrimSpace(line) == bad {
				t.Errorf("possible: %s", bad)
			}
		}
	}
	for _, want := range []string{"plain\n", "chmod 1\n", "fchmod 1\n", "open 1\n", "openplain done\n", "tmpfile 1\n", "mknod 1\n", "tiocsti 1\n", "tioclinux 1\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("missing %q", want)
		}
	}
}

func TestOrphanedAgentEnds(t *testing.T) {
	s := newSandbox(t)
	c, _ := s.connect(func(h *agent.Hello) { h.OrphanMillis = 200 })
	runs := make(chan struct{})
	b := &buffer{came: sync.OnceFunc(func() { close(runs) })}
	go func() { _, _ = c.Run(context.Background(), request("c", "trap '' TERM; echo x; sleep 300"), b) }()
	<-runs
	c.Close()
	select {
	case err := <-s.waited:
		s.waited <- err
		if err != nil {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the agent lives on without a daemon")
	}
}

func TestTermEndsTheSandbox(t *testing.T) {
	s := newSandbox(t)
	c, _ := s.connect(nil)
	s.bash(c, "c", "true")
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-s.waited:
		s.waited <- err
		if err != nil {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the agent does not end")
	}
}

// What an idle agent costs is printed, for comparison; a limit far above it
// catches what would make it useless.
func TestIdleMemory(t *testing.T) {
	s := newSandbox(t)
	c, _ := s.connect(nil)
	for i := range 20 {
		s.bash(c, fmt.Sprint(i), "seq 20000")
		if err := c.Forget(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(2500 * time.Millisecond)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		kib, threads := s.memory()
		if kib["Anonymous:"] <= 16<<10 {
			t.Logf("resident %d KiB, of its own %d KiB, anonymous %d KiB, %s", kib["Rss:"], kib["Private_Dirty:"], kib["Anonymous:"], threads)
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("an idle agent holds %d KiB", kib["Anonymous:"])
		}
	}
}

// memory is what the agent holds, in KiB by the names of smaps_rollup, and its threads.
func (s *sandbox) memory() (kib map[string]int, threads string) {
	s.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	kib = make(map[string]int)
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[2] == "kB" {
			kib[f[0]], _ = strconv.Atoi(f[1])
		}
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "Threads:") {
			threads = strings.TrimSpace(line)
		}
	}
	return kib, threads
}

// strangers gives the command lines of the processes in these cgroups that are
// neither a shell that waits nor the agent on its way to one. One that is just
// executing its program, or ending, has an empty command line.
func strangers(cgroups []string) (left []string) {
	for _, dir := range cgroups {
		procs, _ := os.ReadFile(dir + "/cgroup.procs")
		for pid := range strings.FieldsSeq(string(procs)) {
			argv, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			if !bytes.Contains(argv, []byte("-c\x00exit 125\n###")) && string(argv) != "/run/agent\x00" {
				left = append(left, dir+": "+string(argv))
			}
		}
	}
	return left
}
