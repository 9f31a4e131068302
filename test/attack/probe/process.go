package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func deadlineFrom(args []string) func() bool {
	ms := 500
	if len(args) > 0 {
		ms, _ = strconv.Atoi(args[0])
	}
	end := time.Now().Add(time.Duration(ms) * time.Millisecond)
	return func() bool { return time.Now().After(end) }
}

// fds prints the descriptors that this process was born with, and where they lead.
func fds([]string) {
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		say("fd-dir", err)
		return
	}
	names, _ := d.Readdirnames(-1)
	for _, n := range names {
		fd, _ := strconv.Atoi(n)
		if fd == int(d.Fd()) {
			continue
		}
		link, _ := os.Readlink("/proc/self/fd/" + n)
		if link == "anon_inode:[eventpoll]" || link == "anon_inode:[eventfd]" {
			continue // Go's own poller
		}
		fmt.Println("fd", n, link)
	}
}

// attackInit tries every way into the process given (default 1).
func attackInit(args []string) {
	pid := 1
	if len(args) > 0 {
		pid, _ = strconv.Atoi(args[0])
	}
	p := fmt.Sprintf("/proc/%d/", pid)
	for _, f := range []string{"mem", "environ", "maps", "auxv", "io", "stack", "syscall", "pagemap"} {
		fd, err := unix.Open(p+f, unix.O_RDONLY, 0)
		if err == nil {
			var b [1]byte
			if _, rerr := unix.Read(fd, b[:]); f == "mem" {
				_ = rerr // an open mem is enough
			} else {
				err = rerr
			}
			unix.Close(fd)
		}
		say("open-"+f, err)
	}
	_, err := os.ReadDir(p + "fd")
	say("list-fd", err)
	for _, l := range []string{"root", "cwd", "exe"} {
		_, err := os.Readlink(p + l)
		say("readlink-"+l, err)
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	stolen := 0
	if err == nil {
		for fd := range 32 {
			if got, e := unix.PidfdGetfd(pidfd, fd, 0); e == nil {
				unix.Close(got)
				stolen++
			}
		}
	}
	fmt.Println("pidfd_getfd-stolen", stolen)
	var b [8]byte
	local := []unix.Iovec{{Base: &b[0], Len: 8}}
	remote := []unix.RemoteIovec{{Base: 0x400000, Len: 8}}
	_, err = unix.ProcessVMReadv(pid, local, remote, 0)
	say("process_vm_readv", err)
	_, err = unix.ProcessVMWritev(pid, local, remote, 0)
	say("process_vm_writev", err)
	say("ptrace-seize", sys(unix.SYS_PTRACE, 0x4206, uintptr(pid), 0, 0))
	var lim unix.Rlimit
	say("prlimit", unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &lim))
	say("oom_score_adj", os.WriteFile(p+"oom_score_adj", []byte("1000"), 0))
}

// signalInit sends every signal to the process given (default 1), and to all.
func signalInit(args []string) {
	pid := 1
	if len(args) > 0 {
		pid, _ = strconv.Atoi(args[0])
	}
	seen := map[string]int{}
	for s := 1; s <= 64; s++ {
		seen[outcome(unix.Kill(pid, unix.Signal(s)))]++
	}
	for k, n := range seen {
		fmt.Println("kill-"+k, n)
	}
}

// priority tries to take more of the machine than it was given.
func priority([]string) {
	say("nice", unix.Setpriority(unix.PRIO_PROCESS, 0, -20))
	param := struct{ prio int32 }{50}
	say("sched_fifo", sys(unix.SYS_SCHED_SETSCHEDULER, 0, 1, uintptr(unsafe.Pointer(&param))))
	say("oom_score_adj", os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0))
	hard := unix.Rlimit{Cur: 1 << 30, Max: 1 << 30}
	say("prlimit-nofile", unix.Setrlimit(unix.RLIMIT_NOFILE, &hard))
	core := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	err := unix.Setrlimit(unix.RLIMIT_CORE, &core)
	var now unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CORE, &now) == nil && err == nil && now.Max <= 1 {
		err = unix.EPERM // it is told otherwise
	}
	say("rlimit-core", err)
	// No answer may leave what the limit was as it stood in memory.
	was := unix.Rlimit{Cur: 0x5a5a, Max: 0x5a5a}
	err = unix.Prlimit(0, unix.RLIMIT_CORE, &unix.Rlimit{}, &was)
	if err == nil && was.Max == 0x5a5a {
		err = unix.EFAULT
	}
	say("rlimit-core-was", err)
	var b []byte
	b, err = unix.Mmap(-1, 0, 1<<30, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err == nil {
		err = unix.Mlock(b)
	}
	say("mlock-1GiB", err)
	say("ioprio-rt", sys(unix.SYS_IOPRIO_SET, 1, 0, 1<<13))
}

// tiocsti types into every descriptor that could be a terminal.
func tiocsti([]string) {
	c := byte('x')
	for fd := range 3 {
		say(fmt.Sprintf("tiocsti-%d", fd), sys(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSTI, uintptr(unsafe.Pointer(&c))))
		// A filter that compares 64 bits is passed by garbage in the upper half.
		say(fmt.Sprintf("tiocsti-high-%d", fd), sys(unix.SYS_IOCTL, uintptr(fd), 1<<32|unix.TIOCSTI, uintptr(unsafe.Pointer(&c))))
		l := [2]byte{11, 0}
		say(fmt.Sprintf("tioclinux-%d", fd), sys(unix.SYS_IOCTL, uintptr(fd), unix.TIOCLINUX, uintptr(unsafe.Pointer(&l))))
	}
	m, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err == nil {
		err = sys(unix.SYS_IOCTL, m.Fd(), unix.TIOCSTI, uintptr(unsafe.Pointer(&c)))
	}
	say("tiocsti-own-pty", err)
	_, err = os.OpenFile("/dev/tty", os.O_RDWR, 0)
	say("open-tty", err)
}

