package attack

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox/inside"
	"github.com/toold/toold/internal/session/room"
	"github.com/toold/toold/internal/testrig"
)

// K1: what a tool's process may do, as the kernel says it.
func TestK1Status(t *testing.T) {
	s := newScene(t, "")
	got := s.probe(t, "status")
	for _, c := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		holds(t, c, got[c] == "0000000000000000", "%s, want none", got[c])
	}
	holds(t, "NoNewPrivs", got["NoNewPrivs"] == "1", "%s, want 1", got["NoNewPrivs"])
	holds(t, "Seccomp", got["Seccomp"] == "2", "%s, want 2", got["Seccomp"])
	holds(t, "Groups", got["Groups"] == "", "%q, want none", got["Groups"])
	for _, id := range []string{"Uid", "Gid"} {
		holds(t, id, got[id] == "1000,1000,1000,1000", "%s, want 1000", got[id])
	}
	for _, m := range []string{"uid_map", "gid_map"} {
		holds(t, m, got[m] != "" && !strings.HasPrefix(got[m], "0,0,"), "%q, want a range of its own", got[m])
	}
	control := weak{root: true, initial: true}.run(t, "status")
	if control["CapEff"] == "0000000000000000" || control["Seccomp"] != "0" || !strings.HasPrefix(control["uid_map"], "0,0,") {
		t.Errorf("control: the probe would not have noticed: %v", control)
	}
}

// K2: no namespace can be made or entered, by whatever call.
func TestK2Namespaces(t *testing.T) {
	s := newScene(t, "")
	got := s.probe(t, "namespaces")
	got.refused(t, "EPERM EACCES", got.keys("unshare-")...)
	got.refused(t, "EPERM EACCES", "clone-user", "setns-1-user", "setns-1-mnt", "setns-1-pid", "setns-1-net")
	got.refused(t, "ENOSYS", "clone3-user")
	control := weak{}.run(t, "namespaces")
	for _, n := range []string{"clone-user", "clone3-user"} { // unshare(USER) is refused to a program with threads anyway
		if control[n] != "ok" {
			t.Errorf("control: %s = %s, want ok without the filters", n, control[n])
		}
	}
}

// K2, the second layer: with no filter at all the session's user namespace
// still allows no further one.
func TestK2NamespaceQuota(t *testing.T) {
	s := newScene(t, "")
	pid, ok := agentPID(s.attacker.ID)
	if !ok {
		t.Fatal("no agent found")
	}
	out := enterUserNS(t, pid, "cat /proc/sys/user/max_user_namespaces")
	holds(t, "max_user_namespaces", strings.TrimSpace(out) == "0", "%q, want 0", out)
	if host := strings.TrimSpace(read("/proc/sys/user/max_user_namespaces")); host == "0" {
		t.Errorf("the host's own user.max_user_namespaces is 0: the setting went to the wrong place")
	}
}

// K3: no mount can be made, moved or changed.
func TestK3Mounts(t *testing.T) {
	s := newScene(t, "")
	before := s.bash(t, "cat /proc/self/mountinfo").Output
	got := s.probe(t, "mounts")
	for n := range got {
		got.refused(t, "EPERM ENOSYS", n)
	}
	after := s.bash(t, "cat /proc/self/mountinfo").Output
	holds(t, "mountinfo", after == before, "changed:\n%s\n---\n%s", before, after)
	control := weak{root: true}.run(t, "mounts")
	for _, n := range []string{"mount", "umount2", "fsopen", "open_tree-clone"} {
		if control[n] != "ok" {
			t.Errorf("control: %s = %s, want ok", n, control[n])
		}
	}
}

// K4: system calls that no tool needs.
func TestK4Syscalls(t *testing.T) {
	s := newScene(t, "")
	got := s.probe(t, "syscalls")
	if len(got) < 25 {
		t.Fatalf("only %d calls were tried", len(got))
	}
	for n := range got {
		got.refused(t, "EPERM ENOSYS", n)
	}
	// Without the filter the kernel answers otherwise, if only with EINVAL.
	control := weak{}.run(t, "syscalls")
	for _, n := range []string{"io_uring_setup", "io_uring_enter", "userfaultfd-user", "keyctl", "add_key", "fanotify_init", "quotactl"} {
		if c := control[n]; c == "EPERM" || c == "ENOSYS" || c == "" {
			t.Logf("control: %s = %q is refused by this kernel anyway", n, c)
		} else {
			control["noticed"] = n
		}
	}
	if control["noticed"] == "" {
		t.Error("control: no call got further without the filter; the test proves nothing")
	}
}

