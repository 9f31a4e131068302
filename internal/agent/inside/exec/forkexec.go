package exec

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// step is the part of starting a program that failed.
type step uint32

const (
	stepNone step = iota
	stepFork
	stepSession
	stepLimit
	stepGroups
	stepGID
	stepUID
	stepDumpable
	stepDir
	stepStdio
	stepClose
	stepLandlock
	stepExec
)

func (s step) String() string {
	return [...]string{
		"none", "fork", "setsid", "set limits", "drop groups", "set gid", "set uid",
		"dumpable", "change directory", "set up stdio", "close descriptors", "landlock", "execute",
	}[s]
}

// childPlan is all that the child needs between fork and exec, laid out before,
// because the child may neither allocate nor call anything that grows the stack.
// The child shares the parent's memory until it has executed, so it reports a
// failure by writing failed and errno here.
type childPlan struct {
	clone *cloneArgs // nil: clone without a cgroup

	argv, envp **byte
	paths      **byte // candidates for the program, null-terminated
	dir        *byte
	how        unix.OpenHow // for dir

	stdio      [3]int
	script     int     // becomes scriptFD, -1: none
	uid, gid   int     // -1: keep
	tag        uint32  // the only additional group, if
	tags       uintptr // is 1; else there is none
	limits     []limit
	ignored    []uintptr // signals to set back to their default
	defaultAct sigaction
	noMask     uint64

	landlock int        // ruleset, -1: none
	secret   [2]uintptr // lets clone3 and openat2 through the filter

	failed step
	errno  syscall.Errno
}

type limit struct {
	resource uintptr
	value    unix.Rlimit
}

// cloneArgs is the kernel's struct clone_args.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal,
	stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// sigaction is the kernel's struct for rt_sigaction; all zero is the default.
type sigaction struct {
	handler, flags, restorer, mask uint64
}

const (
	vforkFlags        = unix.CLONE_VM | unix.CLONE_VFORK
	cloneClearSighand = 0x100000000
	cloneIntoCgroup   = 0x200000000
	closeRangeCloser  = 0x4 // CLOSE_RANGE_CLOEXEC
)

// The hooks that package syscall itself uses around a fork: signals are blocked
// from the first to the second, and the third takes the runtime's handlers from
// the child.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// The runtime's own marks of a system call. Between them the thread does not
// count as one that runs Go: a child that hangs before its exec stops this
// thread, but neither the collector nor any other goroutine.

//go:linkname enterSyscall runtime.entersyscall
func enterSyscall()

//go:linkname exitSyscall runtime.exitsyscall
func exitSyscall()

//go:noescape
func vforkCall(trap, a1, a2, a5, a6 uintptr) (pid, errno uintptr)

// forkExec starts the program of p and returns when it executes or has failed;
// then p.failed says where. The caller's thread is stopped meanwhile.
//
// It is our own and not syscall.ForkExec because the child needs limits and a
// Landlock domain of its own, and the filter that it inherits wants a secret from
// clone3; a helper program in between would cost a second exec for every call.
//
//go:norace
func forkExec(p *childPlan) (pid int) {
	pid, errno := forkChild(p)
	if errno != 0 {
		p.failed, p.errno = stepFork, syscall.Errno(errno)
		return 0
	}
	return pid
}

// forkChild forks; in the child it does not return.
//
// The uid is set as late as possible: from then on other processes of the tool
// user could stop the child, and with it the thread that waits for its exec
// (not where Landlock scopes signals).
//
//go:noinline
//go:norace
//go:nosplit
func forkChild(p *childPlan) (int, uintptr) {
	var pid, errno uintptr
	enterSyscall()
	beforeFork()
	if p.clone != nil {
		pid, errno = vforkCall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(p.clone)), unsafe.Sizeof(*p.clone), p.secret[0], p.secret[1])
	} else {
		pid, errno = vforkCall(unix.SYS_CLONE, uintptr(vforkFlags|unix.SIGCHLD), 0, 0, 0)
	}
	if errno != 0 || pid != 0 {
		afterFork()
		exitSyscall()
		return int(pid), errno
	}
	if p.clone == nil {
		afterForkInChild() // one system call for each signal
	}
	runChild(p)
	for {
		syscall.RawSyscall(unix.SYS_EXIT, 253, 0, 0)
	}
}

