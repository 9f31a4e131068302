package oci_test

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/sandboxtest"
)

// runProbe tries system calls as the tool user and prints what each gave. It is
// only ever reached inside a sandbox (see TestMain).
func runProbe(name string) int {
	results := map[string]string{}
	switch name {
	case "syscalls":
		for n, call := range forbiddenCalls() {
			results[n] = outcome(call())
		}
	case "allowed":
		for n, call := range allowedCalls() {
			results[n] = outcome(call())
		}
	case "x32":
		_, _, errno := unix.RawSyscall(0x40000000|unix.SYS_GETPID, 0, 0, 0)
		results["x32"] = outcome(errno)
	case "leases":
		results["own"] = lease(sandbox.Workspace + "/own")
		results["output"] = lease(sandbox.OutputDir + "/call")
	default:
		return 2
	}
	data, err := json.Marshal(results)
	if err != nil {
		return 1
	}
	fmt.Println(string(data))
	return 0
}

func outcome(errno syscall.Errno) string {
	if errno == 0 {
		return "ok"
	}
	return unix.ErrnoName(errno)
}

type call = func() syscall.Errno

func raw(nr uintptr, args ...uintptr) call {
	return func() syscall.Errno {
		var a [6]uintptr
		copy(a[:], args)
		_, _, errno := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
		return errno
	}
}

func text(s string) uintptr {
	p, err := unix.BytePtrFromString(s)
	if err != nil {
		panic(err)
	}
	kept = append(kept, p)
	return uintptr(unsafe.Pointer(p))
}

// kept keeps what only a uintptr points to.
var kept []*byte

// atCwd is AT_FDCWD as a register holds it.
const atCwd = ^uintptr(99)

const high = 1 << 32 // a bit that the kernel does not look at

func forbiddenCalls() map[string]call {
	file := sandbox.Workspace + "/probe"
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		panic(err)
	}
	calls := map[string]call{
		"unshare user":        raw(unix.SYS_UNSHARE, unix.CLONE_NEWUSER),
		"unshare mount":       raw(unix.SYS_UNSHARE, unix.CLONE_NEWNS),
		"setns":               raw(unix.SYS_SETNS, 0, 0),
		"mount":               raw(unix.SYS_MOUNT, text("none"), text("/tmp"), text("tmpfs"), 0, 0),
		"umount2":             raw(unix.SYS_UMOUNT2, text("/tmp"), 0),
		"pivot_root":          raw(unix.SYS_PIVOT_ROOT, text("/"), text("/")),
		"chroot":              raw(unix.SYS_CHROOT, text("/tmp")),
		"fsopen":              raw(unix.SYS_FSOPEN, text("tmpfs"), 0),
		"open_tree":           raw(unix.SYS_OPEN_TREE, atCwd, text("/tmp"), unix.OPEN_TREE_CLONE),
		"move_mount":          raw(unix.SYS_MOVE_MOUNT, 0, 0, 0, 0, 0),
		"mount_setattr":       raw(unix.SYS_MOUNT_SETATTR, atCwd, text("/tmp"), 0, 0, 0),
		"keyctl":              raw(unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, ^uintptr(2), 0),
		"add_key":             raw(unix.SYS_ADD_KEY, text("user"), text("k"), text("v"), 1, ^uintptr(2)),
		"request_key":         raw(unix.SYS_REQUEST_KEY, text("user"), text("k"), 0, 0),
		"bpf":                 raw(unix.SYS_BPF, 0, 0, 0),
		"perf_event_open":     raw(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0, 0, 0),
		"userfaultfd":         raw(unix.SYS_USERFAULTFD, 0),
		"userfaultfd user":    raw(unix.SYS_USERFAULTFD, 1),
		"io_uring_setup":      raw(unix.SYS_IO_URING_SETUP, 1, 0),
		"kexec_load":          raw(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0),
		"init_module":         raw(unix.SYS_INIT_MODULE, 0, 0, 0),
		"finit_module":        raw(unix.SYS_FINIT_MODULE, 0, 0, 0),
		"open_by_handle_at":   raw(unix.SYS_OPEN_BY_HANDLE_AT, 0, 0, 0),
		"quotactl":            raw(unix.SYS_QUOTACTL, 0, 0, 0, 0),
		"acct":                raw(unix.SYS_ACCT, text(file)),
		"swapon":              raw(unix.SYS_SWAPON, text(file), 0),
		"syslog":              raw(unix.SYS_SYSLOG, 3, 0, 0),
		"settimeofday":        raw(unix.SYS_SETTIMEOFDAY, 0, 0),
		"fanotify_init":       raw(unix.SYS_FANOTIFY_INIT, 0, 0),
		"sethostname":         raw(unix.SYS_SETHOSTNAME, text("x"), 1),
		"TIOCSTI":             raw(unix.SYS_IOCTL, 0, unix.TIOCSTI, text("x")),
		"TIOCSTI, high bit":   raw(unix.SYS_IOCTL, 0, high|unix.TIOCSTI, text("x")),
		"TIOCLINUX":           raw(unix.SYS_IOCTL, 0, unix.TIOCLINUX, text("\x03")),
		"TIOCLINUX, high bit": raw(unix.SYS_IOCTL, 0, high|unix.TIOCLINUX, text("\x03")),
		"chmod setuid":        raw(unix.SYS_FCHMODAT, atCwd, text(file), unix.S_ISUID|0o755),
		"chmod setgid":        raw(unix.SYS_FCHMODAT, atCwd, text(file), unix.S_ISGID|0o755),
		"chmod, high bit":     raw(unix.SYS_FCHMODAT, atCwd, text(file), high|unix.S_ISUID|0o755),
		"fchmodat2 setuid":    raw(unix.SYS_FCHMODAT2, atCwd, text(file), unix.S_ISUID|0o755, 0),
		"create setuid":       raw(unix.SYS_OPENAT, atCwd, text(file+"1"), unix.O_CREAT|unix.O_WRONLY, unix.S_ISUID|0o755),
		"tmpfile setuid":      raw(unix.SYS_OPENAT, atCwd, text(sandbox.Workspace), unix.O_TMPFILE|unix.O_WRONLY, unix.S_ISUID|0o755),
		"mknod setuid":        raw(unix.SYS_MKNODAT, atCwd, text(file+"2"), unix.S_IFREG|unix.S_ISUID|0o755, 0),
		"mknod char device":   raw(unix.SYS_MKNODAT, atCwd, text(file+"3"), unix.S_IFCHR|0o666, 1<<8|3),
		"mknod block device":  raw(unix.SYS_MKNODAT, atCwd, text(file+"4"), unix.S_IFBLK|0o666, 254<<8),
		"a call of tomorrow":  raw(9999),
	}
	for name, family := range map[string]uintptr{
		"AF_VSOCK": unix.AF_VSOCK, "AF_ALG": unix.AF_ALG, "AF_PACKET": unix.AF_PACKET, "AF_TIPC": unix.AF_TIPC,
		"AF_RXRPC": unix.AF_RXRPC, "AF_XDP": unix.AF_XDP, "AF_KEY": unix.AF_KEY, "AF_VSOCK, high bit": high | unix.AF_VSOCK,
	} {
		calls["socket "+name] = raw(unix.SYS_SOCKET, family, unix.SOCK_STREAM, 0)
	}
	return calls
}

