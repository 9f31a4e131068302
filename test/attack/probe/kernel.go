package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// status prints what the kernel says this process may do.
func status([]string) {
	b, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch k {
		case "CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd", "NoNewPrivs", "Seccomp", "Seccomp_filters", "Uid", "Gid", "Groups":
			fmt.Println(k, strings.Join(strings.Fields(v), ","))
		}
	}
	for _, f := range []string{"uid_map", "gid_map"} {
		b, _ := os.ReadFile("/proc/self/" + f)
		fmt.Println(f, strings.Join(strings.Fields(string(b)), ","))
	}
}

var nsFlags = []struct {
	name string
	flag uintptr
}{
	{"user", unix.CLONE_NEWUSER},
	{"mnt", unix.CLONE_NEWNS},
	{"pid", unix.CLONE_NEWPID},
	{"net", unix.CLONE_NEWNET},
	{"ipc", unix.CLONE_NEWIPC},
	{"uts", unix.CLONE_NEWUTS},
	{"cgroup", unix.CLONE_NEWCGROUP},
	{"time", unix.CLONE_NEWTIME},
}

// namespaces tries to make or enter namespaces, by every system call there is.
func namespaces([]string) {
	for _, n := range nsFlags {
		done := make(chan error)
		go func() { // a thread that changed its namespaces is thrown away
			runtime.LockOSThread()
			done <- sys(unix.SYS_UNSHARE, n.flag)
		}()
		say("unshare-"+n.name, <-done)
	}
	cmd := exec.Command("/proc/self/exe", "status")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
	say("clone-user", cmd.Run())
	var args struct{ flags, pidfd, ctid, ptid, exit, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64 }
	args.flags, args.exit = unix.CLONE_NEWUSER, uint64(unix.SIGCHLD)
	pid, _, errno := syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if errno == 0 && pid == 0 {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	say("clone3-user", errnoErr(errno))
	for _, n := range []string{"user", "mnt", "pid", "net"} {
		fd, err := unix.Open("/proc/1/ns/"+n, unix.O_RDONLY, 0)
		if err == nil {
			err = sys(unix.SYS_SETNS, uintptr(fd), 0)
		}
		say("setns-1-"+n, err)
	}
}

func errnoErr(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// mounts tries the old and the new mount interface.
func mounts([]string) {
	tmp, root, tmpfs := ptr("/tmp"), ptr("/"), ptr("tmpfs")
	say("mount", sys(unix.SYS_MOUNT, tmpfs, tmp, tmpfs, 0, 0))
	say("umount2", sys(unix.SYS_UMOUNT2, tmp, unix.MNT_DETACH))
	say("pivot_root", sys(unix.SYS_PIVOT_ROOT, tmp, tmp))
	say("fsopen", sys(unix.SYS_FSOPEN, tmpfs, 0))
	say("fsconfig", sys(unix.SYS_FSCONFIG, 0, uintptr(unix.FSCONFIG_CMD_CREATE), 0, 0, 0))
	say("open_tree-clone", sys(unix.SYS_OPEN_TREE, at(unix.AT_FDCWD), root, unix.OPEN_TREE_CLONE))
	say("move_mount", sys(unix.SYS_MOVE_MOUNT, at(unix.AT_FDCWD), tmp, at(unix.AT_FDCWD), root, 0))
	var attr unix.MountAttr
	attr.Attr_clr = unix.MOUNT_ATTR_RDONLY
	say("mount_setattr", sys(unix.SYS_MOUNT_SETATTR, at(unix.AT_FDCWD), root, 0, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr)))
	say("open_tree_attr", sys(467, at(unix.AT_FDCWD), root, unix.OPEN_TREE_CLONE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr)))
	say("chroot", sys(unix.SYS_CHROOT, tmp))
}

func ptr(s string) uintptr { return uintptr(unsafe.Pointer(&append([]byte(s), 0)[0])) }
func at(fd int) uintptr    { return uintptr(fd) }

