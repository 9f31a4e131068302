// Package hardening looks at settings of the host that stand behind the walls
// of a sandbox: what makes a flaw of the kernel harder to use, what a crash or
// an exhausted limit inside may set off outside. It reads files of /proc and
// /sys and changes nothing. No sandbox depends on any of them, so a bad setting
// is a warning, except where a session could bring down the machine.
package hardening

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
)

// group is what doctor lists these checks under.
const group = "hardening"

// Checks looks at the host whose root directory root is, os.DirFS("/") but in
// tests, and at what sessions with these limits could take of it. The order is
// always the same.
func Checks(root fs.FS, session client.Limits) []client.Check {
	var checks []client.Check
	for _, s := range settings {
		checks = append(checks, s.check(root))
	}
	return append(checks, fileTable(root, session), watchLimits(root), corePattern(root, mostCore()), vulnerabilities(root), swap(root))
}

// setting is a number below /proc/sys and what it should be.
type setting struct {
	key    string // as sysctl writes it
	want   int
	atMost bool // less is as good, otherwise more is
	// fails is the number from which on a session can harm the host; 0 = none.
	fails int
	// absent is said where the kernel has no such setting.
	absent string
	why    string // what another number means
}

var settings = []setting{
	{
		key: "vm.panic_on_oom", atMost: true, fails: 2,
		why: "running out of memory stops the machine; with 2, also when a session does at its own limit",
	},
	{
		key: "kernel.panic_on_warn", atMost: true,
		why: "a warning of the kernel's that a session can cause stops the machine",
	},
	{
		key: "kernel.hung_task_panic", atMost: true, absent: "the kernel does not look for hung tasks",
		why: "a session that makes a task wait for long stops the machine",
	},
	{
		key: "kernel.randomize_va_space", want: 2,
		why: "addresses are easier to guess",
	},
	{
		key: "kernel.kptr_restrict", want: 1,
		why: "whoever reads the kernel's own files sees its addresses",
	},
	{
		key: "kernel.dmesg_restrict", want: 1,
		why: "every user of the host reads the kernel's log",
	},
	{
		key: "kernel.unprivileged_bpf_disabled", want: 1, absent: "the kernel has no bpf",
		why: "every user of the host may load programs into the kernel; sessions may not, their filter refuses",
	},
	{
		key: "kernel.unprivileged_userns_clone", atMost: true, absent: "the kernel cannot refuse them to users",
		why: "every user of the host may make user namespaces; sessions may not, and toold needs no such right",
	},
	{
		key: "kernel.apparmor_restrict_unprivileged_userns", want: 1, absent: "AppArmor cannot refuse them to users",
		why: "every user of the host may make user namespaces; sessions may not, and toold needs no such right",
	},
	{
		key: "kernel.perf_event_paranoid", want: 2, absent: "the kernel has no perf events",
		why: "every user of the host may trace the kernel; sessions may not, their filter refuses",
	},
	{
		key: "kernel.yama.ptrace_scope", want: 1, absent: "the kernel does not have Yama",
		why: "processes of one user may take each other over",
	},
	{
		key: "vm.mmap_min_addr", want: 4096,
		why: "a null pointer in the kernel may point to memory of a process",
	},
	{
		key: "fs.suid_dumpable", atMost: true,
		why: "programs that changed their user leave core files",
	},
	{
		key: "fs.protected_symlinks", want: 1,
		why: "programs of the host follow links that others put into shared directories such as /tmp",
	},
	{
		key: "fs.protected_hardlinks", want: 1,
		why: "users of the host may link to files of others that they cannot read",
	},
	{
		key: "fs.protected_fifos", want: 1,
		why: "programs of the host write to FIFOs that others put into shared directories",
	},
	{
		key: "fs.protected_regular", want: 1,
		why: "programs of the host write to files that others put into shared directories",
	},
}

func (s setting) check(root fs.FS) client.Check {
	c, text, err := look(root, s.key, "proc/sys/"+strings.ReplaceAll(s.key, ".", "/"))
	if s.absent != "" && errors.Is(err, fs.ErrNotExist) {
		c.Detail = s.absent
	}
	if err != nil {
		return c
	}
	v, err := strconv.Atoi(text)
	if err == nil && (v == s.want || v < s.want == s.atMost) {
		return c
	}
	c.Status, c.Detail = client.CheckWarn, text+": "+s.why
	if err != nil || s.fails > 0 && v >= s.fails {
		c.Status = client.CheckFail
	}
	c.Hint = fmt.Sprintf("set the sysctl %s to %d", s.key, s.want)
	return c
}

// fullSessions is how many sessions that hold all the files they may are to fit
// into the table of open files.
const fullSessions = 4

// fileTable compares the open files of the whole host with those that a session may
// have: a limit of files holds for each of its processes.
func fileTable(root fs.FS, session client.Limits) client.Check {
	c, text, err := look(root, "fs.file-max", "proc/sys/fs/file-max")
	if err != nil {
		return c
	}
	most, err := strconv.ParseUint(text, 10, 64)
	each := uint64(max(session.PIDs, 0)) * uint64(max(session.OpenFiles, 0))
	if err == nil && most/fullSessions >= each {
		return c
	}
	c.Status = client.CheckWarn
	c.Detail = fmt.Sprintf("%s: a session may hold %d files (%d processes with %d each), and %d such sessions take all that the host has",
		text, each, session.PIDs, session.OpenFiles, most/max(each, 1)+1)
	c.Hint = fmt.Sprintf("set the sysctl fs.file-max to %d or more, or limits.open_files lower", fullSessions*each)
	return c
}