// K5: no socket of a family that is not needed, not by the 32-bit entries either.
func TestK5Sockets(t *testing.T) {
	s := newScene(t, "")
	got := s.probe(t, "sockets")
	for _, ok := range []string{"socket-unix", "socket-inet", "socket-inet6", "socket-netlink"} {
		holds(t, ok, got[ok] == "ok", "%s, want ok", got[ok])
		delete(got, ok)
	}
	got.refused(t, "EPERM EAFNOSUPPORT EACCES", got.keys("socket-")...)
	got.refused(t, "SIGSYS EPERM ENOSYS", "int80", "x32")
	holds(t, "netlink-0", got["netlink-0"] == "ok", "%s, want ok", got["netlink-0"])
	delete(got, "netlink-0")
	got.refused(t, "EPROTONOSUPPORT", got.keys("netlink-")...)
	control := weak{}.run(t, "sockets")
	if control["socket-vsock"] != "ok" && control["socket-alg"] != "ok" {
		t.Errorf("control: neither AF_VSOCK nor AF_ALG opens without the filter: %v", control)
	}
	if control["netlink-4"] != "ok" {
		t.Errorf("control: NETLINK_SOCK_DIAG is %s without the filter", control["netlink-4"])
	}
	if control["int80"] == "SIGSYS" {
		t.Error("control: int 0x80 is killed without the filter too")
	}
}

// K6: the devices.
func TestK6Devices(t *testing.T) {
	s := newScene(t, "")
	out := s.bash(t, "/workspace/probe devices").Output
	allowed := " null zero full random urandom tty ptmx pts shm fd stdin stdout stderr mqueue console "
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "dev "); ok {
			holds(t, "/dev/"+name, strings.Contains(allowed, " "+name+" "), "is there")
		}
	}
	got := parseOutcomes(out)
	got.refused(t, "no_such_file ENOENT open_ EPERM EACCES", got.keys("mknod-")...)
	for _, n := range got.keys("open-") {
		holds(t, n, got[n] != "ok", "it opened")
	}
	control := weak{root: true, initial: true}.run(t, "devices")
	if control["mknod-char"] != "ok" {
		t.Errorf("control: mknod = %s, want ok for a capable root", control["mknod-char"])
	}
}

// K7: what the host has in the tree gives no rights inside.
func TestK7Planted(t *testing.T) {
	s := newScene(t, "")
	must(t, unix.Mknod(filepath.Join(s.tree, "blockdev"), unix.S_IFBLK|0o666, int(unix.Mkdev(7, 99))))
	must(t, os.Chmod(filepath.Join(s.tree, "blockdev"), 0o666))
	plantSetuid(t, s.tree)
	got := s.probe(t, "planted", "/workspace")
	got.refused(t, "EACCES EPERM", "open-blockdev")
	for _, p := range []string{"setuid-root", "filecaps"} {
		uid, eff := got[p+"-Uid"], got[p+"-CapEff"]
		holds(t, p+"-Uid", uid == "1000,1000,1000,1000", "ran with uids %q, outcome %s", uid, got[p])
		holds(t, p+"-CapEff", eff == "0000000000000000", "ran with capabilities %q", eff)
	}
	// The same program on a mount without nosuid, in a container that lets new
	// privileges be, does become root of that container.
	decoy := t.TempDir()
	must(t, os.Chmod(decoy, 0o755))
	must(t, os.Chmod(filepath.Dir(decoy), 0o755))
	plantSetuid(t, decoy)
	control := weak{initial: true, suid: true, binds: []string{decoy}}.run(t, "planted", "/mnt")
	if !strings.Contains(control["setuid-root-Uid"], ",0,") {
		t.Errorf("control: set-uid did not work where it is let: %v", control)
	}
}