// syscalls tries what no tool needs. The arguments are such that a call that is
// let through has no effect.
func syscalls([]string) {
	var buf [4096]byte
	p := uintptr(unsafe.Pointer(&buf[0]))
	bad := ptr("/nonexistent")
	key := ptr("user")
	perf := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
	for _, c := range []struct {
		name string
		nr   uintptr
		args []uintptr
	}{
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, []uintptr{1, p}},
		{"io_uring_enter", unix.SYS_IO_URING_ENTER, []uintptr{99, 0, 0, 0}},
		{"bpf", unix.SYS_BPF, []uintptr{0, p, 64}},
		{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, []uintptr{uintptr(unsafe.Pointer(&perf)), 0, ^uintptr(0), ^uintptr(0), 0}},
		{"userfaultfd", unix.SYS_USERFAULTFD, []uintptr{0}},
		{"userfaultfd-user", unix.SYS_USERFAULTFD, []uintptr{1}},
		{"keyctl", unix.SYS_KEYCTL, []uintptr{0, ^uintptr(2), 0}},
		{"add_key", unix.SYS_ADD_KEY, []uintptr{key, key, p, 1, ^uintptr(2)}},
		{"request_key", unix.SYS_REQUEST_KEY, []uintptr{key, key, 0, 0}},
		{"kexec_load", unix.SYS_KEXEC_LOAD, []uintptr{0, 99, 0, 0xffff}},
		{"kexec_file_load", unix.SYS_KEXEC_FILE_LOAD, []uintptr{99, 99, 0, 0, 0xffff}},
		{"init_module", unix.SYS_INIT_MODULE, []uintptr{p, 0, p}},
		{"finit_module", unix.SYS_FINIT_MODULE, []uintptr{99, p, 0}},
		{"delete_module", unix.SYS_DELETE_MODULE, []uintptr{bad, 0}},
		{"open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, []uintptr{99, p, 0}},
		{"quotactl", unix.SYS_QUOTACTL, []uintptr{0x80000100, 0, 0, 0}},
		{"acct", unix.SYS_ACCT, []uintptr{bad}},
		{"swapon", unix.SYS_SWAPON, []uintptr{bad, 0}},
		{"reboot", unix.SYS_REBOOT, []uintptr{0, 0, 0, 0}},
		{"syslog", unix.SYS_SYSLOG, []uintptr{10, 0, 0}},
		{"settimeofday", unix.SYS_SETTIMEOFDAY, []uintptr{1, 0}},
		{"clock_settime", unix.SYS_CLOCK_SETTIME, []uintptr{0, 1}},
		{"iopl", unix.SYS_IOPL, []uintptr{3}},
		{"ioperm", unix.SYS_IOPERM, []uintptr{0x80, 1, 1}},
		{"fanotify_init", unix.SYS_FANOTIFY_INIT, []uintptr{0, 0}},
		{"lookup_dcookie", unix.SYS_LOOKUP_DCOOKIE, []uintptr{0, p, 1}},
		{"sethostname", unix.SYS_SETHOSTNAME, []uintptr{p, 1}},
		{"vhangup", unix.SYS_VHANGUP, nil},
		{"unknown-9999", 9999, nil},
	} {
		say(c.name, sys(c.nr, c.args...))
	}
	runtime.KeepAlive(buf)
}

// devices lists /dev and tries what must not be there.
func devices([]string) {
	entries, _ := os.ReadDir("/dev")
	for _, e := range entries {
		fmt.Println("dev", e.Name())
	}
	for _, d := range []string{"kvm", "fuse", "mem", "kmsg", "port", "net/tun", "vda", "sda", "loop0", "loop-control", "mapper/control"} {
		_, err := os.Open("/dev/" + d)
		say("open-"+filepath.Base(d), err)
	}
	say("mknod-block", unix.Mknod("/tmp/b", unix.S_IFBLK|0o666, int(unix.Mkdev(8, 0))))
	say("mknod-char", unix.Mknod("/tmp/c", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 1))))
}

// planted uses what the host put into the tree before the session: a block
// device, a set-uid root program, a program with file capabilities. The two
// programs are copies of probe and run its status.
func planted(args []string) {
	_, err := os.Open(filepath.Join(args[0], "blockdev"))
	say("open-blockdev", err)
	for _, n := range []string{"setuid-root", "filecaps"} {
		out, err := exec.Command(filepath.Join(args[0], n), "status").Output()
		if err != nil {
			say(n, err)
			continue
		}
		for line := range strings.Lines(string(out)) {
			if k, v, _ := strings.Cut(strings.TrimSpace(line), " "); k == "Uid" || k == "CapEff" {
				fmt.Println(n+"-"+k, v)
			}
		}
	}
}

