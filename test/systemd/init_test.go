package systemd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// systemdPath is the init of the machine.
const systemdPath = "/usr/lib/systemd/systemd"

// dropped are the capabilities that reach the host itself through no namespace.
var dropped = []uintptr{unix.CAP_SYS_MODULE, unix.CAP_SYS_TIME, unix.CAP_SYS_RAWIO, unix.CAP_SYSLOG, unix.CAP_WAKE_ALARM, unix.CAP_MAC_ADMIN}

// boot is the first process of a machine: it makes a root file system of layers,
// the uppermost first, and becomes systemd. It is in namespaces of its own.
func boot(name string, layers []string) error {
	runtime.LockOSThread() // capabilities are a thread's
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Sethostname([]byte("toold-test")); err != nil {
		return err
	}
	hierarchies, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return err
	}
	m := &mounter{}
	root := m.root(layers)
	m.proc(root)
	m.cgroups(root, hierarchies)
	m.dev(root)
	// An overlay has no id-mapped mounts; these have.
	for dir, size := range map[string]string{"/run": "256m", "/tmp": "256m", "/srv": "256m", "/var/lib": "8g"} {
		m.mount("tmpfs", root+dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size="+size)
	}
	if m.err != nil {
		return m.err
	}
	if err := enter(root); err != nil {
		return err
	}
	for _, c := range dropped {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	env := []string{"container=toold-test", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	return syscall.Exec(systemdPath, []string{systemdPath, "--system", "--unit=multi-user.target", "--show-status=no"}, env)
}

// mounter mounts until there is an error.
type mounter struct{ err error }

func (m *mounter) mount(source, target, fstype string, flags uintptr, data string) {
	if m.err != nil {
		return
	}
	if m.err = os.MkdirAll(target, 0o755); m.err != nil {
		return
	}
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		m.err = fmt.Errorf("mount %s at %s: %w", fstype, target, err)
	}
}

// root mounts layers below a fresh memory file system that takes all changes.
func (m *mounter) root(layers []string) string {
	var lower []string
	for _, l := range layers {
		// The directory may be below the one that is about to be hidden.
		fd, err := unix.Open(l, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			m.err = errors.Join(m.err, &os.PathError{Op: "open", Path: l, Err: err})
		}
		lower = append(lower, fmt.Sprintf("/proc/self/fd/%d", fd))
	}
	m.mount("tmpfs", "/tmp", "tmpfs", 0, "mode=755,size=1g")
	for _, dir := range []string{"/tmp/upper", "/tmp/work", "/tmp/root"} {
		m.err = errors.Join(m.err, os.MkdirAll(dir, 0o755))
	}
	m.mount("overlay", "/tmp/root", "overlay", 0, "lowerdir="+strings.Join(lower, ":")+",upperdir=/tmp/upper,workdir=/tmp/work")
	return "/tmp/root"
}

func (m *mounter) proc(root string) {
	m.mount("proc", root+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	// While it boots, systemd would change what the whole host has.
	m.mount(root+"/proc/sys", root+"/proc/sys", "", unix.MS_BIND, "")
	m.mount("", root+"/proc/sys", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	m.mount("sysfs", root+"/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "")
}

// cgroups mounts the hierarchies of the host where they are there; this process's
// cgroup namespace makes the cgroup that it was born in the root of each.
func (m *mounter) cgroups(root string, hierarchies []*mountinfo.Info) {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if len(hierarchies) > 0 && hierarchies[0].Mountpoint != "/sys/fs/cgroup" {
		m.mount("tmpfs", root+"/sys/fs/cgroup", "tmpfs", flags, "mode=755,size=1m")
	}
	seen := map[string]bool{}
	for _, h := range hierarchies {
		options := strings.TrimPrefix(strings.TrimPrefix(h.VFSOptions, "rw"), ",")
		if h.FSType == "cgroup2" {
			options = ""
		} else if strings.Contains(options, "name=") && !strings.HasPrefix(options, "none") {
			options = "none," + options
		}
		if key := h.FSType + options; !seen[key] && strings.HasPrefix(h.Mountpoint, "/sys/fs/cgroup") {
			seen[key] = true
			m.mount("cgroup", root+h.Mountpoint, h.FSType, flags, options)
		}
	}
}

// dev gives the machine the devices that every container has, the one by which loop
// devices are asked for, and none of the host's others: neither disks nor the kernel's
// log.
func (m *mounter) dev(root string) {
	dev := root + "/dev"
	m.mount("tmpfs", dev, "tmpfs", unix.MS_NOSUID, "mode=755,size=1m")
	m.mount("devpts", dev+"/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5")
	m.mount("tmpfs", dev+"/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777,size=64m")
	if m.err != nil {
		return
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty", "loop-control"} {
		if _, err := os.Stat("/dev/" + name); err != nil {
			continue
		}
		at := filepath.Join(dev, name)
		m.err = errors.Join(m.err, os.WriteFile(at, nil, 0o600), unix.Mount("/dev/"+name, at, "", unix.MS_BIND, ""))
	}
	for name, to := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		m.err = errors.Join(m.err, os.Symlink(to, filepath.Join(dev, name)))
	}
}

// enter makes root the root of this mount namespace, which nothing else is in.
func enter(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the host's root: %w", err)
	}
	return os.Chdir("/")
}
