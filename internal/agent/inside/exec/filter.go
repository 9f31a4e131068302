package exec

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The second seccomp filter. The first is the runtime's and holds for the agent
// too; this one is for tools alone. It is loaded once, on the fork thread, and
// every program inherits it: a call costs no filter, and the end of a session
// frees one, however many programs it has run. (Linux frees filters in work
// items that wait for each other; thousands at once stop it.)
//
//   - set-user-id and set-group-id bits cannot be made. Files in the worktree
//     belong, on the host, to the worktree's owner: such a file would be a
//     program that runs as its owner for everybody on the host.
//   - system calls whose flags stand in memory, where a filter cannot look, do
//     not exist: clone3 (namespaces), openat2 (mode bits), io_uring. The agent's
//     child needs the first two before its exec; they pass with a secret.
//   - a tool loads no filter of its own, for a socket or for itself: it could
//     make the kernel free thousands of them. io_setup does not exist: what it
//     takes is counted for the whole host.
//   - of netlink there is what tells the addresses of the host, and no more: what
//     its sockets take is counted for no session. The gate makes these sockets.
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

// secret lets the agent's own clone3 and openat2 through the filter, as the fifth
// and sixth argument, which neither call has and the kernel does not look at. A program cannot guess it, and cannot read it: neither the filter nor
// the memory and registers of the agent and of its child, which shares that memory
// until its exec.
type secret [2]uint64

// newSecret makes one that nothing else has.
func newSecret() (s secret, err error) {
	var b [16]byte
	if _, err := unix.Getrandom(b[:], 0); err != nil {
		return s, fmt.Errorf("make the filter's secret: %w", err)
	}
	return secret{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}, nil
}

// only answers ENOSYS when the last two arguments are not s.
func (s secret) only() program {
	words := [4]uint32{uint32(s[0]), uint32(s[0] >> 32), uint32(s[1]), uint32(s[1] >> 32)}
	var list program
	for i, w := range words {
		list = append(list, load(dataArgs+8*secretArg+4*uint32(i)),
			insn(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, w, 1, 0), refuse(unix.ENOSYS))
	}
	return append(list, ret(retAllow))
}

// refuseSocketOptions answers EPERM to setsockopt calls that attach a filter to a
// socket, or lock one there, or have the kernel keep there when each packet was sent.
// It lets a program believe that it has netlink answer with all that was asked, that the
// kernel keeps errors with the packets that they are about, which counts for nobody, and
// unless sizes are allowed, that a socket keeps more of what it receives: no filter can
// see which socket that is.
func refuseSocketOptions(sizes bool) program {
	options := refuseValues(2, unix.SO_ATTACH_FILTER, unix.SO_LOCK_FILTER,
		unix.SO_ATTACH_BPF, unix.SO_ATTACH_REUSEPORT_CBPF, unix.SO_ATTACH_REUSEPORT_EBPF,
		unix.SO_TIMESTAMPING, unix.SO_TIMESTAMPING_NEW)
	if !sizes {
		options = append(program{loadArg(2), unless(unix.BPF_JEQ, unix.SO_RCVBUF, 1), refuse(0)}, options...)
	}
	levels := []struct {
		level uint32
		then  program
	}{
		{unix.SOL_NETLINK, refuseWith(0, 2, unix.NETLINK_CAP_ACK)},
		{unix.IPPROTO_IP, refuseWith(0, 2, unix.IP_RECVERR)},
		{unix.IPPROTO_IPV6, refuseWith(0, 2, unix.IPV6_RECVERR)},
		{unix.SOL_SOCKET, options},
	}
	p := program{loadArg(1)}
	for _, l := range levels {
		p = append(append(p, unless(unix.BPF_JEQ, l.level, len(l.then))), l.then...)
	}
	return append(p, ret(retAllow))
}

// refuseWith answers errno when argument i is value.
func refuseWith(errno syscall.Errno, i int, value uint32) program {
	return program{loadArg(i), unless(unix.BPF_JEQ, value, 1), refuse(errno), ret(retAllow)}
}

// onlyRoutes answers EPROTONOSUPPORT to netlink sockets of another protocol than 0, as a kernel
// without that does: programs that write to the kernel's audit log go on without it then. routes is
// the answer to those of protocol 0.
func onlyRoutes(routes uint32) program {
	return program{
		loadArg(0), insn(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, unix.AF_NETLINK, 1, 0), ret(retAllow),
		loadArg(2), insn(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, unix.NETLINK_ROUTE, 1, 0), refuse(unix.EPROTONOSUPPORT),
		ret(routes),
	}
}

