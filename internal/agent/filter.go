package agent

import (
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
//   - system calls of another architecture end the process.

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

// program assembles BPF.
type program []unix.SockFilter

func (p *program) add(code uint16, k uint32, yes, no uint8) {
	*p = append(*p, unix.SockFilter{Code: code, K: k, Jt: yes, Jf: no})
}

func (p *program) load(offset uint32) { p.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset, 0, 0) }
func (p *program) ret(k uint32)       { p.add(unix.BPF_RET|unix.BPF_K, k, 0, 0) }

// jump goes on with the next instruction when A op k holds, else skips n.
func (p *program) unlessSkip(op uint16, k uint32, n uint8) {
	p.add(unix.BPF_JMP|op|unix.BPF_K, k, 0, n)
}

func (p *program) arg(i int) { p.load(dataArgs + 8*uint32(i)) }

// refuse answers system call nr with an error.
func (p *program) refuse(nr uint32, errno uint32) {
	p.unlessSkip(unix.BPF_JEQ, nr, 1)
	p.ret(retErrno | errno)
}

// refuseBits answers nr with EPERM when argument i has one of bits.
func (p *program) refuseBits(nr uint32, i int, bits uint32) {
	p.unlessSkip(unix.BPF_JEQ, nr, 4)
	p.arg(i)
	p.unlessSkip(unix.BPF_JSET, bits, 1)
	p.ret(retErrno | uint32(unix.EPERM))
	p.ret(retAllow)
}

// refuseValue answers nr with EPERM when argument i is one of values.
func (p *program) refuseValue(nr uint32, i int, values ...uint32) {
	p.unlessSkip(unix.BPF_JEQ, nr, uint8(2+2*len(values)))
	p.arg(i)
	for _, v := range values {
		p.unlessSkip(unix.BPF_JEQ, v, 1)
		p.ret(retErrno | uint32(unix.EPERM))
	}
	p.ret(retAllow)
}

// refuseMode answers c with EPERM when it would make set-id bits.
func (p *program) refuseMode(c modeCall) {
	if c.flags < 0 {
		p.refuseBits(c.nr, c.mode, setIDBits)
		return
	}
	p.unlessSkip(unix.BPF_JEQ, c.nr, 6)
	p.arg(c.flags)
	p.unlessSkip(unix.BPF_JSET, uint32(makesFile), 3)
	p.arg(c.mode)
	p.unlessSkip(unix.BPF_JSET, setIDBits, 1)
	p.ret(retErrno | uint32(unix.EPERM))
	p.ret(retAllow)
}

// toolFilter is the filter for this architecture.
func toolFilter() []unix.SockFilter {
	var p program
	p.load(dataArch)
	p.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, auditArch, 1, 0)
	p.ret(retKill)
	p.load(dataNR)
	if foreignNR != 0 {
		p.unlessSkip(unix.BPF_JGE, foreignNR, 1)
		p.ret(retKill)
	}
	for _, nr := range []uint32{
		unix.SYS_CLONE3, unix.SYS_OPENAT2,
		unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	} {
		p.refuse(nr, uint32(unix.ENOSYS))
	}
	for _, nr := range []uint32{
		unix.SYS_UNSHARE, unix.SYS_SETNS,
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
		unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_MOUNT_SETATTR,
		unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
		unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	} {
		p.refuse(nr, uint32(unix.EPERM))
	}
	p.refuseBits(unix.SYS_CLONE, 0, newSpaces)
	p.refuseValue(unix.SYS_IOCTL, 1, unix.TIOCSTI, tiocLinux)
	for _, c := range modeCalls() {
		p.refuseMode(c)
	}
	p.ret(retAllow)
	return p
}

const (
	tiocLinux     = 0x541c
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