// peruid takes as much as it can of what the kernel counts by user id, at most as
// many of each as the first argument says, and with a second one holds it until it is
// killed.
func peruid(args []string) {
	most := 100000
	if len(args) > 0 {
		most, _ = strconv.Atoi(args[0])
	}
	n := 0
	for ; n < most; n++ {
		if _, err := unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
			say("inotify-end", err)
			break
		}
	}
	fmt.Println("inotify", n)
	for n = 0; n < most; n++ {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			say("pipe-end", err)
			break
		}
	}
	fmt.Println("pipes", n)
	if len(args) > 1 {
		for hold := unix.NsecToTimespec(int64(time.Hour)); ; {
			_ = unix.Nanosleep(&hold, nil) // time.Sleep wants a descriptor, and there is none
		}
	}
}

// ipc looks for what others left in shared memory, queues and abstract names; with
// an argument it leaves a canary of that name, and stays there.
func ipc(args []string) {
	if len(args) > 0 {
		say("leave-shm", os.WriteFile("/dev/shm/"+args[0], []byte("canary"), 0o666))
		id, _, errno := unix.Syscall(unix.SYS_SHMGET, 0x746f6f6c, 4096, 0o1000|0o666)
		_ = id
		say("leave-sysv", errnoErr(errno))
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrUnix{Name: "@" + args[0]})
		}
		if err == nil {
			err = unix.Listen(fd, 1)
		}
		say("leave-abstract", err)
		time.Sleep(time.Hour)
		return
	}
	entries, _ := os.ReadDir("/dev/shm")
	fmt.Println("shm", len(entries))
	_, _, errno := unix.Syscall(unix.SYS_SHMGET, 0x746f6f6c, 4096, 0)
	say("sysv", errnoErr(errno))
	b, _ := os.ReadFile("/proc/net/unix")
	fmt.Println("unix-sockets", bytes.Count(b, []byte{'\n'})-1)
	b, _ = os.ReadFile("/proc/sysvipc/shm")
	fmt.Println("sysvipc", bytes.Count(b, []byte{'\n'})-1)
}

// eat allocates and touches the number of MiB given, and with a third argument keeps
// it until it is killed. The second is an oom_score_adj for itself, "-" for none.
func eat(args []string) {
	mib, _ := strconv.Atoi(args[0])
	if len(args) > 1 && args[1] != "-" {
		say("oom_score_adj", os.WriteFile("/proc/self/oom_score_adj", []byte(args[1]), 0))
	}
	var keep [][]byte
	for range mib {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		keep = append(keep, b)
	}
	fmt.Println("ate", len(keep))
	if len(args) > 2 {
		time.Sleep(time.Hour)
	}
}

// zombies leaves n orphans for init to reap, in batches that are well below the limit
// of processes even when init falls one behind.
func zombies(args []string) {
	n, _ := strconv.Atoi(args[0])
	for i := 0; i < n; i += 50 {
		cmd := exec.Command("/bin/bash", "-c", "for i in {1..50}; do (true &) ; done")
		if err := cmd.Run(); err != nil {
			say("zombies", err)
			return
		}
	}
	fmt.Println("zombies", n)
}

// fill writes to the directory given until it is told to stop, and prints how
// much it got.
func fill(args []string) {
	f, err := os.OpenFile(filepath.Join(args[0], "fill"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		say("fill", err)
		return
	}
	buf := make([]byte, 1<<20)
	total := 0
	for total < 1<<36 {
		n, err := f.Write(buf)
		total += n
		if err != nil {
			say("fill-end", err)
			break
		}
	}
	fmt.Println("filled-MiB", total>>20)
	say("fallocate-1TiB", unix.Fallocate(int(f.Fd()), 0, 0, 1<<40))
}

// inodes makes empty files in the directory given until it is told to stop.
func inodes(args []string) {
	for i := range 10_000_000 {
		fd, err := unix.Open(filepath.Join(args[0], strconv.Itoa(i)), unix.O_CREAT|unix.O_WRONLY, 0o600)
		if err != nil {
			say("inodes-end", err)
			fmt.Println("inodes", i)
			return
		}
		unix.Close(fd)
	}
}

// ptraceOthers attaches to a child of its own, and to each pid given: ones that
// mean a process of the host and nothing here.
func ptraceOthers(pids []string) {
	cmd := exec.Command("/bin/sleep", "3600")
	if err := cmd.Start(); err != nil {
		say("start", err)
		return
	}
	say("own-child", sys(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(cmd.Process.Pid), 0, 0))
	for i, p := range pids {
		pid, _ := strconv.Atoi(p)
		_, err := unix.PidfdOpen(pid, 0)
		say(fmt.Sprintf("pidfd-%d", i), err)
		say(fmt.Sprintf("seize-%d", i), sys(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0))
		say(fmt.Sprintf("kill-%d", i), unix.Kill(pid, 0))
	}
	_ = cmd.Process.Kill()
}

// victim is the negative control of attackInit: a process of the same user that
// may be dumped and holds a socket.
func victim([]string) {
	fd, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	say("victim", err)
	time.Sleep(time.Hour)
	_ = fd
}
