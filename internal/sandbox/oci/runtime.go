package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// runtime is one OCI runtime, driven by its command line.
//
// It is started by os/exec and not by containerd's go-runc: each command has to
// be born in the session's kill cgroup (SysProcAttr.UseCgroupFD), so that a
// container that is half made when the daemon dies is found and killed with the
// rest, and go-runc gives no way to set that.
type runtime struct {
	name, path string
	root       string // the runtime's --root
	gvisor     bool
}

// start runs `run -d` in a cgroup: when it returns nil, the container's process has been
// started. files become descriptors 3 and up of that process, stdio its
// standard output and error.
func (r runtime) start(ctx context.Context, flags []string, id, bundle string, cgroup, stdio *os.File, files ...*os.File) error {
	args := slices.Concat(flags, []string{"run", "--detach", "--bundle", bundle, "--pid-file", filepath.Join(bundle, "pid")})
	if len(files) > 0 {
		args = append(args, "--preserve-fds", strconv.Itoa(len(files)))
	}
	cmd := r.plain(ctx, append(args, id)...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = stdio, stdio, files
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, UseCgroupFD: true, CgroupFD: int(cgroup.Fd())}
	// Pdeathsig is sent when the thread ends, not the process.
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s run: %w", r.name, err)
	}
	return nil
}

// remove makes the runtime forget a container whose processes are dead. One that
// it does not know is no error.
func (r runtime) remove(ctx context.Context, id string) error {
	if _, err := os.Stat(filepath.Join(r.root, id)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	// Without --force it takes no part in killing, which in runc takes 100 ms
	// even of what is dead. With it, half made containers go too.
	if r.delete(ctx, id) == nil {
		return nil
	}
	return r.delete(ctx, "--force", id)
}

func (r runtime) delete(ctx context.Context, args ...string) error {
	var out bytes.Buffer
	cmd := r.command(ctx, append([]string{"delete"}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s delete: %w: %s", r.name, err, strings.TrimSpace(out.String()))
	}
	return nil
}

func (r runtime) command(ctx context.Context, args ...string) *exec.Cmd {
	return r.plain(ctx, append(r.flags(), args...)...)
}

func (r runtime) flags() []string { return []string{"--root", r.root} }

func (r runtime) plain(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.path, args...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Dir = "/"
	return cmd
}
