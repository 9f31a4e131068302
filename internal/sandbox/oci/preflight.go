package oci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/mount"
)

// preflights look at what the surroundings of toold must give it. Each fails with one
// sentence about the cause and one about what to do. They stand in the order in which
// a cause hides those behind it.
func preflights(uidBase uint32) []func() client.Check {
	return []func() client.Check{
		capabilityCheck,
		func() client.Check { return userIDsCheck(uidBase) },
		userNamespaceCheck,
		procCheck,
		cgroupCheck,
		deviceCheck,
	}
}

// whyNot is for an error of making sandboxes: where the surroundings of toold are its
// cause, it says that, also where that makes a limit one that cannot be enforced. What is
// wrong with the request, or was given up, stays as it is.
func whyNot(err error, uidBase uint32) error {
	if err == nil || errors.Is(err, sandbox.ErrMountTarget) || errors.Is(err, context.Canceled) {
		return err
	}
	for _, look := range preflights(uidBase) {
		if c := look(); c.Status == client.CheckFail {
			return &sandbox.HostError{Cause: c.Detail, Hint: c.Hint, Err: err}
		}
	}
	return err
}

// inContainer is what to do in a container, whatever is missing.
const inContainer = "in a container add --privileged, or the shorter list of rights in deploy/docker/README.md"

// capabilities of root that are of use here, and what is lost without them. In a
// session's user namespace, which root owns, it has all of them in any case: there
// it needs no CAP_KILL. Whether the kernel wants CAP_NET_ADMIN, deviceCheck asks it.
var capabilities = map[int]struct{ name, without string }{
	unix.CAP_SYS_ADMIN:    {"CAP_SYS_ADMIN", "nothing works"},
	unix.CAP_SETUID:       {"CAP_SETUID", "nothing works"},
	unix.CAP_SETGID:       {"CAP_SETGID", "nothing works"},
	unix.CAP_CHOWN:        {"CAP_CHOWN", "nothing works"},
	unix.CAP_DAC_OVERRIDE: {"CAP_DAC_OVERRIDE", "nothing works"},
	unix.CAP_SYS_RESOURCE: {"CAP_SYS_RESOURCE", "open_files and file_size cannot be raised above the daemon's own, and its oom_score_adj not lowered"},
	unix.CAP_SYS_CHROOT:   {"CAP_SYS_CHROOT", "the namespaces of a session cannot be entered"},
	unix.CAP_SYS_PTRACE:   {"CAP_SYS_PTRACE", "the namespaces of a session cannot be entered"},
}

func capabilityCheck() client.Check {
	c := client.Check{Group: "host", Name: "capabilities", Status: client.CheckOK, Detail: "all that are needed"}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		c.Status, c.Detail = client.CheckFail, err.Error()
		return c
	}
	var lost, costs []string
	for bit, c := range capabilities {
		if data[bit/32].Effective&(1<<(bit%32)) != 0 {
			continue
		}
		costs = append(costs, fmt.Sprintf("without %s %s", c.name, c.without))
		if bit != unix.CAP_SYS_RESOURCE {
			lost = append(lost, c.name)
		}
	}
	slices.Sort(lost)
	slices.Sort(costs)
	switch {
	case len(lost) > 0:
		c.Status, c.Detail = client.CheckFail, "toold lacks "+strings.Join(lost, ", ")+", and can make no sandbox without"
		c.Hint = inContainer + "; in a service CapabilityBoundingSet="
	case len(costs) > 0:
		c.Status, c.Detail = client.CheckWarn, strings.Join(costs, "; ")
		c.Hint = "run toold as root with all capabilities where that matters"
	}
	return c
}

// userIDsCheck asks whether toold has the ids that it gives to sessions.
func userIDsCheck(uidBase uint32) client.Check {
	c := client.Check{Group: "host", Name: "user ids", Status: client.CheckOK}
	for _, kind := range []string{"uid", "gid"} {
		text, err := os.ReadFile("/proc/self/" + kind + "_map")
		if err != nil {
			c.Status, c.Detail, c.Hint = client.CheckFail, fmt.Sprintf("/proc cannot be read (%v)", err), "mount a proc file system at /proc; "+inContainer
			return c
		}
		if !mapped(string(text), uidBase) {
			c.Status = client.CheckFail
			c.Detail = fmt.Sprintf("toold runs in a user namespace without the %ss that sessions get (from %d on)", kind, uidBase)
			c.Hint = "start it outside of that namespace, as root of the host: no unshare -U, no rootless container, no userns-remap"
			return c
		}
	}
	c.Detail = fmt.Sprintf("those of sessions, from %d on, are there", uidBase)
	return c
}

// mapped says whether an id map has the first range of those of sessions.
func mapped(text string, base uint32) bool {
	for line := range strings.Lines(text) {
		var inside, outside, n uint64
		if _, err := fmt.Sscan(line, &inside, &outside, &n); err == nil && inside <= uint64(base) && uint64(base)+sandbox.RangeSize <= inside+n {
			return true
		}
	}
	return false
}

