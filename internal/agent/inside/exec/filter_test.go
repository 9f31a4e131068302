package exec

import (
	"encoding/binary"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// No program loads a filter: it has those of the fork thread, a waiting shell and
// one that is started afresh alike. The kernel's count of a process goes up with
// each filter that is loaded in it or was before it.
func TestProgramsInheritTheFilter(t *testing.T) {
	r := newRig(t, nil)
	count := regexp.MustCompile(`(?m)^Seccomp_filters:\t\d+$`)
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", r.TID()))
	if err != nil {
		t.Fatal(err)
	}
	want := count.FindString(string(b))
	if own, err := os.ReadFile("/proc/thread-self/status"); err != nil || want == "" || want == count.FindString(string(own)) {
		t.Fatalf("the fork thread has no filter of its own: %q, %v", want, err)
	}
	for _, run := range []func(string) (string, outcome){r.bash, r.given, r.given} {
		if out, _ := run("grep ^Seccomp_filters: /proc/self/status"); strings.TrimSpace(out) != want {
			t.Errorf("a program has %q, the thread that starts it %q", strings.TrimSpace(out), want)
		}
	}
}

func TestFilterJumps(t *testing.T) {
	own := secret{0x1111111122222222, 0x3333333344444444}
	f := toolFilter(variant{own: own, gated: true})
	if len(f) > unix.BPF_MAXINSNS {
		t.Fatalf("%d instructions", len(f))
	}
	eval := func(arch, nr uint32, args ...uint64) uint32 {
		data := make([]byte, 64)
		binary.LittleEndian.PutUint32(data, nr)
		binary.LittleEndian.PutUint32(data[4:], arch)
		for i, a := range args {
			binary.LittleEndian.PutUint64(data[16+8*i:], a)
		}
		var acc uint32
		for pc := 0; pc < len(f); pc++ {
			i := f[pc]
			yes := false
			switch i.Code {
			case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
				acc = binary.LittleEndian.Uint32(data[i.K:])
				continue
			case unix.BPF_JMP | unix.BPF_JA:
				pc += int(i.K)
				continue
			case unix.BPF_RET | unix.BPF_K:
				return i.K
			case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
				yes = acc == i.K
			case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
				yes = acc >= i.K
			case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
				yes = acc&i.K != 0
			default:
				t.Fatalf("instruction %d: code %#x", pc, i.Code)
			}
			if yes {
				pc += int(i.Jt)
			} else {
				pc += int(i.Jf)
			}
		}
		t.Fatal("fell off the end")
		return 0
	}
	const eperm, enosys, einval = retErrno | uint32(unix.EPERM), retErrno | uint32(unix.ENOSYS), retErrno | uint32(unix.EINVAL)
	const noProtocol = retErrno | uint32(unix.EPROTONOSUPPORT)
	for _, tc := range []struct {
		name string
		nr   uint32
		args []uint64
		want uint32
	}{
		{"read", unix.SYS_READ, nil, retAllow},
		{"clone3", unix.SYS_CLONE3, nil, enosys},
		{"openat2", unix.SYS_OPENAT2, nil, enosys},
		{"clone3 of the agent", unix.SYS_CLONE3, []uint64{1, 88, 0, 0, own[0], own[1]}, retAllow},
		{"openat2 of the agent", unix.SYS_OPENAT2, []uint64{3, 0, 0, 24, own[0], own[1]}, retAllow},
		{"clone3, first word", unix.SYS_CLONE3, []uint64{1, 88, 0, 0, own[0] ^ 1, own[1]}, enosys},
		{"clone3, second word", unix.SYS_CLONE3, []uint64{1, 88, 0, 0, own[0] ^ 1<<32, own[1]}, enosys},
		{"clone3, third word", unix.SYS_CLONE3, []uint64{1, 88, 0, 0, own[0], own[1] ^ 1}, enosys},
		{"openat2, fourth word", unix.SYS_OPENAT2, []uint64{3, 0, 0, 24, own[0], own[1] ^ 1<<32}, enosys},
		{"secret in the wrong place", unix.SYS_CLONE3, []uint64{1, 88, own[0], own[1], 0, 0}, enosys},
		{"io_setup", unix.SYS_IO_SETUP, nil, enosys},
		{"setsockopt", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_REUSEADDR}, retAllow},
		{"option 26 of another level", unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_TCP, 26}, retAllow},
		{"filter of a socket", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER}, eperm},
		{"filter with high bits", unix.SYS_SETSOCKOPT, []uint64{3, 1<<40 | unix.SOL_SOCKET, 1<<40 | unix.SO_ATTACH_FILTER}, eperm},
		{"BPF of a socket", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_ATTACH_BPF}, eperm},
		{"filter of a port", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF}, eperm},
		{"BPF of a port", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_EBPF}, eperm},
		{"lock of a filter", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_LOCK_FILTER}, eperm},
		{"when packets were sent", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_TIMESTAMPING}, eperm},
		{"when packets were sent, in 64 bits", unix.SYS_SETSOCKOPT, []uint64{3, 1<<40 | unix.SOL_SOCKET, 1<<40 | unix.SO_TIMESTAMPING_NEW}, eperm},
		{"when packets came", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS}, retAllow},
		{"what a socket keeps", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_RCVBUF}, retErrno},
		{"what a socket keeps, with high bits", unix.SYS_SETSOCKOPT, []uint64{3, 1<<40 | unix.SOL_SOCKET, 1<<40 | unix.SO_RCVBUF}, retErrno},
		{"what a socket sends", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_SNDBUF}, retAllow},
		{"option 8 of another level", unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_TCP, unix.SO_RCVBUF}, retAllow},
		{"errors with their packets", unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_IP, unix.IP_RECVERR}, retErrno},
		{"errors of IPv6, with high bits", unix.SYS_SETSOCKOPT, []uint64{3, 1<<40 | unix.IPPROTO_IPV6, 1<<40 | unix.IPV6_RECVERR}, retErrno},
		{"option 11 of another level", unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_TCP, unix.IP_RECVERR}, retAllow},
		{"another of IP", unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_IP, unix.IP_TTL}, retAllow},
		{"short answers", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK}, retErrno},
		{"short answers, with high bits", unix.SYS_SETSOCKOPT, []uint64{3, 1<<40 | unix.SOL_NETLINK, 1<<40 | unix.NETLINK_CAP_ACK}, retErrno},
		{"groups of netlink", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP}, retAllow},
		{"routes", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, 0}, retAsk},
		{"routes with high bits", unix.SYS_SOCKET, []uint64{1<<40 | unix.AF_NETLINK, unix.SOCK_RAW, 1 << 40}, retAsk},
		{"messages between users", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_USERSOCK}, noProtocol},
		{"audit log with high bits", unix.SYS_SOCKET, []uint64{1<<40 | unix.AF_NETLINK, unix.SOCK_RAW, 1<<40 | unix.NETLINK_AUDIT}, noProtocol},
		{"TCP by its protocol", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP}, retAllow},
		{"filter by seccomp", unix.SYS_SECCOMP, []uint64{secModeFilter}, einval},
		{"filter by seccomp with high bits", unix.SYS_SECCOMP, []uint64{1<<40 | secModeFilter}, einval},
		{"actions of seccomp", unix.SYS_SECCOMP, []uint64{2}, retAllow},
		{"filter by prctl", unix.SYS_PRCTL, []uint64{unix.PR_SET_SECCOMP, 2}, einval},
		{"name by prctl", unix.SYS_PRCTL, []uint64{unix.PR_SET_NAME}, retAllow},
		{"io_uring", unix.SYS_IO_URING_SETUP, nil, enosys},
		{"unshare", unix.SYS_UNSHARE, nil, eperm},
		{"keyctl", unix.SYS_KEYCTL, nil, eperm},
		{"fork", unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, retAllow},
		{"thread", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD}, retAllow},
		{"clone user", unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER}, eperm},
		{"clone net with high bits", unix.SYS_CLONE, []uint64{1<<40 | unix.CLONE_NEWNET}, eperm},
		{"fchmod", unix.SYS_FCHMOD, []uint64{3, 0o755}, retAllow},
		{"fchmod sticky", unix.SYS_FCHMOD, []uint64{3, 0o1755}, retAllow},
		{"fchmod suid", unix.SYS_FCHMOD, []uint64{3, 0o4755}, eperm},
		{"fchmodat sgid", unix.SYS_FCHMODAT, []uint64{3, 0, 0o2755}, eperm},
		{"fchmodat2 suid", sysFchmodat2, []uint64{3, 0, 0o4000}, eperm},
		{"openat", unix.SYS_OPENAT, []uint64{3, 0, unix.O_CREAT, 0o666}, retAllow},
		{"openat garbage mode", unix.SYS_OPENAT, []uint64{3, 0, unix.O_RDONLY, 0o7777}, retAllow},
		{"openat directory garbage", unix.SYS_OPENAT, []uint64{3, 0, unix.O_DIRECTORY, 0o7777}, retAllow},
		{"openat suid", unix.SYS_OPENAT, []uint64{3, 0, unix.O_CREAT, 0o4755}, eperm},
		{"tmpfile suid", unix.SYS_OPENAT, []uint64{3, 0, unix.O_TMPFILE, 0o2755}, eperm},
		{"mkdirat sgid", unix.SYS_MKDIRAT, []uint64{3, 0, 0o2755}, eperm},
		{"mknodat suid", unix.SYS_MKNODAT, []uint64{3, 0, 0o104755}, eperm},
		{"ioctl", unix.SYS_IOCTL, []uint64{0, unix.TCGETS}, retAllow},
		{"TIOCSTI", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, eperm},
		{"TIOCSTI with high bits", unix.SYS_IOCTL, []uint64{0, 1<<32 | unix.TIOCSTI}, eperm},
		{"TIOCLINUX", unix.SYS_IOCTL, []uint64{0, tiocLinux}, eperm},
		{"fcntl", unix.SYS_FCNTL, []uint64{3, unix.F_GETFL}, retAllow},
		{"lock", unix.SYS_FCNTL, []uint64{3, unix.F_OFD_SETLK}, retAllow},
		{"lease", unix.SYS_FCNTL, []uint64{3, unix.F_SETLEASE}, eperm},
		{"lease with high bits", unix.SYS_FCNTL, []uint64{3, 1<<40 | unix.F_SETLEASE}, eperm},
		{"delegation", unix.SYS_FCNTL, []uint64{3, 1040}, eperm},
		{"limit of core files", unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_CORE, 0x7fff00000000}, retErrno},
		{"limit of core files, old call", unix.SYS_SETRLIMIT, []uint64{unix.RLIMIT_CORE, 0x1000}, retErrno},
		{"limit of core files, and what it was", unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_CORE, 0x1000, 0x2000}, eperm},
		{"and what it was, far up", unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_CORE, 0x1000, 0x7fff00000000}, eperm},
		{"the old call has no third argument", unix.SYS_SETRLIMIT, []uint64{unix.RLIMIT_CORE, 0x1000, 0x2000}, retErrno},
		{"another limit, and what it was", unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_NOFILE, 0x1000, 0x2000}, retAllow},
		{"read the limit of core files", unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_CORE, 0, 0x1000}, retAllow},
		{"another limit", unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_NOFILE, 0x1000}, retAllow},
		{"skipped by a tracer", 0xffffffff, nil, enosys},
	} {
		if got := eval(auditArch, tc.nr, tc.args...); got != tc.want {
			t.Errorf("%s: %#x, want %#x", tc.name, got, tc.want)
		}
	}
	special := make(map[uint32]bool)
	for _, r := range rules(variant{own: own, gated: true}) {
		if special[r.nr] {
			t.Errorf("two rules for system call %d", r.nr)
		}
		special[r.nr] = true
	}
	for nr := range uint32(1000) {
		all := ^uint64(0)
		got := eval(auditArch, nr, all, all, all, all)
		byValue := []uint32{unix.SYS_IOCTL, unix.SYS_FCNTL, unix.SYS_SETSOCKOPT, unix.SYS_SECCOMP, unix.SYS_PRCTL, unix.SYS_PRLIMIT64, unix.SYS_SETRLIMIT, unix.SYS_SOCKET}
		if plain := got == retAllow; plain == special[nr] && !slices.Contains(byValue, nr) {
			t.Errorf("system call %d with all bits set: %#x", nr, got)
		}
	}
	if got := eval(unix.AUDIT_ARCH_I386, unix.SYS_READ); got != retKill {
		t.Errorf("foreign architecture: %#x", got)
	}
	if foreignNR != 0 {
		if got := eval(auditArch, foreignNR|1); got != retKill {
			t.Errorf("foreign numbers: %#x", got)
		}
	}
}