// procfs reads and writes the kernel's own knobs. What is written is what was
// read or, where nothing can be read, an empty string.
func procfs([]string) {
	for _, f := range []string{
		"/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/drop_caches",
		"/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats",
		"/proc/acpi", "/proc/scsi", "/proc/interrupts", "/proc/kmsg", "/proc/bus/pci", "/proc/fs", "/proc/irq",
		"/sys/firmware", "/sys/kernel/debug", "/sys/kernel/uevent_helper", "/sys/class", "/sys/power/state",
	} {
		name := strings.ReplaceAll(strings.TrimPrefix(f, "/"), "/", ".")
		st, err := os.Stat(f)
		switch {
		case err != nil:
			say("read-"+name, err)
		case st.IsDir():
			e, err := os.ReadDir(f)
			if err == nil && len(e) == 0 {
				fmt.Println("read-"+name, "empty")
			} else {
				say("read-"+name, err)
			}
		default:
			var b [64]byte
			fd, err := unix.Open(f, unix.O_RDONLY|unix.O_NONBLOCK, 0)
			n := 0
			if err == nil {
				n, err = unix.Read(fd, b[:])
				unix.Close(fd)
			}
			if err == nil && n == 0 {
				fmt.Println("read-"+name, "empty")
			} else {
				say("read-"+name, err)
			}
		}
		fd, err := unix.Open(f, unix.O_WRONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			unix.Close(fd)
			// The device /dev/null over a masked file takes writes and drops them.
			var s unix.Stat_t
			if unix.Stat(f, &s) == nil && s.Mode&unix.S_IFMT == unix.S_IFCHR && s.Rdev == unix.Mkdev(1, 3) {
				fmt.Println("write-"+name, "masked")
				continue
			}
		}
		say("write-"+name, err)
	}
}

// exeWriter opens every executable of every process for writing, for as long as
// told (milliseconds), and prints how often which outcome was seen. Its own program
// is one of the worktree's and apart from the others.
func exeWriter(args []string) {
	deadline := deadlineFrom(args)
	seen := map[string]int{}
	own, _ := os.Readlink("/proc/self/exe")
	for !deadline() {
		exes, _ := filepath.Glob("/proc/[0-9]*/exe")
		for _, e := range exes {
			fd, err := unix.Open(e, unix.O_WRONLY, 0)
			if err == nil {
				unix.Close(fd)
			}
			whose := ""
			if l, _ := os.Readlink(e); l == own {
				whose = "own-"
			}
			seen[whose+outcome(err)]++
		}
	}
	for k, n := range seen {
		fmt.Println("open-exe-"+k, n)
	}
}

// cgroups tries to reach the cgroup file systems, and to change what it sees of them.
func cgroups([]string) {
	b, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(b)) {
		fmt.Println("member", strings.TrimSpace(line))
	}
	m, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(m)) {
		if strings.Contains(line, " - cgroup") {
			f := strings.Fields(line)
			fmt.Println("cgroup-mount-"+f[4], f[3], f[5])
		}
	}
	for _, f := range []string{"/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/release_agent", "/sys/fs/cgroup/unified/cgroup.procs"} {
		_, err := os.OpenFile(f, os.O_WRONLY, 0)
		say("write-"+strings.ReplaceAll(strings.TrimPrefix(f, "/sys/fs/cgroup/"), "/", "."), err)
	}
	changeCgroups("/sys/fs/cgroup")
	say("mount-cgroup2", unix.Mount("none", "/tmp", "cgroup2", 0, ""))
	say("mount-cgroup", unix.Mount("none", "/tmp", "cgroup", 0, "memory"))
}

// changeCgroups tries each change of each file and directory below dir. It opens
// files for writing and writes nothing. It prints what worked, how many were there,
// and the names of directories.
func changeCgroups(dir string) {
	seen := 0
	worked := func(how, path string, err error) {
		if err == nil {
			fmt.Println("changed-"+how, path)
		}
	}
	_ = filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		seen++
		worked("chmod", p, os.Chmod(p, 0o777))
		worked("chown", p, os.Lchown(p, os.Getuid(), os.Getgid()))
		worked("xattr", p, unix.Setxattr(p, "user.x", []byte("x"), 0))
		if !e.IsDir() {
			f, err := os.OpenFile(p, os.O_WRONLY, 0)
			worked("open", p, err)
			f.Close()
			return nil
		}
		fmt.Println("directory-"+e.Name(), p)
		worked("mkdir", p, os.Mkdir(filepath.Join(p, "made"), 0o755))
		worked("rename", p, os.Rename(p, p+"2"))
		if p != dir {
			worked("rmdir", p, os.Remove(p))
		}
		return nil
	})
	fmt.Println("cgroup-files", seen)
}

