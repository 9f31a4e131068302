package systemd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
)

// roleVariable is the environment variable that makes the test program one of the
// processes around a machine: its keeper or its init.
const roleVariable = "TOOLD_TEST_SYSTEMD_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleVariable) {
	case "keeper":
		err = keep(os.Args[1], os.Args[2:])
	case "init":
		err = boot(os.Args[1], os.Args[2:])
	case "janitor":
		_, _ = io.Copy(io.Discard, os.Stdin) // until the tests have ended, however
		err = os.RemoveAll(os.Args[1])
	default:
		code := m.Run()
		programs.remove()
		os.Exit(code)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, os.Getenv(roleVariable)+":", err)
		os.Exit(1)
	}
}

// keep boots a machine whose cgroups are called name, says the pid of its init, and
// ends it when standard input closes, which it does however the test ends. What the
// machine has made on the host is removed then: it is all below those cgroups.
func keep(name string, layers []string) (err error) {
	runtime.LockOSThread() // the init is to die with this thread
	groups, err := hostGroups()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, groups.remove(name)) }()
	if err := groups.enter(name); err != nil {
		return err
	}
	// It begins here, and its cgroup namespace with it.
	init := exec.Command("/proc/self/exe", append([]string{name}, layers...)...)
	init.Env = []string{roleVariable + "=init", "container=toold-test", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	init.Stdout, init.Stderr = os.Stderr, os.Stderr
	init.SysProcAttr = &syscall.SysProcAttr{
		Setsid:    true,
		Pdeathsig: syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS |
			syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET | syscall.CLONE_NEWCGROUP,
	}
	if err := init.Start(); err != nil {
		return errors.Join(err, groups.leave())
	}
	if err := groups.leave(); err != nil {
		return errors.Join(err, init.Process.Kill(), init.Wait())
	}
	fmt.Println(init.Process.Pid)
	ended := make(chan error, 1)
	closed := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(closed) }()
	go func() { ended <- init.Wait() }()
	select {
	case err := <-ended:
		return fmt.Errorf("the machine's init has ended: %w", err)
	case <-closed:
	}
	// All its processes are in its pid namespace, and die with it.
	err = init.Process.Kill()
	<-ended
	return err
}

// groups are the cgroup hierarchies of the host.
type groups struct {
	mounts []*mountinfo.Info
	own    map[string]string // mount point → this process's own cgroup there
	added  []string          // controllers that v2's root did not hand down before
}

// controllers are those that sessions need.
var controllers = []string{"cpu", "cpuset", "io", "memory", "pids"}

func hostGroups() (*groups, error) {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.FSType != "cgroup" && m.FSType != "cgroup2" || m.Root != "/", false
	})
	if err != nil {
		return nil, err
	}
	g := &groups{own: map[string]string{}}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		if slices.ContainsFunc(g.mounts, func(o *mountinfo.Info) bool { return o.VFSOptions == m.VFSOptions && o.FSType == m.FSType }) {
			continue // the same hierarchy once more
		}
		for line := range strings.Lines(string(text)) {
			f := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(f) == 3 && (f[1] == "" && m.FSType == "cgroup2" || f[1] != "" && m.FSType == "cgroup" && slices.Contains(strings.Split(m.VFSOptions, ","), strings.Split(f[1], ",")[0])) {
				g.mounts = append(g.mounts, m)
				g.own[m.Mountpoint] = f[2]
			}
		}
	}
	if len(g.mounts) == 0 {
		return nil, errors.New("no cgroup hierarchy is mounted")
	}
	return g, nil
}

// enter makes a cgroup in every hierarchy and moves this process there.
func (g *groups) enter(name string) error {
	for _, m := range g.mounts {
		if m.FSType == "cgroup2" {
			g.handDown(m.Mountpoint)
		}
		dir := filepath.Join(m.Mountpoint, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		// A v1 cpuset takes no process before it has processors and memory.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if value, err := os.ReadFile(filepath.Join(m.Mountpoint, file)); err == nil && m.FSType == "cgroup" {
				if err := os.WriteFile(filepath.Join(dir, file), value, 0); err != nil {
					return err
				}
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			return err
		}
	}
	return nil
}

// handDown gives the children of v2's root the controllers that it has.
func (g *groups) handDown(root string) {
	has, _ := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	file := filepath.Join(root, "cgroup.subtree_control")
	given, _ := os.ReadFile(file)
	for _, c := range controllers {
		if slices.Contains(strings.Fields(string(has)), c) && !slices.Contains(strings.Fields(string(given)), c) &&
			os.WriteFile(file, []byte("+"+c), 0) == nil {
			g.added = append(g.added, c)
		}
	}
}

// leave moves this process back to where it came from.
func (g *groups) leave() error {
	var err error
	for mount, path := range g.own {
		err = errors.Join(err, os.WriteFile(filepath.Join(mount, path, "cgroup.procs"), []byte("0"), 0))
	}
	return err
}

// remove removes the cgroups, whose processes are dead or about to be.
func (g *groups) remove(name string) error {
	var err error
	for _, m := range g.mounts {
		err = errors.Join(err, removeGroup(filepath.Join(m.Mountpoint, name)))
		if m.FSType == "cgroup2" {
			for _, c := range g.added {
				err = errors.Join(err, os.WriteFile(filepath.Join(m.Mountpoint, "cgroup.subtree_control"), []byte("-"+c), 0))
			}
		}
	}
	return err
}

func removeGroup(dir string) error {
	children, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range children {
		if e.IsDir() {
			err = errors.Join(err, removeGroup(filepath.Join(dir, e.Name())))
		}
	}
	// What has just died keeps it busy for a moment.
	for end := time.Now().Add(bound); ; time.Sleep(10 * time.Millisecond) {
		removed := syscall.Rmdir(dir)
		if removed == nil || errors.Is(removed, fs.ErrNotExist) {
			return err
		}
		if time.Now().After(end) {
			return errors.Join(err, &fs.PathError{Op: "rmdir", Path: dir, Err: removed})
		}
	}
}
