package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"

	"github.com/toold/toold/client"
)

const (
	privateReadyTimeout = 60 * time.Second
	privateStopTimeout  = 30 * time.Second
)

// privateDaemon is a toold of toolctl's own. It listens in a directory that only
// this user can open, and ends all its sessions and itself when toolctl goes
// away, however that happens: its standard input is a pipe from toolctl.
type privateDaemon struct {
	dir    string
	uids   *uidClaim
	cmd    *exec.Cmd
	stdin  io.Closer
	log    tail
	exited chan struct{} // closed after cmd.Wait
}

// startPrivateDaemon starts one and waits until it takes sessions.
func startPrivateDaemon(ctx context.Context) (*privateDaemon, error) {
	program, err := findToold()
	if err != nil {
		return nil, err
	}
	dir, err := privateDir()
	if err != nil {
		return nil, err
	}
	uids, err := claimUIDs()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p := &privateDaemon{dir: dir, uids: uids, exited: make(chan struct{})}
	if err := p.start(program); err != nil {
		return nil, errors.Join(err, uids.release(), os.RemoveAll(dir))
	}
	if err := p.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// findToold looks beside toolctl, then in PATH.
func findToold() (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "toold")
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return beside, nil
		}
	}
	path, err := exec.LookPath("toold")
	if err != nil {
		return "", errors.New("there is no toold program beside toolctl or in PATH; install it, or start a daemon and name it with --socket")
	}
	return path, nil
}

// socketName is where the socket is in the private directory: in toold's run
// directory, which toold makes 0750.
const socketName = "run/toold.sock"

// maxSocketDir is the longest directory in which that still makes a socket
// address (108 bytes with its end).
const maxSocketDir = 107 - len("/"+socketName)

// privateDir makes the directory. Others may pass it, because the users that
// sandboxes run as must reach their root directories in it, but they can neither
// list nor guess what is there, and toold closes what is below.
func privateDir() (string, error) {
	dir, err := os.MkdirTemp("", "toolctl-run-")
	if err == nil && len(dir) > maxSocketDir {
		_ = os.Remove(dir)
		dir, err = os.MkdirTemp("/tmp", "toolctl-run-")
	}
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		return "", fmt.Errorf("make a directory for the private daemon: %w", err)
	}
	return dir, nil
}

func (p *privateDaemon) socket() string { return filepath.Join(p.dir, socketName) }

func (p *privateDaemon) start(program string) error {
	p.cmd = exec.Command(program, "--ephemeral",
		"--socket", p.socket(),
		"--state-dir", filepath.Join(p.dir, "state"),
		"--run-dir", filepath.Join(p.dir, "run"),
		"--uid-base", strconv.Itoa(p.uids.base),
		"--metrics-listen", "")
	p.cmd.Stderr = &p.log
	p.cmd.Stdout = &p.log
	// A process group of its own: Ctrl-C in the terminal is for toolctl, which
	// still needs the daemon to end the session.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	p.stdin = stdin
	go func() {
		_ = p.cmd.Wait() // how it ended is in ProcessState
		close(p.exited)
	}()
	return nil
}

func (p *privateDaemon) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, privateReadyTimeout)
	defer cancel()
	c := client.New(client.Options{Socket: p.socket()})
	defer c.Close()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var health *client.Health
	for {
		if h, err := c.Ready(ctx); err == nil {
			if health = h; h.Status == "ok" {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-p.exited:
			return fmt.Errorf("toold ended at once (%s):\n%s", p.cmd.ProcessState, p.log.String())
		case <-ctx.Done():
			if interruption(ctx) != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("toold was not ready after %s (%+v):\n%s", privateReadyTimeout, health, p.log.String())
		}
	}
}

// stop ends the daemon and removes its directory.
func (p *privateDaemon) stop() error {
	_ = p.stdin.Close() // asks it to end its sessions and itself
	if !p.wait(privateStopTimeout) {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		if !p.wait(privateStopTimeout / 2) {
			_ = p.cmd.Process.Kill()
			<-p.exited
		}
	}
	return errors.Join(p.uids.release(), p.remove())
}

func (p *privateDaemon) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.exited:
		return true
	case <-t.C:
		return false
	}
}

// remove deletes the daemon's directory, unless something is still mounted in
// it: that could be a worktree, and removing would go through to its files.
func (p *privateDaemon) remove() error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(p.dir))
	if err != nil {
		return fmt.Errorf("%s stays: it cannot be seen whether something is mounted in it: %w", p.dir, err)
	}
	if len(mounts) > 0 {
		return fmt.Errorf("%s stays: %s is still mounted; unmount it, then remove the directory", p.dir, mounts[0].Mountpoint)
	}
	if err := os.RemoveAll(p.dir); err != nil {
		return fmt.Errorf("remove the private daemon's directory: %w", err)
	}
	return nil
}

// tail keeps the last bytes that were written to it.
type tail struct {
	mu  sync.Mutex // guards buf
	buf []byte
}

const maxTail = 16 << 10

// Write never fails.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - maxTail; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

// String is what is kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.buf))
}
