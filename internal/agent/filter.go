package agent

import (
	"cmp"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// The second seccomp filter. The first is the runtime's and holds for the agent
// too; this one is for tools alone and is put on between fork and exec.
//
//   - set-user-id and set-group-id bits cannot be made. Files in the worktree
//     belong, on the host, to the worktree's owner: such a file would be a
//     program that runs as its owner for everybody on the host.
//   - system calls whose flags stand in memory, where a filter cannot look, do
//     not exist: clone3 (namespaces), openat2 (mode bits), io_uring.
//   - what has no business in a tool is refused even if the first filter was
//     weakened: mounts, namespaces, kernel interfaces, typing into a terminal.
//   - leases and delegations cannot be taken: whoever opens the file, an editor
//     on the host or the daemon, would wait for the tool to let go of it.
//   - system calls of another architecture end the process. The number -1 is no
//     system call but what a tracer sets to skip one; it fails like any that
//     does not exist.

const (
	setIDBits = unix.S_ISUID | unix.S_ISGID
	newSpaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	makesFile = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY

	retAllow = 0x7fff0000
	retErrno = 0x00050000
	retKill  = 0x80000000

	// Offsets into struct seccomp_data; both architectures are little-endian,
	// so that the low half of an argument comes first.
	dataNR   = 0
	dataArch = 4
	dataArgs = 16
)

// modeCall is a system call that can make mode bits: mode stands in argument
// mode; where flags ≥ 0, only if argument flags has a bit of makesFile.
type modeCall struct {
	nr          uint32
	mode, flags int
}

// program is BPF; its parts are written so that they can be put one after the
// other.
type program []unix.SockFilter

func insn(code uint16, k uint32, yes, no int) unix.SockFilter {
	return unix.SockFilter{Code: code, K: k, Jt: uint8(yes), Jf: uint8(no)}
}

func load(offset uint32) unix.SockFilter {
	return insn(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset, 0, 0)
}

func loadArg(i int) unix.SockFilter { return load(dataArgs + 8*uint32(i)) }

func ret(k uint32) unix.SockFilter { return insn(unix.BPF_RET|unix.BPF_K, k, 0, 0) }

// unless goes on with the next instruction when A op k holds, else it skips n.
func unless(op uint16, k uint32, n int) unix.SockFilter {
	return insn(unix.BPF_JMP|op|unix.BPF_K, k, 0, n)
}

func refuse(errno syscall.Errno) unix.SockFilter { return ret(retErrno | uint32(errno)) }

// rule is what happens to one system call; its program always returns.
type rule struct {
	nr   uint32
	then program
}

// refuseBits answers EPERM when argument i has one of bits.
func refuseBits(i int, bits uint32) program {
	return program{loadArg(i), unless(unix.BPF_JSET, bits, 1), refuse(unix.EPERM), ret(retAllow)}
}

// refuseValues answers EPERM when argument i is one of values.
func refuseValues(i int, values ...uint32) program {
	p := program{loadArg(i)}
	for _, v := range values {
		p = append(p, unless(unix.BPF_JEQ, v, 1), refuse(unix.EPERM))
	}
	return append(p, ret(retAllow))
}

// refuseMode answers EPERM when c would make set-id bits.
func refuseMode(c modeCall) program {
	bits := refuseBits(c.mode, setIDBits)
	if c.flags < 0 {
		return bits
	}
	return append(program{loadArg(c.flags), unless(unix.BPF_JSET, uint32(makesFile), len(bits)-1)}, bits...)
}

// rules are all system calls that are not simply allowed.
func rules() []rule {
	var list []rule
	for _, nr := range []uint32{
		unix.SYS_CLONE3, unix.SYS_OPENAT2,
		unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	} {
		list = append(list, rule{nr, program{refuse(unix.ENOSYS)}})
	}
	for _, nr := range []uint32{
		unix.SYS_UNSHARE, unix.SYS_SETNS,
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
		unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_MOUNT_SETATTR,
		unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
		unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	} {
		list = append(list, rule{nr, program{refuse(unix.EPERM)}})
	}
	list = append(list,
		rule{unix.SYS_CLONE, refuseBits(0, newSpaces)},
		rule{unix.SYS_IOCTL, refuseValues(1, unix.TIOCSTI, tiocLinux)},
		rule{unix.SYS_FCNTL, refuseValues(1, unix.F_SETLEASE, fSetDeleg)})
	for _, c := range modeCalls() {
		list = append(list, rule{c.nr, refuseMode(c)})
	}
	slices.SortFunc(list, func(a, b rule) int { return cmp.Compare(a.nr, b.nr) })
	return list
}

// search finds the rule for the number in A by halving. When a filter is put on,
// the kernel tries it for every system call that there is, which is on the path
// of each call: a list took 150 µs more.
func search(list []rule) program {
	if len(list) == 1 {
		r := list[0]
		p := append(program{unless(unix.BPF_JEQ, r.nr, len(r.then))}, r.then...)
		return append(p, ret(retAllow))
	}
	mid := len(list) / 2
	low, high := search(list[:mid]), search(list[mid:])
	p := program{
		unless(unix.BPF_JGE, list[mid].nr, 1),
		insn(unix.BPF_JMP|unix.BPF_JA, uint32(len(low)), 0, 0), // conditional jumps reach 255
	}
	return append(append(p, low...), high...)
}

// toolFilter is the filter for this architecture.
func toolFilter() []unix.SockFilter {
	p := program{load(dataArch), insn(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, auditArch, 1, 0), ret(retKill), load(dataNR)}
	p = append(p, unless(unix.BPF_JEQ, skippedNR, 1), refuse(unix.ENOSYS))
	if foreignNR != 0 {
		p = append(p, unless(unix.BPF_JGE, foreignNR, 1), ret(retKill))
	}
	return append(p, search(rules())...)
}

const (
	tiocLinux     = 0x541c
	fSetDeleg     = 1024 + 16 // F_SETDELEG, Linux 6.19
	skippedNR     = 0xffffffff
	sysFchmodat2  = 452
	noFlags       = -1
	openFlagsArg  = 1
	openatFlagArg = 2
)

func modeCalls() []modeCall {
	return append(archModeCalls(),
		modeCall{unix.SYS_OPENAT, 3, openatFlagArg},
		modeCall{unix.SYS_FCHMOD, 1, noFlags},
		modeCall{unix.SYS_FCHMODAT, 2, noFlags},
		modeCall{sysFchmodat2, 2, noFlags},
		modeCall{unix.SYS_MKDIRAT, 2, noFlags},
		modeCall{unix.SYS_MKNODAT, 2, noFlags},
	)
}