// allowedCalls are neighbours of forbidden ones that programs need.
func allowedCalls() map[string]call {
	file := sandbox.Workspace + "/allowed"
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		panic(err)
	}
	calls := map[string]call{
		"chmod":        raw(unix.SYS_FCHMODAT, atCwd, text(file), 0o1755),
		"open":         raw(unix.SYS_OPENAT, atCwd, text(file), unix.O_RDONLY, 0o7777),
		"create":       raw(unix.SYS_OPENAT, atCwd, text(file+"1"), unix.O_CREAT|unix.O_WRONLY, 0o755),
		"mknod fifo":   raw(unix.SYS_MKNODAT, atCwd, text(file+"2"), unix.S_IFIFO|0o644, 0),
		"mknod socket": raw(unix.SYS_MKNODAT, atCwd, text(file+"3"), unix.S_IFSOCK|0o644, 0),
	}
	for _, family := range []uintptr{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6} {
		calls[fmt.Sprint("socket ", family)] = raw(unix.SYS_SOCKET, family, unix.SOCK_STREAM, 0)
	}
	calls["socket netlink"] = raw(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, 0)
	return calls
}

func (l *live) probe(name string) map[string]string {
	l.t.Helper()
	r := l.ask(agentRequest{Argv: []string{sandbox.AgentPath, "probe", name}, Call: "call-" + sandboxtest.RandomHex(4)})
	if r.Code != 0 || r.Err != "" {
		l.t.Fatalf("probe %s: code %d %s\n%s", name, r.Code, r.Err, r.Output)
	}
	results := map[string]string{}
	if err := json.Unmarshal([]byte(r.Output), &results); err != nil {
		l.t.Fatal(err)
	}
	return results
}

func TestSeccomp(t *testing.T) {
	f := newFixture(t)
	l := f.create(f.Spec())
	for name, got := range l.probe("syscalls") {
		if got != "EPERM" && got != "ENOSYS" {
			t.Errorf("%s: %s, want EPERM or ENOSYS", name, got)
		}
	}
	for name, got := range l.probe("allowed") {
		if got != "ok" {
			t.Errorf("%s: %s, want ok", name, got)
		}
	}
	// The kernel kills the thread that uses another architecture's numbers, which
	// a program of several threads does not survive in good shape.
	x32 := l.ask(agentRequest{Argv: []string{"/usr/bin/timeout", "-s", "KILL", "2", sandbox.AgentPath, "probe", "x32"}, Call: "call-x32"})
	if strings.Contains(x32.Output, `"ok"`) || x32.Code == 0 && x32.Output == "" {
		t.Errorf("x32 system call: code %d, %s", x32.Code, x32.Output)
	}
}

// The control: without the filter the kernel itself refuses much, but not all,
// and the limits of the user namespace are what still forbids namespaces.
func TestSeccompControl(t *testing.T) {
	f := newFixture(t)
	f.driver.Unfiltered()
	l := f.create(f.Spec())
	got := l.probe("syscalls")
	for _, name := range []string{"chmod setuid", "chmod, high bit", "create setuid", "tmpfile setuid", "mknod setuid", "add_key", "socket AF_VSOCK"} {
		if got[name] == "EPERM" || got[name] == "ENOSYS" {
			t.Errorf("%s: %s even without the filter: the test proves nothing", name, got[name])
		}
	}
	if r := l.sh("unshare --user true"); r.Code == 0 || !strings.Contains(r.Output, "No space") {
		t.Errorf("unshare of a user namespace: code %d, %s, want ENOSPC from the namespace's own limit", r.Code, r.Output)
	}
	if got := readHost(t, "/proc/sys/user/max_user_namespaces"); got == "0" {
		t.Error("the host's own limit has become 0")
	}
	var open []string
	for name, result := range got {
		if result != "EPERM" && result != "ENOSYS" {
			open = append(open, name)
		}
	}
	sort.Strings(open)
	t.Logf("%d of %d calls pass without the filter: %s", len(open), len(got), strings.Join(open, ", "))
}

func readHost(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}
