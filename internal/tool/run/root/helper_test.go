package root

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// helperEnv makes this test binary play a role in a process of its own.
const helperEnv = "ROOT_TEST_HELPER"

// errUnexpected is an end that is not the wanted one, be it success.
var errUnexpected = errors.New("not as expected")

// helper runs a role and gives the exit status.
func helper(role string) int {
	err := fmt.Errorf("there is no role %q", role)
	switch role {
	case "writer":
		err = rewriteForever()
	case "mounts":
		err = onSmallMounts()
	case "transaction":
		err = changeUntilKilled()
	case "full":
		err = changeOnFull()
	case "readonly":
		err = changeOnReadOnly()
	case "acl":
		err = replaceForeignACL()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// runHelper is this binary in a role, for the calling goroutine to start: the helper
// ends with the thread that does, and threads of this package end with their tests.
func runHelper(t *testing.T, role string, args ...string) *exec.Cmd {
	t.Helper()
	runtime.LockOSThread()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(args, helperEnv+"="+role)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// content is a text of which every part says which version it is.
func content(version byte) []byte { return bytes.Repeat([]byte{version}, 300<<10) }

// rewriteForever replaces one file by its other version until it is killed.
func rewriteForever() error {
	r, err := New(Config{Dir: os.Getenv("DIR"), UID: -1})
	if err != nil {
		return err
	}
	r.named = os.Getenv("NAMED") != ""
	ctx := context.Background()
	for i := 0; ; i++ {
		if i == 1 {
			fmt.Println("ready")
		}
		p, err := r.Begin(ctx, "/f", BeginOptions{})
		if err != nil {
			return err
		}
		if _, err := p.Commit(ctx, content("ab"[i%2]), CommitOptions{}); err != nil {
			return err
		}
		p.Close()
	}
}

// onSmallMounts runs in a mount namespace of its own, so that nothing is left
// of its mounts however it ends.
func onSmallMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	dir := os.Getenv("DIR")
	if err := unix.Mount("none", dir, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, "size=256k,nr_inodes=16"); err != nil {
		return fmt.Errorf("mount a small tmpfs: %w", err)
	}
	for _, named := range []bool{false, true} {
		r, err := New(Config{Dir: dir, UID: -1})
		if err != nil {
			return err
		}
		r.named = named
		if err := fillUp(r, dir); err != nil {
			return fmt.Errorf("named %v: %w", named, err)
		}
		r.Close()
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("remount read-only: %w", err)
	}
	r, err := New(Config{Dir: dir, UID: -1})
	if err != nil {
		return err
	}
	defer r.Close()
	for _, path := range []string{"/f", "/new", "/d/new"} {
		p, err := r.Begin(context.Background(), path, BeginOptions{Parents: true})
		if err == nil {
			_, err = p.Commit(context.Background(), []byte("new"), CommitOptions{})
			p.Close()
		}
		if CodeOf(err) != Failed || !errors.Is(err, unix.EROFS) {
			return fmt.Errorf("write %s to a read-only file system: %w", path, errors.Join(errUnexpected, err))
		}
	}
	return nil
}

// fillUp proves that a write that finds no room changes nothing.
func fillUp(r *Root, dir string) error {
	ctx := context.Background()
	if err := os.WriteFile(dir+"/f", []byte("old"), 0o644); err != nil {
		return err
	}
	try := func(path string, content []byte) error {
		p, err := r.Begin(ctx, path, BeginOptions{Parents: true})
		if err != nil {
			return err
		}
		defer p.Close()
		_, err = p.Commit(ctx, content, CommitOptions{Durable: true})
		return err
	}
	for _, path := range []string{"/f", "/new"} {
		err := try(path, content('x'))
		if CodeOf(err) != Failed || !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "no space") {
			return fmt.Errorf("write %s to a full file system: %w", path, errors.Join(errUnexpected, err))
		}
	}
	for i := range 16 { // until there are no inodes
		os.WriteFile(fmt.Sprintf("%s/i%d", dir, i), nil, 0o644)
	}
	if err := try("/new", []byte("x")); CodeOf(err) != Failed || !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("write without inodes: %w", errors.Join(errUnexpected, err))
	}
	for i := range 16 {
		os.Remove(fmt.Sprintf("%s/i%d", dir, i))
	}
	if got, err := os.ReadFile(dir + "/f"); string(got) != "old" {
		return fmt.Errorf("the old content became %.20q, %w", got, errors.Join(errUnexpected, err))
	}
	names, err := os.ReadDir(dir)
	if len(names) != 1 {
		return fmt.Errorf("left over: %v, %w", names, errors.Join(errUnexpected, err))
	}
	return nil
}

// replaceForeignACL replaces a file whose access control list names users that
// do not exist in this user namespace.
func replaceForeignACL() error {
	r, err := New(Config{Dir: os.Getenv("DIR"), UID: -1})
	if err != nil {
		return err
	}
	defer r.Close()
	p, err := r.Begin(context.Background(), "/f", BeginOptions{})
	if err != nil {
		return err
	}
	defer p.Close()
	done, err := p.Commit(context.Background(), []byte("new"), CommitOptions{})
	if CodeOf(err) != Denied || !strings.Contains(err.Error(), "access control list") {
		return fmt.Errorf("commit: %+v, %w", done, errors.Join(errUnexpected, err))
	}
	return nil
}
