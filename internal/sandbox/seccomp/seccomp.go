// Package seccomp is the filter of every process in a sandbox, for the runtimes that
// install one.
package seccomp

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// alwaysRefused are system calls that no process of a sandbox gets, whatever the
// profile below says about them on some kernel or with some capability.
var alwaysRefused = []string{
	"add_key", "keyctl", "request_key",
	"bpf", "perf_event_open", "userfaultfd",
	"io_uring_setup", "io_uring_enter", "io_uring_register",
	"mount", "umount", "umount2", "pivot_root", "fsopen", "fsconfig", "fsmount", "fspick",
	"open_tree", "open_tree_attr", "move_mount", "mount_setattr",
	"setns", "unshare", "chroot",
	"kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module",
	"open_by_handle_at", "name_to_handle_at", "quotactl", "quotactl_fd", "acct",
	"swapon", "swapoff", "reboot", "syslog", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex",
	"stime", "iopl", "ioperm", "fanotify_init", "lookup_dcookie", "vhangup",
	"sethostname", "setdomainname", "socketcall",
}

// replaced are system calls whose rules of the profile give way to those of
// argumentRules.
var replaced = []string{
	"ioctl", "socket", "socketpair", "clone3",
	"chmod", "fchmod", "fchmodat", "fchmodat2", "creat", "open", "openat", "mknod", "mknodat",
}

// Profile renders Moby's default profile for a process without
// capabilities on the native architecture alone, then narrows it.
func Profile() (*specs.LinuxSeccomp, error) {
	none := &specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}}
	p, err := seccomp.GetDefaultProfile(none)
	if err != nil {
		return nil, fmt.Errorf("render seccomp profile: %w", err)
	}
	if len(p.Architectures) == 0 {
		return nil, fmt.Errorf("render seccomp profile: no filter is known for this architecture")
	}
	// The first is the native one. The others (32-bit, x32) reach system calls by
	// other numbers and, with socketcall, past the rules for socket.
	p.Architectures = p.Architectures[:1]
	errno := uint(unix.EPERM)
	p.DefaultAction, p.DefaultErrnoRet = specs.ActErrno, &errno
	drop := slices.Concat(alwaysRefused, replaced)
	var rules []specs.LinuxSyscall
	for _, r := range p.Syscalls {
		r.Names = slices.DeleteFunc(slices.Clone(r.Names), func(n string) bool { return slices.Contains(drop, n) })
		if len(r.Names) > 0 && r.Action == specs.ActAllow {
			rules = append(rules, r)
		}
	}
	p.Syscalls = append(rules, argumentRules()...)
	return p, nil
}

// argumentRules allow system calls for some arguments only.
func argumentRules() []specs.LinuxSyscall {
	// The agent clones each call straight into its cgroup, which is clone3's
	// alone; it refuses clone3 to the tools in a filter of its own, because no
	// filter can look at clone3's flags.
	rules := []specs.LinuxSyscall{allow("clone3")}
	for _, family := range []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK} {
		rules = append(rules, allow("socket", masked(0, 0xffffffff, family)))
	}
	rules = append(rules, allow("socketpair", masked(0, 0xffffffff, unix.AF_UNIX)))
	rules = append(rules, ioctlRules()...)
	return append(rules, setidRules()...)
}

// FIFOs and sockets are files like others; devices would need a capability, and
// are refused here a second time.
var plainNodes = []uint64{0, unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK}

// setidRules refuse to make a file setuid or setgid. Inside that would mean
// nothing, but a bind-mounted worktree is a directory of the host, where such a
// file would run with the ids of the worktree's owner.
func setidRules() []specs.LinuxSyscall {
	const setid = unix.S_ISUID | unix.S_ISGID
	rules := []specs.LinuxSyscall{
		allow("chmod", masked(1, setid, 0)),
		allow("fchmod", masked(1, setid, 0)),
		allow("fchmodat", masked(2, setid, 0)),
		allow("fchmodat2", masked(2, setid, 0)),
		allow("creat", masked(1, setid, 0)),
	}
	// The mode of an open that creates nothing may be anything.
	const creates = unix.O_CREAT | (unix.O_TMPFILE &^ unix.O_DIRECTORY)
	for name, flags := range map[string]uint{"open": 1, "openat": 2} {
		rules = append(rules,
			allow(name, masked(flags, creates, 0)),
			allow(name, masked(flags+1, setid, 0)))
	}
	for name, mode := range map[string]uint{"mknod": 1, "mknodat": 2} {
		for _, kind := range plainNodes {
			rules = append(rules, allow(name, masked(mode, unix.S_IFMT|setid, kind)))
		}
	}
	return rules
}

// ioctlRules allow all requests but TIOCSTI and TIOCLINUX, which put input into
// the terminal of another. The kernel takes the lower 32 bits of a request, and
// a filter that compares all 64 is passed by setting an upper one; comparing
// under a mask knows only "equal", so the allowed rest is put together from the
// ways in which a request can differ: in a bit outside the three in which the
// two refused ones differ, or in the pattern of those three.
func ioctlRules() []specs.LinuxSyscall {
	const differ = unix.TIOCSTI ^ unix.TIOCLINUX // 0xe
	var rules []specs.LinuxSyscall
	for bit := uint64(1); bit < 1<<32; bit <<= 1 {
		if bit&differ == 0 {
			rules = append(rules, allow("ioctl", masked(1, bit, ^uint64(unix.TIOCSTI)&bit)))
		}
	}
	for pattern := uint64(0); pattern <= differ; pattern += 2 {
		if pattern != unix.TIOCSTI&differ && pattern != unix.TIOCLINUX&differ {
			rules = append(rules, allow("ioctl", masked(1, differ, pattern)))
		}
	}
	return rules
}

func allow(name string, args ...specs.LinuxSeccompArg) specs.LinuxSyscall {
	return specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow, Args: args}
}

// masked is true when argument index, under mask, is value.
func masked(index uint, mask, value uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Value: mask, ValueTwo: value, Op: specs.OpMaskedEqual}
}

// JSON is Profile in the form that a Docker Engine takes.
func JSON() (string, error) {
	p, err := Profile()
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(p)
	return string(data), err
}
