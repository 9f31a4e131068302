package testrig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/toold/toold/client"
)

// Daemon is a toold that runs for a test.
type Daemon struct {
	Cmd    *exec.Cmd
	Done   chan struct{} // closed when it has ended
	socket string
	log    *os.File
	stdin  io.Closer
}

// Flags are those of a daemon whose files are all below dir, whose sessions have their
// cgroups below /cgroup and their ids from uids on. Where others say otherwise, the later
// one counts.
func Flags(dir, cgroup string, uids uint32) []string {
	return []string{
		"--socket", Socket(dir), "--state-dir", filepath.Join(dir, "state"), "--run-dir", filepath.Join(dir, "run"),
		"--metrics-listen", "", "--cgroup-parent", "/" + cgroup, "--uid-base", strconv.FormatUint(uint64(uids), 10), "--log", "text",
	}
}

// Socket is that of a daemon with these Flags.
func Socket(dir string) string { return filepath.Join(dir, "run", "toold.sock") }

// StartDaemon runs a daemon that listens at socket, and waits until it is ready. What it
// logs is appended to a file: a daemon that wrote to a pipe would die with its reader. It
// is in a process group of its own; given --ephemeral it ends its sessions and itself when
// the test does, also when that is killed.
func StartDaemon(socket, log string, argv ...string) (*Daemon, error) {
	d, err := LaunchDaemon(socket, log, argv...)
	if err != nil {
		return nil, err
	}
	if err := d.Ready(); err != nil {
		return nil, errors.Join(err, d.Kill())
	}
	return d, nil
}

// LaunchDaemon is StartDaemon for those who ask something of it before it is ready.
func LaunchDaemon(socket, log string, argv ...string) (*Daemon, error) {
	d := &Daemon{Cmd: exec.Command(argv[0], argv[1:]...), Done: make(chan struct{}), socket: socket}
	var err error
	if d.log, err = os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return nil, err
	}
	d.Cmd.Stdout, d.Cmd.Stderr = d.log, d.log
	d.Cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if d.stdin, err = d.Cmd.StdinPipe(); err != nil {
		return nil, errors.Join(err, d.log.Close())
	}
	if err := d.Cmd.Start(); err != nil {
		return nil, errors.Join(err, d.log.Close())
	}
	go func() { _ = d.Cmd.Wait(); close(d.Done) }()
	return d, nil
}

// Ready waits until it is.
func (d *Daemon) Ready() error {
	c := client.New(client.Options{Socket: d.socket})
	defer c.Close()
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if h, err := c.Ready(context.Background()); err == nil && h.Status == "ok" {
			return nil
		}
		select {
		case <-d.Done:
			return fmt.Errorf("toold ended at once:\n%s", d.Log())
		default:
		}
	}
	return fmt.Errorf("toold is not ready after %s:\n%s", Patience, d.Log())
}

// Log is all that it has logged.
func (d *Daemon) Log() string {
	b, err := os.ReadFile(d.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Kill ends it as a crash would.
func (d *Daemon) Kill() error {
	err := d.Cmd.Process.Kill()
	<-d.Done
	return errors.Join(err, d.log.Close())
}

// CloseStdin waits for an ephemeral daemon to end because its standard input does.
func (d *Daemon) CloseStdin() error {
	return d.end("its standard input was closed", d.stdin.Close)
}

// Terminate waits for it to end because of a SIGTERM.
func (d *Daemon) Terminate() error {
	return d.end("SIGTERM", func() error { return d.Cmd.Process.Signal(syscall.SIGTERM) })
}

func (d *Daemon) end(what string, ask func() error) error {
	select {
	case <-d.Done: // it has been killed
		return nil
	default:
	}
	err := ask()
	select {
	case <-d.Done:
		return errors.Join(err, d.log.Close())
	case <-time.After(Patience):
		return errors.Join(err, fmt.Errorf("toold has not ended %s after %s", Patience, what), d.Kill())
	}
}

// Cgroups are the directories of a cgroup in every hierarchy.
func Cgroups(name string) []string {
	found, _ := filepath.Glob("/sys/fs/cgroup/*/" + name) // the pattern is well formed
	unified, _ := filepath.Glob("/sys/fs/cgroup/" + name)
	return append(found, unified...)
}

// RemoveCgroups removes a cgroup, with those below it, from every hierarchy. One with a
// process in it cannot be removed: something was left running.
func RemoveCgroups(name string) error {
	var failed error
	for _, parent := range Cgroups(name) {
		var dirs []string
		_ = filepath.WalkDir(parent, func(p string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, p)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) { // children first
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				failed = fmt.Errorf("left behind: %w", err)
			}
		}
	}
	return failed
}