// runChild is the child's work. It returns only after a failure.
//
//go:norace
//go:nosplit
func runChild(p *childPlan) {
	if _, _, e := syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0); e != 0 {
		p.failed, p.errno = stepSession, e
		return
	}
	for i := range p.limits {
		l := &p.limits[i]
		if _, _, e := syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, l.resource, uintptr(unsafe.Pointer(&l.value)), 0, 0, 0); e != 0 {
			p.failed, p.errno = stepLimit, e
			return
		}
	}
	if !childStdio(p) {
		return
	}
	for _, sig := range p.ignored {
		syscall.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&p.defaultAct)), 0, 8, 0, 0)
	}
	if p.landlock >= 0 {
		if _, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(p.landlock), 0, 0); e != 0 {
			p.failed, p.errno = stepLandlock, e
			return
		}
	}
	if p.uid >= 0 && !childIDs(p) {
		return
	}
	// The directory is looked up with the tool user's rights.
	fd, _, e := syscall.RawSyscall6(unix.SYS_OPENAT2, dirCWD, uintptr(unsafe.Pointer(p.dir)), uintptr(unsafe.Pointer(&p.how)), unsafe.Sizeof(p.how), p.secret[0], p.secret[1])
	if e == 0 {
		_, _, e = syscall.RawSyscall(unix.SYS_FCHDIR, fd, 0, 0)
	}
	if e != 0 {
		p.failed, p.errno = stepDir, e
		return
	}
	// Last, because any descriptor that was needed may have had this number.
	if p.script >= 0 {
		if _, _, e := syscall.RawSyscall(unix.SYS_DUP3, uintptr(p.script), scriptFD, 0); e != 0 {
			p.failed, p.errno = stepStdio, e
			return
		}
	}
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&p.noMask)), 0, 8, 0, 0)
	childExec(p)
}

// dirCWD is AT_FDCWD as a system call takes it. (The directory is absolute.)
const dirCWD = ^uintptr(99)

// childStdio puts the three descriptors, which are all above 2, in their places
// and marks all others to be closed by exec.
//
//go:norace
//go:nosplit
func childStdio(p *childPlan) bool {
	for i := range p.stdio {
		if _, _, e := syscall.RawSyscall(unix.SYS_DUP3, uintptr(p.stdio[i]), uintptr(i), 0); e != 0 {
			p.failed, p.errno = stepStdio, e
			return false
		}
	}
	if _, _, e := syscall.RawSyscall(unix.SYS_CLOSE_RANGE, 3, uintptr(^uint32(0)), closeRangeCloser); e != 0 {
		p.failed, p.errno = stepClose, e
		return false
	}
	return true
}

// childIDs becomes the tool user for good. The memory is still the agent's, and
// a change of ids may have made it readable again for its user, depending on a
// setting of the host: that is taken back at once.
//
//go:norace
//go:nosplit
func childIDs(p *childPlan) bool {
	if _, _, e := syscall.RawSyscall(unix.SYS_SETGROUPS, p.tags, uintptr(unsafe.Pointer(&p.tag)), 0); e != 0 {
		p.failed, p.errno = stepGroups, e
		return false
	}
	gid, uid := uintptr(p.gid), uintptr(p.uid)
	if _, _, e := syscall.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); e != 0 {
		p.failed, p.errno = stepGID, e
		return false
	}
	if _, _, e := syscall.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); e != 0 {
		p.failed, p.errno = stepUID, e
		return false
	}
	if _, _, e := syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0, 0, 0, 0); e != 0 {
		p.failed, p.errno = stepDumpable, e
		return false
	}
	return true
}

// childExec tries the candidates in order. The error of the first one that is
// more than "not here" counts.
//
//go:norace
//go:nosplit
func childExec(p *childPlan) {
	p.errno = unix.ENOENT
	for path := p.paths; *path != nil; path = (**byte)(unsafe.Add(unsafe.Pointer(path), unsafe.Sizeof(uintptr(0)))) {
		_, _, e := syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(*path)), uintptr(unsafe.Pointer(p.argv)), uintptr(unsafe.Pointer(p.envp)))
		if e == unix.ENOENT || e == unix.ENOTDIR {
			continue
		}
		if e == unix.EACCES {
			p.errno = e
			continue
		}
		p.errno = e
		break
	}
	p.failed = stepExec
}