// plantSetuid puts a set-uid copy of probe and one with file capabilities into dir.
func plantSetuid(t *testing.T, dir string) {
	t.Helper()
	f := filepath.Join(dir, "setuid-root")
	copyFile(t, bin.probe, f, 0o755)
	must(t, os.Chmod(f, 0o755|os.ModeSetuid))
	f = filepath.Join(dir, "filecaps")
	copyFile(t, bin.probe, f, 0o755)
	// VFS_CAP_REVISION_2 with the effective bit; all of the low capabilities permitted.
	caps := []byte{1, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	must(t, unix.Setxattr(f, "security.capability", caps, 0))
}

// K8: the kernel's knobs.
func TestK8Procfs(t *testing.T) {
	s := newScene(t, "")
	got := s.probe(t, "procfs")
	for _, n := range got.keys("write-") {
		holds(t, n, got[n] != "ok", "opened for writing")
	}
	for _, n := range []string{"kcore", "keys", "timer_list", "sched_debug", "kmsg", "sysrq-trigger", "interrupts"} {
		n = "read-proc." + n
		holds(t, n, got[n] != "ok", "can be read")
	}
	for _, n := range got.keys("read-sys.") {
		holds(t, n, got[n] != "ok", "has content")
	}
	control := weak{root: true, initial: true}.run(t, "procfs")
	if control["read-proc.timer_list"] != "ok" && control["read-proc.kcore"] != "ok" && control["read-proc.interrupts"] != "ok" {
		t.Errorf("control: nothing can be read without the masks: %v", control)
	}
}

// K9: a root filesystem whose /dev/null leads to core_pattern. A hundred
// sessions must leave the host's core_pattern alone.
func TestK9HostileRootfs(t *testing.T) {
	rootfs := t.TempDir()
	must(t, os.Chmod(rootfs, 0o755))
	for _, d := range []string{"dev", "etc", "usr"} {
		must(t, os.Mkdir(filepath.Join(rootfs, d), 0o755))
	}
	for _, n := range []string{"null", "console", "tty", "ptmx"} {
		must(t, os.Symlink("/proc/sys/kernel/core_pattern", filepath.Join(rootfs, "dev", n)))
	}
	for _, l := range []string{"proc", "sys", "run", "tmp", "workspace"} {
		must(t, os.Symlink("/etc", filepath.Join(rootfs, l)))
	}
	before := read("/proc/sys/kernel/core_pattern")
	passwd := read("/etc/passwd")
	r := newRig(t, nil, "")
	appendConfig(t, r, "[sandbox]", fmt.Sprintf("rootfs = %q", rootfs))
	r.stop(t)
	r.start(t)
	n := 100
	if testing.Short() {
		n = 10
	}
	for range n {
		s, err := r.a.CreateSession(t.Context(), client.SessionCreate{})
		if err != nil {
			continue // refusing is as good
		}
		if _, err := r.a.EndSession(t.Context(), s.ID, client.EndOptions{Force: true}); err != nil {
			t.Errorf("end: %v", err)
		}
	}
	if got := read("/proc/sys/kernel/core_pattern"); got != before {
		os.WriteFile("/proc/sys/kernel/core_pattern", []byte(before), 0)
		t.Errorf("core_pattern was %q, is %q", before, got)
	}
	if read("/etc/passwd") != passwd {
		t.Error("/etc/passwd changed")
	}
}

// K10: a root filesystem whose /dev, and other mount points, are links to a
// directory of the host. Nothing may appear there.
func TestK10RootfsLinks(t *testing.T) {
	outside, rootfs := t.TempDir(), t.TempDir()
	for _, d := range []string{outside, rootfs, filepath.Dir(outside)} {
		must(t, os.Chmod(d, 0o777))
	}
	for _, d := range []string{"etc", "usr"} {
		must(t, os.Mkdir(filepath.Join(rootfs, d), 0o755))
	}
	for _, l := range []string{"dev", "proc", "sys", "run", "tmp", "home", "workspace"} {
		must(t, os.Symlink(outside, filepath.Join(rootfs, l)))
	}
	r := newRig(t, nil, "")
	appendConfig(t, r, "[sandbox]", fmt.Sprintf("rootfs = %q", rootfs))
	r.stop(t)
	r.start(t)
	before := strings.Count(read("/proc/self/mountinfo"), "\n")
	for range 5 {
		if s, err := r.a.CreateSession(t.Context(), client.SessionCreate{}); err == nil {
			if _, err := r.a.EndSession(t.Context(), s.ID, client.EndOptions{Force: true}); err != nil {
				t.Errorf("end: %v", err)
			}
		}
	}
	entries, err := os.ReadDir(outside)
	must(t, err)
	if len(entries) > 0 {
		t.Errorf("outside of the root filesystem there are %v", entries)
	}
	if after := strings.Count(read("/proc/self/mountinfo"), "\n"); after != before {
		t.Errorf("%d mounts, were %d", after, before)
	}
}

// K26: no filter can be loaded for a socket or a process, and io_setup, whose
// requests are counted for the whole host, is not there.
func TestK26Filters(t *testing.T) {
	s := newScene(t, "")
	got := s.probe(t, "filters")
	for _, name := range []string{"socket", "socket-bpf", "port", "port-bpf", "lock", "sent", "sent-64"} {
		got.refused(t, "EPERM", name, name+"-high")
	}
	got.refused(t, "EINVAL", "seccomp", "prctl")
	got.refused(t, "ENOSYS", "io_setup")
	control := weak{}.run(t, "filters")
	for _, name := range []string{"socket", "socket-high", "lock", "sent", "sent-64", "seccomp", "prctl", "io_setup"} {
		if control[name] != "ok" {
			t.Errorf("control: %s = %s, want ok without the filters", name, control[name])
		}
	}
	if control["port"] != "EINVAL" { // the socket shares no port
		t.Errorf("control: port = %s, want EINVAL without the filters", control["port"])
	}
}

// K27: the pseudo-terminals of the host are not one session's to take.
func TestK27Terminals(t *testing.T) {
	s := newScene(t, "")
	host := func() int {
		n, err := strconv.Atoi(strings.TrimSpace(read("/proc/sys/kernel/pty/nr")))
		must(t, err)
		return n
	}
	// Some more than a session may have, and far from all that the host has.
	const tried = inside.Terminals + 32
	before, now := host(), int64(0)
	x, err := s.a.CreateCall(t.Context(), s.attacker.ID, client.CallCreate{
		Tool: "bash", Input: fmt.Appendf(nil, `{"command":"/workspace/probe terminals %d hold","timeout":600000}`, tried), WaitMillis: &now,
	}, client.CallOptions{})
	must(t, err)
	testrig.Eventually(t, "all is taken", func() bool { return strings.Contains(outputSoFar(t, s.a, s.attacker.ID), "terminals") })
	taken := host() - before
	holds(t, "taken", taken < tried, "%d terminals of the host are one session's", taken)
	theirs := probe(t, s.b, s.neighbour.ID, "terminals", "5")
	holds(t, "neighbour", theirs["terminals"] == "5", "meanwhile it can have %v", theirs)
	x, err = s.a.AbortCall(t.Context(), x.ID)
	must(t, err)
	if !strings.Contains(x.Output, fmt.Sprint("terminals ", tried)) && !strings.Contains(x.Output, fmt.Sprint("terminals ", inside.Terminals)) {
		t.Errorf("control: the attacker got neither all that it tried nor its share: %q", x.Output)
	}
}

// K28: what the kernel keeps for programs, such as what lies in their sockets, is counted in the
// session's memory or bounded apart from it; a call that goes beyond that is ended.
func TestK28KernelMemory(t *testing.T) {
	s := newScene(t, "")
	kinds := []string{"tcp", "backlog", "errors", "udp", "netlink", "unix", "datagram", "pipe", "memory", "queue"}
	if current.program != "runsc" { // whose own records of these have other sizes, and are its memory; it has no POSIX queues
		kinds = append(kinds, "set", "event", "epoll", "locks", "ofd", "posix")
	}
	if setting := s.bash(t, "cat /proc/sys/net/core/tstamp_allow_data").Output; strings.HasPrefix(setting, "0") {
		kinds = append(kinds, "sent")
	} else if !current.engine && current.program != "runsc" {
		t.Logf("this kernel keeps copies of what is sent: %s", setting)
	}
	for _, kind := range kinds {
		outside, peak, reason := heldOutside(t, s, kind)
		// Sockets of netlink are few and small, and no error queue has anything.
		ended := reason == "memory" && kind != "netlink" && kind != "errors"
		holds(t, kind, outside < 32<<20 && reason == "" || ended, "%d bytes of the host's memory are counted for nobody; the call was ended for %q", outside, reason)
		if alone := os.Getenv("TOOLD_TEST_LONG") != ""; alone { // beside others of this host it is theirs, too
			holds(t, kind+" at its most", peak < 32<<20, "the host had %d bytes more before the call was ended", peak)
		}
	}
	for _, kind := range []string{"tcp", "backlog", "udp", "errors", "sent", "netlink", "locks", "ofd"} {
		if held, _ := strconv.Atoi(weak{}.run(t, "kernelmem", kind, "go")["held"]); held < 32<<20 {
			t.Errorf("control: %s holds %d bytes without a bound", kind, held)
		}
	}
}

// watchHost looks each millisecond at what the host's own numbers say of sockets and of locks, but for
// what the cgroup of a session counts, and gives the most that was beside what there was at first. Others
// of the host move these numbers too, so that nothing can be asserted of them.
func watchHost(t *testing.T, session string) (peak func() int64) {
	t.Helper()
	var counted []string // what version 1 counts beside memory; version 2 has it in that, with the locks
	_ = filepath.WalkDir("/sys/fs/cgroup/memory", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.Contains(e.Name(), session) {
			counted = append(counted, filepath.Join(path, "memory.kmem.tcp.usage_in_bytes"))
			return fs.SkipDir
		}
		return nil // cgroups go meanwhile
	})
	sockets, locks := room.Sockets(), room.FileLocks()
	look := func() int64 {
		n := sockets.Now() + locks.Now()
		for _, file := range counted {
			b, _ := os.ReadFile(file)
			own, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
			n -= own
		}
		return n
	}
	first, most := look(), int64(0)
	stop := make(chan struct{})
	var over sync.WaitGroup
	over.Go(func() {
		each := time.NewTicker(time.Millisecond)
		defer each.Stop()
		for {
			most = max(most, look()-first)
			select {
			case <-each.C:
			case <-stop:
				return
			}
		}
	})
	end := sync.OnceFunc(func() { close(stop); over.Wait(); sockets.Close(); locks.Close() })
	t.Cleanup(end)
	return func() int64 { end(); return most }
}

