package worktree

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// hostPlaces belong to the host: a session that could write there would be the
// host. Refused are they, all below them, and all that contains one of them.
var hostPlaces = []string{
	"/etc", "/proc", "/sys", "/dev", "/run", "/boot", "/var/run",
	"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/libexec",
	"/usr/local/bin", "/usr/local/sbin", "/usr/local/lib",
	"/var/lib/toold", "/var/lib/docker", "/var/lib/containerd", "/var/lib/kubelet", "/var/spool/cron",
}

// hostFileSystems show the kernel's state as files, wherever they are mounted.
var hostFileSystems = map[int64]string{
	unix.PROC_SUPER_MAGIC:    "proc",
	unix.SYSFS_MAGIC:         "sysfs",
	unix.CGROUP_SUPER_MAGIC:  "cgroup",
	unix.CGROUP2_SUPER_MAGIC: "cgroup2",
	unix.DEBUGFS_MAGIC:       "debugfs",
	unix.TRACEFS_MAGIC:       "tracefs",
	unix.SECURITYFS_MAGIC:    "securityfs",
	unix.BPF_FS_MAGIC:        "bpf",
	unix.DEVPTS_SUPER_MAGIC:  "devpts",
	unix.EFIVARFS_MAGIC:      "efivarfs",
	unix.PSTOREFS_MAGIC:      "pstore",
	unix.BINFMTFS_MAGIC:      "binfmt_misc",
	unix.NSFS_MAGIC:          "nsfs",
	unix.SELINUX_MAGIC:       "selinuxfs",
}

func (r Rules) places() []string {
	places := slices.Clone(hostPlaces)
	for _, p := range r.Private {
		places = append(places, filepath.Clean(p))
	}
	return places
}

// checkPlace refuses a path by its name.
func (r Rules) checkPlace(path string) error {
	for _, place := range r.places() {
		switch {
		case Within(path, place):
			return fmt.Errorf("%w: %s is the host's own", ErrForbidden, place)
		case Within(place, path):
			return fmt.Errorf("%w: it contains %s, which is the host's own; name a directory below it", ErrForbidden, place)
		}
	}
	return nil
}

// checkOpened refuses what has turned out to be a place of the host: by the name
// it really has, as the same directory mounted a second time, or by the kind of
// its file system.
func (r Rules) checkOpened(d *Directory) error {
	if err := r.checkPlace(d.Path); err != nil {
		return err
	}
	if err := unix.Fstatfs(int(d.Fd()), &d.Disk); err != nil {
		return err
	}
	if name, ok := hostFileSystems[d.Disk.Type]; ok {
		return fmt.Errorf("%w: a %s file system is the host's own", ErrForbidden, name)
	}
	own, err := d.Stat()
	if err != nil {
		return err
	}
	for _, place := range append(r.places(), "/") {
		if fi, err := os.Stat(place); err == nil && os.SameFile(own, fi) {
			return fmt.Errorf("%w: it is %s, which is the host's own", ErrForbidden, place)
		}
	}
	return nil
}