// whenNull goes on with then when argument i is a null pointer, else with other. Both return.
func whenNull(i int, then, other program) program {
	p := program{
		loadArg(i), unless(unix.BPF_JEQ, 0, 2+len(then)),
		load(dataArgs + 8*uint32(i) + 4), unless(unix.BPF_JEQ, 0, len(then)),
	}
	return append(append(p, then...), other...)
}

// keepCoreLimit lets a program believe that it has set its limit for core files, argument i being
// the resource and the next one the new limit: many set 0, and end where they cannot. Where the
// argument after that is what the limit was, which a filter cannot write, it is refused instead.
func keepCoreLimit(i int, tells bool) program {
	set := program{refuse(0)}
	if tells {
		set = whenNull(i+2, set, program{refuse(unix.EPERM)})
	}
	p := whenNull(i+1, program{ret(retAllow)}, set)
	return append(append(program{loadArg(i), unless(unix.BPF_JEQ, unix.RLIMIT_CORE, len(p))}, p...), ret(retAllow))
}

// variant is what differs between filters.
type variant struct {
	own   secret // passes
	gated bool   // a gate makes netlink sockets
	sizes bool   // programs choose how much a socket keeps
}

// rules are all system calls that are not simply allowed.
func rules(v variant) []rule {
	own, routes := v.own, uint32(retAllow)
	if v.gated {
		routes = retAsk
	}
	list := []rule{
		{unix.SYS_CLONE3, own.only()},
		{unix.SYS_OPENAT2, own.only()},
		{unix.SYS_SETSOCKOPT, refuseSocketOptions(v.sizes)},
		{unix.SYS_SOCKET, onlyRoutes(routes)},
		{unix.SYS_PRLIMIT64, keepCoreLimit(1, true)},
		{unix.SYS_SETRLIMIT, keepCoreLimit(0, false)},
		// EINVAL is what a kernel without filters says, which programs that
		// would like one know.
		{unix.SYS_SECCOMP, refuseWith(unix.EINVAL, 0, secModeFilter)},
		{unix.SYS_PRCTL, refuseWith(unix.EINVAL, 0, unix.PR_SET_SECCOMP)},
	}
	for _, nr := range []uint32{
		unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_IO_SETUP,
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

// search finds the rule for the number in A by halving: the kernel runs it for
// every system call of a program that has a rule, and when the filter is loaded,
// for every one that there is.
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
func toolFilter(v variant) []unix.SockFilter {
	p := program{load(dataArch), insn(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, auditArch, 1, 0), ret(retKill), load(dataNR)}
	p = append(p, unless(unix.BPF_JEQ, skippedNR, 1), refuse(unix.ENOSYS))
	if foreignNR != 0 {
		p = append(p, unless(unix.BPF_JGE, foreignNR, 1), ret(retKill))
	}
	return append(p, search(rules(v))...)
}

// loadFilters puts the calling thread, and all that it starts from then on, under the filter of
// programs, which lets own pass. The gate is nil where there can be none: gVisor has none, and
// needs none; elsewhere a note says so.
func loadFilters(own secret) (*gate, string, error) {
	listener, err := loadFilter(variant{own: own, gated: true, sizes: !largeBuffers()})
	if err == nil {
		return newGate(listener), "", nil
	}
	note := ""
	if errors.Is(err, unix.EBUSY) {
		note = "another program's filter of system calls is around this sandbox: its netlink sockets have no limit on their number, and are bounded late"
	}
	_, err = loadFilter(variant{own: own, sizes: true})
	return nil, note, err
}

// loadFilter loads a filter and gives the descriptor of its gate, if it has one.
func loadFilter(v variant) (listener int, err error) {
	list := toolFilter(v)
	prog := unix.SockFprog{Len: uint16(len(list)), Filter: &list[0]}
	// What a filter without privileges wants, and what every program has.
	if _, _, e := unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
		return -1, fmt.Errorf("set no_new_privs: %w", e)
	}
	flags := uintptr(0)
	if v.gated {
		flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	}
	fd, _, e := unix.RawSyscall(unix.SYS_SECCOMP, secModeFilter, flags, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(list)
	if e != 0 {
		return -1, fmt.Errorf("load the seccomp filter: %w", e)
	}
	return int(fd), nil
}

const (
	tiocLinux     = 0x541c
	fSetDeleg     = 1024 + 16 // F_SETDELEG, Linux 6.19
	skippedNR     = 0xffffffff
	sysFchmodat2  = 452
	noFlags       = -1
	secModeFilter = 0x1 // SECCOMP_SET_MODE_FILTER
	openFlagsArg  = 1
	openatFlagArg = 2
	secretArg     = 4 // of the system call, and the one after it
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