// WatchShare: a session has that part of the inotify instances and watches that one user of the
// host may have.
const WatchShare = 8

// fewInstances and fewWatches are what a test runner, a compiler and a development server that watch
// one tree are short of, in a session.
const (
	fewInstances = 64
	fewWatches   = 8192
)

// Watches are how many inotify instances and watches one user of the host may have; 0 is not known.
func Watches(root fs.FS) (instances, watches int) {
	number := func(name string) int {
		text, err := read(root, "proc/sys/fs/inotify/"+name)
		if err != nil {
			return 0
		}
		n, _ := strconv.Atoi(text) // else it is 0
		return n
	}
	return number("max_user_instances"), number("max_user_watches")
}

// watchLimits looks at how much of a tree the programs of a session can watch.
func watchLimits(root fs.FS) client.Check {
	c, _, err := look(root, "fs.inotify", "proc/sys/fs/inotify/max_user_instances")
	if err != nil {
		return c
	}
	instances, watches := Watches(root)
	c.Detail = fmt.Sprintf("a session has %d inotify instances and %d watches, each an eighth of what the host allows", instances/WatchShare, watches/WatchShare)
	if instances/WatchShare >= fewInstances && watches/WatchShare >= fewWatches {
		return c
	}
	c.Status = client.CheckWarn
	c.Detail += `: programs that watch files (jest, tsc --watch, vite, .NET) fail with "too many open files"`
	c.Hint = fmt.Sprintf("set the sysctls fs.inotify.max_user_instances to %d and fs.inotify.max_user_watches to %d, or more",
		max(instances, fewInstances*WatchShare), max(watches, fewWatches*WatchShare))
	return c
}

// corePattern looks at who gets the core of a crash. Sessions have a limit of 1 byte for core files,
// which keeps the kernel from starting a program, unless this process may have at most 0.
func corePattern(root fs.FS, most uint64) client.Check {
	c, text, err := look(root, "kernel.core_pattern", "proc/sys/kernel/core_pattern")
	if err != nil {
		return c
	}
	if program, isProgram := strings.CutPrefix(text, "|"); isProgram && most == 0 {
		program, _, _ = strings.Cut(program, " ")
		c.Status = client.CheckWarn
		c.Detail = "a crash in a session starts " + program + " on the host, as root, and gives it memory of the session's to read"
		c.Hint = `give toold a limit of core files that is not 0 (ulimit -Hc, LimitCORE=), or trust that program with hostile input; crashes in gVisor sessions do not get there`
	}
	return c
}

// mostCore is the limit for core files that this process cannot exceed.
func mostCore() uint64 {
	var own unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_CORE, &own) // else it is 0
	return own.Max
}

// vulnerabilities of the processor that the kernel does nothing about.
func vulnerabilities(root fs.FS) client.Check {
	const dir = "sys/devices/system/cpu/vulnerabilities"
	c := client.Check{Group: group, Name: "cpu mitigations", Status: client.CheckOK, Detail: "nothing is known to be open"}
	entries, err := fs.ReadDir(root, dir)
	if err != nil {
		c.Status, c.Detail = client.CheckNA, "cannot be read: "+err.Error()
		return c
	}
	var open []string
	for _, e := range entries {
		text, err := read(root, dir+"/"+e.Name())
		if err != nil {
			continue // one that this kernel has no word about
		}
		// Some that are mitigated have a part that is not: "…; BHI: Vulnerable".
		if strings.Contains(strings.ToLower(text), "vulnerable") && !strings.HasPrefix(text, "Not affected") {
			open = append(open, e.Name())
		}
	}
	if len(open) > 0 {
		slices.Sort(open)
		c.Status, c.Detail = client.CheckWarn, "open: "+strings.Join(open, ", ")
		c.Hint = "sessions may read memory of others; see /" + dir + ": update the microcode and the kernel, boot without mitigations=off, and turn SMT off where it says so"
	}
	return c
}

// swap: what a session had in memory may be on a disk after its end.
func swap(root fs.FS) client.Check {
	c, text, err := look(root, "swap", "proc/swaps")
	if err != nil {
		return c
	}
	c.Detail = "there is none"
	var plain, safe []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] == "Filename" {
			continue
		}
		if name := strings.TrimPrefix(f[0], "/dev/"); encrypted(root, name) || strings.HasPrefix(name, "zram") {
			safe = append(safe, f[0])
		} else {
			plain = append(plain, f[0])
		}
	}
	switch {
	case len(plain) > 0:
		c.Status = client.CheckWarn
		c.Detail = strings.Join(plain, ", ") + ": memory of sessions is written to a disk as it is"
		c.Hint = "encrypt the swap, or run without any"
	case len(safe) > 0:
		c.Detail = strings.Join(safe, ", ") + ": in memory or encrypted"
	}
	return c
}

// encrypted says whether the block device is one of dm-crypt's.
func encrypted(root fs.FS, name string) bool {
	uuid, err := read(root, "sys/block/"+name+"/dm/uuid")
	return err == nil && strings.HasPrefix(uuid, "CRYPT-")
}

// look begins the check of what a file says; with an error it is the whole of it.
func look(root fs.FS, name, file string) (client.Check, string, error) {
	text, err := read(root, file)
	c := client.Check{Group: group, Name: name, Status: client.CheckOK, Detail: text}
	if err != nil {
		c.Status, c.Detail = client.CheckNA, "cannot be read: "+err.Error()
	}
	return c, text, err
}

func read(root fs.FS, name string) (string, error) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(b)), nil
}