// heldOutside fills the kernel with a kind of things and gives how much of it does not show in the
// memory of the session, and how much more the host had for it at most; or the reason why the call was ended.
func heldOutside(t *testing.T, s *scene, kind string) (bytes, most int64, reason string) {
	t.Helper()
	// One of its own: memory of the kind before may be given back late.
	session := s.session(t, s.a, client.SessionCreate{Worktree: client.Worktree{Source: s.tree}})
	used := func() int64 {
		x, err := s.a.GetSession(t.Context(), session.ID)
		must(t, err)
		return x.Usage.MemoryBytes
	}
	if c := bash(t, s.a, session.ID, "echo kept >/tmp/kept"); c.IsError || c.Error != nil {
		t.Errorf("%s: %+v", kind, c)
	}
	before, now := used(), int64(0)
	peak := watchHost(t, session.ID)
	x, err := s.a.CreateCall(t.Context(), session.ID, client.CallCreate{
		Tool: "bash", Input: fmt.Appendf(nil, `{"command":"ulimit -n $(ulimit -Hn); /workspace/probe kernelmem %s","timeout":600000}`, kind), WaitMillis: &now,
	}, client.CallOptions{})
	must(t, err)
	held := int64(-1)
	over := func() bool {
		x, err = s.a.GetCall(t.Context(), x.ID)
		must(t, err)
		return x.Finished()
	}
	testrig.Eventually(t, "all is full", func() bool {
		if over() {
			return true
		}
		r, err := s.a.CallOutput(t.Context(), x.ID, client.OutputQuery{})
		if err != nil {
			return false
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		must(t, err)
		_, rest, found := strings.Cut(string(b), "held ")
		if number, _, whole := strings.Cut(rest, "\n"); found && whole {
			held, err = strconv.ParseInt(number, 10, 64)
			must(t, err)
			return true
		}
		return false
	})
	if held == 0 && kind != "sent" && kind != "netlink" && kind != "errors" { // gVisor does not say what lies there
		t.Errorf("%s: nothing was held", kind)
	}
	if bytes = held - (used() - before); bytes >= 32<<20 { // the daemon has yet to see it
		testrig.Eventually(t, "the call is ended", over)
	}
	if over() {
		reason = fmt.Sprint(x.Metadata["reason"])
	}
	if held < 0 && reason != "memory" {
		t.Errorf("%s: the probe ended before it was done: %q", kind, x.Output)
	}
	if reason != "" { // what is not what filled the memory stays
		if c := bash(t, s.a, session.ID, "cat /tmp/kept"); c.Output != "kept\n" {
			t.Errorf("%s: after the call was ended /tmp has %q, %+v", kind, c.Output, c.Error)
		}
	}
	most = peak()
	t.Logf("%s: %d KiB are held, %d of them counted for nobody; ended for %q; the host had %d KiB more of sockets and locks at most that nobody counts, whoever's they were",
		kind, held>>10, bytes>>10, reason, most>>10)
	_, err = s.a.EndSession(t.Context(), session.ID, client.EndOptions{Force: true})
	must(t, err)
	return bytes, most, reason
}