// userNamespaceCheck makes a user namespace.
func userNamespaceCheck() client.Check {
	c := client.Check{Group: "host", Name: "user namespaces", Status: client.CheckOK}
	n, err := readNumber("/proc/sys/user/max_user_namespaces")
	if err == nil {
		c.Detail = fmt.Sprintf("at most %d", n)
	}
	// To an id that nobody has: a map to the host's root would ask for CAP_SETFCAP, which
	// nothing else here does.
	one := []mount.Range{{Host: 1<<32 - 3, Size: 1}}
	f, err := mount.UserNamespace(one, one)
	if err == nil {
		_ = f.Close()
		return c
	}
	c.Status = client.CheckFail
	switch {
	case errors.Is(err, unix.ENOSPC), n == 0:
		c.Detail = fmt.Sprintf("there are as many user namespaces as there may be (%d)", n)
		c.Hint = "set the sysctl user.max_user_namespaces above the number of sessions"
	case errors.Is(err, unix.EPERM) && filtered():
		c.Detail = "the seccomp filter around toold refuses user namespaces"
		c.Hint = inContainer
	case errors.Is(err, unix.EPERM):
		// With all capabilities and no filter the kernel refuses for this alone.
		c.Detail = "toold runs in a chroot, where the kernel lets nobody make user namespaces"
		c.Hint = "start it outside of the chroot, or enter the tree as a container (systemd-nspawn --directory=DIR, pivot_root)"
	default:
		c.Detail = fmt.Sprintf("no user namespace can be made (%v)", err)
		c.Hint = "the kernel's log may say who refuses it; " + inContainer
	}
	return c
}

// filtered says whether a seccomp filter is around this process.
func filtered() bool {
	text, err := os.ReadFile("/proc/self/status")
	return err == nil && !strings.Contains(string(text), "\nSeccomp:\t0")
}

// procCheck: the kernel mounts no new /proc for a sandbox where parts of this one are
// covered.
func procCheck() client.Check {
	c := client.Check{Group: "host", Name: "proc", Status: client.CheckOK, Detail: "not covered"}
	covers, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return !strings.HasPrefix(m.Mountpoint, "/proc/") || strings.HasPrefix(m.Mountpoint, "/proc/sys/fs/binfmt_misc"), false
	})
	if err != nil || len(covers) == 0 {
		return c
	}
	c.Status = client.CheckFail
	c.Detail = fmt.Sprintf("parts of /proc are covered (%s, %d in all), and the kernel then gives sandboxes no /proc of their own", covers[0].Mountpoint, len(covers))
	c.Hint = "with Docker --security-opt systempaths=unconfined; " + inContainer
	return c
}

// cgroupCheck asks whether cgroups can be made.
func cgroupCheck() client.Check {
	c := client.Check{Group: "host", Name: "cgroup mounts", Status: client.CheckOK, Detail: "can be written to"}
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	switch {
	case err != nil:
		c.Status, c.Detail = client.CheckFail, fmt.Sprintf("mounts cannot be read (%v)", err)
	case len(mounts) == 0:
		c.Status, c.Detail = client.CheckFail, "no cgroup file system is mounted here, so no limit can be set"
	}
	for _, m := range mounts {
		if slices.Contains(strings.Split(m.Options, ","), "ro") {
			c.Status, c.Detail = client.CheckFail, fmt.Sprintf("the cgroup file system at %s is mounted read-only, so no limit can be set", m.Mountpoint)
		}
	}
	if c.Status == client.CheckFail {
		c.Hint = "with Docker -v /sys/fs/cgroup:/sys/fs/cgroup --cgroupns=host; " + inContainer
	}
	return c
}

// readNumber reads a file with nothing but a number in it.
func readNumber(path string) (int, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}

// deviceCheck asks the kernel, as a runtime does, which programs say what devices a cgroup may
// use. Where no v1 controller does, the runtime has to attach one, for which kernels before 6.12
// want CAP_NET_ADMIN (seen with 6.1; 6.12 does not).
func deviceCheck() client.Check {
	c := client.Check{Group: "host", Name: "device rules", Status: client.CheckOK, Detail: "can be set"}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil || byV1(string(own), "devices") {
		return c
	}
	at, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup2"))
	if err != nil || len(at) == 0 {
		return c // cgroupCheck says so
	}
	dir, err := os.Open(at[0].Mountpoint)
	if err != nil {
		return c
	}
	defer dir.Close()
	return deviceRules(c, queryDevices(dir))
}

// deviceRules is deviceCheck's answer of a kernel that was asked.
func deviceRules(c client.Check, err error) client.Check {
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return c // a kernel without them says so in the runtime's words
	}
	c.Status = client.CheckFail
	c.Detail = fmt.Sprintf("the kernel does not let toold say which devices a sandbox may use (%v)", err)
	c.Hint = "give it CAP_NET_ADMIN, which kernels before 6.12 want for that on cgroup v2; in a service CapabilityBoundingSet=, as the shipped units have it; " + inContainer
	return c
}

// byV1 reports whether a controller is on a v1 hierarchy, by the text of /proc/self/cgroup.
func byV1(own, controller string) bool {
	for line := range strings.Lines(own) {
		if f := strings.SplitN(line, ":", 3); len(f) == 3 && slices.Contains(strings.Split(f[1], ","), controller) {
			return true
		}
	}
	return false
}

// queryDevices is bpf(BPF_PROG_QUERY) for the device programs of a cgroup, without their ids.
func queryDevices(cgroup *os.File) error {
	attr := struct {
		targetFD, attachType, queryFlags, attachFlags uint32
		ids                                           uint64
		count, _                                      uint32
	}{targetFD: uint32(cgroup.Fd()), attachType: unix.BPF_CGROUP_DEVICE}
	_, _, e := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_QUERY, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if e != 0 {
		return fmt.Errorf("bpf: %w", e)
	}
	return nil
}
