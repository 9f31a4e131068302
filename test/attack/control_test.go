package attack

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// weak is a container with its defences off: the negative control. An attack
// that fails here too proves nothing where it fails in a session.
type weak struct {
	root    bool     // container root with every capability of its user namespace, else uid 1000 without any
	initial bool     // in the host's user namespace: only for attacks on a decoy inside the container
	binds   []string // host directories shown read-write at the same path below /mnt
	suid    bool     // let set-uid files and new privileges be
}

// run runs probe with args in the weak container and gives its outcomes.
func (w weak) run(t *testing.T, args ...string) outcomes {
	t.Helper()
	return parseOutcomes(w.output(t, append([]string{"/probe"}, args...)...))
}

// output runs a command in the weak container and gives all that it printed.
func (w weak) output(t *testing.T, argv ...string) string {
	t.Helper()
	dir := t.TempDir()
	rootfs := filepath.Join(dir, "rootfs")
	for _, d := range []string{"usr", "proc", "dev", "tmp", "run/toold", "mnt", "etc"} {
		must(t, os.MkdirAll(filepath.Join(rootfs, d), 0o755))
	}
	for _, l := range []string{"bin", "lib", "lib64", "sbin"} {
		must(t, os.Symlink("usr/"+l, filepath.Join(rootfs, l)))
	}
	must(t, os.WriteFile(filepath.Join(rootfs, "run/toold/sandbox"), nil, 0o644))
	copyFile(t, bin.probe, filepath.Join(rootfs, "probe"), 0o755)

	caps := []string{}
	if w.root {
		caps = []string{"CAP_SYS_ADMIN", "CAP_MKNOD", "CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_SYS_PTRACE", "CAP_KILL", "CAP_SETUID", "CAP_SETGID", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_SYS_CHROOT", "CAP_FSETID"}
	}
	uid := uint32(1000)
	if w.root {
		uid = 0
	}
	opts := []string{"nosuid", "nodev"}
	if w.suid {
		opts = nil
	}
	spec := specs.Spec{
		Version: specs.Version,
		Root:    &specs.Root{Path: "rootfs"},
		Process: &specs.Process{
			Args: argv, Cwd: "/", Env: []string{"PATH=/usr/bin:/bin"}, User: specs.User{UID: uid, GID: uid},
			Capabilities:    &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
			NoNewPrivileges: !w.suid,
		},
		Mounts: []specs.Mount{
			{Destination: "/usr", Source: "/usr", Type: "bind", Options: []string{"rbind", "ro"}},
			{Destination: "/proc", Source: "proc", Type: "proc"},
			{Destination: "/dev", Source: "tmpfs", Type: "tmpfs", Options: []string{"mode=755", "size=1m"}},
			{Destination: "/tmp", Source: "tmpfs", Type: "tmpfs", Options: []string{"mode=1777", "size=64m"}},
		},
		Linux: &specs.Linux{
			CgroupsPath: "/" + cgroupParent + "/control-" + filepath.Base(dir),
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace},
				{Type: specs.MountNamespace},
				{Type: specs.NetworkNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.CgroupNamespace},
			},
		},
	}
	for _, b := range w.binds {
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/mnt", Source: b, Type: "bind", Options: append([]string{"rbind", "rw"}, opts...)})
	}
	if !w.initial {
		base := uint32(1_800_000_000)
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
		spec.Linux.UIDMappings = []specs.LinuxIDMapping{{ContainerID: 0, HostID: base, Size: 65536}}
		spec.Linux.GIDMappings = spec.Linux.UIDMappings
	}
	b, err := json.Marshal(spec)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "config.json"), b, 0o600))
	must(t, os.Chmod(dir, 0o711))
	must(t, os.Chmod(filepath.Dir(dir), 0o711))
	id := "control-" + filepath.Base(filepath.Dir(dir)) + "-" + filepath.Base(dir)
	root := filepath.Join(dir, "runc")
	cmd := exec.Command(bin.runc, "--root", root, "run", "--bundle", dir, id)
	out, err := cmd.CombinedOutput()
	t.Cleanup(func() { exec.Command(bin.runc, "--root", root, "delete", "-f", id).Run() })
	if err != nil && len(out) == 0 {
		t.Fatalf("control container: %v", err)
	}
	return string(out)
}
