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
	"ioctl", "socket", "socketpair", "setsockopt", "clone3", "io_setup",
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
	// What it takes is counted for the whole host. Programs do without it where
	// the kernel has none.
	absent := uint(unix.ENOSYS)
	rules = append(rules, specs.LinuxSyscall{Names: []string{"io_setup"}, Action: specs.ActErrno, ErrnoRet: &absent})
	p.Syscalls = append(rules, argumentRules()...)
	return p, nil
}

// argumentRules allow system calls for some arguments only.
func argumentRules() []specs.LinuxSyscall {
	// The agent clones each call straight into its cgroup, which is clone3's
	// alone; it refuses clone3 to the tools in a filter of its own, because no
	// filter can look at clone3's flags.
	rules := []specs.LinuxSyscall{allow("clone3")}
	for _, family := range []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6} {
		rules = append(rules, allow("socket", masked(0, 0xffffffff, family)))
	}
	// Programs ask for the addresses of the host by netlink. Its other protocols are
	// parts of the kernel that they have no business with, and some let them send to
	// each other what no limit on memory counts.
	rules = append(rules, allow("socket", masked(0, 0xffffffff, unix.AF_NETLINK), masked(2, 0xffffffff, unix.NETLINK_ROUTE)))
	rules = append(rules, allow("socketpair", masked(0, 0xffffffff, unix.AF_UNIX)))
	rules = append(rules, ioctlRules()...)
	rules = append(rules, setsockoptRules()...)
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
// the terminal of another.
func ioctlRules() []specs.LinuxSyscall {
	var rules []specs.LinuxSyscall
	for _, request := range allBut(32, unix.TIOCSTI, unix.TIOCLINUX) {
		rules = append(rules, allow("ioctl", request.of(1)))
	}
	return rules
}

// setsockoptRules refuse to attach a filter to a socket, or to lock one there. The
// kernel frees filters in work items that wait for each other, and thousands of
// them at once stop it. They also refuse the option by which the kernel keeps in the
// socket when each packet was sent, which is counted for nobody. Linux has no option of a socket above the bits that are
// looked at.
func setsockoptRules() []specs.LinuxSyscall {
	var rules []specs.LinuxSyscall
	for _, level := range allBut(32, unix.SOL_SOCKET) {
		rules = append(rules, allow("setsockopt", level.of(1)))
	}
	const optionBits = 7
	for _, option := range allBut(optionBits, unix.SO_ATTACH_FILTER, unix.SO_LOCK_FILTER,
		unix.SO_ATTACH_BPF, unix.SO_ATTACH_REUSEPORT_CBPF, unix.SO_ATTACH_REUSEPORT_EBPF,
		unix.SO_TIMESTAMPING, unix.SO_TIMESTAMPING_NEW) {
		rules = append(rules, allow("setsockopt", masked(1, 0xffffffff, unix.SOL_SOCKET), option.of(2)))
	}
	return rules
}

// pattern is the numbers that are value under mask.
type pattern struct{ mask, value uint64 }

// of is true when argument index is one of the pattern's numbers.
func (p pattern) of(index uint) specs.LinuxSeccompArg { return masked(index, p.mask, p.value) }

// allBut are patterns that together are all numbers of so many bits but refused.
// The kernel takes the lower 32 bits of such an argument. A filter that compares
// all 64 is passed by setting an upper one, and comparing under a mask knows only
// "equal".
func allBut(bits int, refused ...uint64) []pattern {
	return split(pattern{mask: 1<<32 - 1<<bits}, bits, refused)
}

// split divides p by its bits below the given one until no part has a refused number.
func split(p pattern, bit int, refused []uint64) []pattern {
	if !slices.ContainsFunc(refused, func(v uint64) bool { return v&p.mask == p.value }) {
		return []pattern{p}
	}
	if bit == 0 {
		return nil
	}
	bit--
	p.mask |= 1 << bit
	return append(split(p, bit, refused), split(pattern{p.mask, p.value | 1<<bit}, bit, refused)...)
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