// setuid tries to leave a set-uid or set-gid file in the directory given, by
// every way there is to set a mode.
func setuid(args []string) {
	f := filepath.Join(args[0], "suid")
	fd, err := unix.Open(f, unix.O_CREAT|unix.O_RDWR, 0o755)
	if err != nil {
		say("create", err)
		return
	}
	say("chmod", sys(unix.SYS_CHMOD, ptr(f), 0o4755))
	say("chmod-gid", sys(unix.SYS_CHMOD, ptr(f), 0o2755))
	say("fchmod", sys(unix.SYS_FCHMOD, uintptr(fd), 0o4755))
	say("fchmodat", sys(unix.SYS_FCHMODAT, at(unix.AT_FDCWD), ptr(f), 0o4755))
	say("fchmodat2", sys(452, at(unix.AT_FDCWD), ptr(f), 0o4755, 0))
	say("open", sys(unix.SYS_OPEN, ptr(f+"1"), unix.O_CREAT|unix.O_RDWR, 0o4755))
	say("openat", sys(unix.SYS_OPENAT, at(unix.AT_FDCWD), ptr(f+"2"), unix.O_CREAT|unix.O_RDWR, 0o4755))
	say("creat", sys(unix.SYS_CREAT, ptr(f+"3"), 0o4755))
	say("mknod", sys(unix.SYS_MKNOD, ptr(f+"4"), unix.S_IFREG|0o4755, 0))
	say("mknodat", sys(unix.SYS_MKNODAT, at(unix.AT_FDCWD), ptr(f+"5"), unix.S_IFREG|0o4755, 0))
	how := unix.OpenHow{Flags: unix.O_CREAT | unix.O_RDWR, Mode: 0o4755}
	say("openat2", sys(unix.SYS_OPENAT2, at(unix.AT_FDCWD), ptr(f+"6"), uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how)))
	say("mkdir-gid", sys(unix.SYS_MKDIR, ptr(f+"7"), 0o2755))
	say("chmod-plain", sys(unix.SYS_CHMOD, ptr(f), 0o755)) // control: an ordinary mode is let through
	left, _ := filepath.Glob(f + "*")
	for _, l := range left {
		if st, err := os.Stat(l); err == nil && st.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			fmt.Println("left", filepath.Base(l))
		}
		os.Remove(l)
	}
}

// filters tries to load a filter in each way that there is, once: thousands that
// are freed at once would stop the host. It also tries io_setup, for one request.
func filters([]string) {
	pass := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff0000}}
	prog := unix.SockFprog{Len: 1, Filter: &pass[0]}
	for _, o := range []struct {
		name   string
		option int
	}{
		{"socket", unix.SO_ATTACH_FILTER},
		{"socket-bpf", unix.SO_ATTACH_BPF},
		{"port", unix.SO_ATTACH_REUSEPORT_CBPF},
		{"port-bpf", unix.SO_ATTACH_REUSEPORT_EBPF},
		{"lock", unix.SO_LOCK_FILTER},
		{"sent", unix.SO_TIMESTAMPING},
		{"sent-64", unix.SO_TIMESTAMPING_NEW},
	} {
		for name, high := range map[string]uintptr{o.name: 0, o.name + "-high": 1 << 40} {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
			if err == nil {
				value := int32(1)
				p, size := uintptr(unsafe.Pointer(&prog)), unsafe.Sizeof(prog)
				if o.option != unix.SO_ATTACH_FILTER && o.option != unix.SO_ATTACH_REUSEPORT_CBPF {
					p, size = uintptr(unsafe.Pointer(&value)), unsafe.Sizeof(value)
				}
				err = sys(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET|high, uintptr(o.option)|high, p, size)
				runtime.KeepAlive(value)
			}
			say(name, err)
			_ = unix.Close(fd)
		}
	}
	for _, c := range []struct {
		name string
		nr   uintptr
		args []uintptr
	}{
		{"seccomp", unix.SYS_SECCOMP, []uintptr{1, 0, uintptr(unsafe.Pointer(&prog))}},
		{"prctl", unix.SYS_PRCTL, []uintptr{unix.PR_SET_SECCOMP, 2, uintptr(unsafe.Pointer(&prog)), 0, 0}},
	} {
		done := make(chan error)
		go func() { // a thread with a filter is thrown away
			runtime.LockOSThread()
			done <- sys(c.nr, c.args...)
		}()
		say(c.name, <-done)
	}
	var aio uintptr
	say("io_setup", sys(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&aio))))
	runtime.KeepAlive(pass)
}

// terminals opens as many pseudo-terminals as it gets, at most the number given,
// and keeps them until it is killed.
func terminals(args []string) {
	most, _ := strconv.Atoi(args[0])
	n := 0
	for ; n < most; n++ {
		if _, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err != nil {
			break
		}
	}
	fmt.Println("terminals", n)
	if len(args) > 1 {
		time.Sleep(time.Hour)
	}
}
