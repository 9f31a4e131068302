package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/config"
)

const (
	privateReadyTimeout = 60 * time.Second
	privateStopTimeout  = 30 * time.Second
	// privateRestarts is how often one that was killed, as the kernel does for want of memory, is started
	// again: its calls go on meanwhile, as those of any toold do.
	privateRestarts = 3
)

// privateDaemon is a toold of toolctl's own. It listens in a directory that only
// this user can open, and ends all its sessions and itself when toolctl goes
// away, however that happens: its standard input is a pipe from toolctl.
type privateDaemon struct {
	dir     string
	uids    *uidClaim
	program string
	log     *os.File
	// input and stdin are the two ends of its standard input.
	input, stdin *os.File
	exited       chan struct{} // closed when it has ended for good

	mu    sync.Mutex
	cmd   *exec.Cmd
	again int // how often it is started again where it is killed
}

// reach finds the daemon, or starts a private one where the user named none and none
// listens, unless unfit says why one of our own will not do. stop ends what was started.
func (a *app) reach(ctx context.Context, unfit func() error) (c *client.Client, stop func(), err error) {
	c = a.client()
	_, away := c.Version(ctx)
	if a.socketChosen() || !absent(away) {
		return c, func() {}, nil
	}
	if err := unfit(); err != nil {
		return nil, nil, err
	}
	if m := hereOf(a); !m.root {
		return nil, nil, away // only root can start one
	}
	progress := a.progress("starting a private toold")
	p, err := startPrivateDaemon(ctx)
	progress.stop()
	if err != nil {
		return nil, nil, fmt.Errorf("no toold listens at %s, and a private one could not be started: %w", a.socketPath(), err)
	}
	a.private = true
	return a.clientOf(p.socket()), func() {
		if err := p.stop(); err != nil {
			a.say("%s", lines(err.Error()))
		}
	}, nil
}

// absent reports whether there is no daemon at a socket at all; one that this
// user may not talk to is not absent.
func absent(err error) bool {
	var e *client.UnreachableError
	return errors.As(err, &e) && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED))
}

// startPrivateDaemon starts one and waits until it takes sessions.
func startPrivateDaemon(ctx context.Context) (*privateDaemon, error) {
	program, err := findToold()
	if err != nil {
		return nil, err
	}
	sweepPrivateDirs(os.TempDir())
	dir, err := privateDir()
	if err != nil {
		return nil, err
	}
	uids, err := claimUIDs()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p := &privateDaemon{dir: dir, uids: uids, program: program, exited: make(chan struct{})}
	if err := p.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", program, err), p.closeFiles(), uids.release(), removePrivateDir(dir))
	}
	if err := p.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	p.restart(privateRestarts)
	return p, nil
}

// findToold looks beside toolctl, then in PATH.
func findToold() (string, error) {
	self, unknown := os.Executable()
	if unknown == nil {
		beside := filepath.Join(filepath.Dir(self), "toold")
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return beside, nil
		}
	}
	path, err := exec.LookPath("toold")
	if err != nil && unknown != nil {
		return "", fmt.Errorf("there is no toold program in PATH, and where toolctl lies cannot be read (%w); mount a proc file system at /proc", unknown)
	}
	if err != nil {
		return "", errors.New("there is no toold program beside toolctl or in PATH; install it, or start a daemon and name it with --socket")
	}
	return path, nil
}

func (p *privateDaemon) socket() string { return filepath.Join(p.dir, socketName) }

func (p *privateDaemon) start() (err error) {
	// A file and not a pipe: writing to a pipe whose reader was killed would kill
	// the daemon before it has ended its sessions.
	if p.log, err = os.OpenFile(filepath.Join(p.dir, "log"), os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600); err != nil {
		return err
	}
	if p.input, p.stdin, err = os.Pipe(); err != nil {
		return err
	}
	if err := p.launch(); err != nil {
		return err
	}
	go p.watch()
	return nil
}

// launch starts the program.
func (p *privateDaemon) launch() error {
	cmd := exec.Command(p.program, "--ephemeral",
		"--socket", p.socket(),
		"--state-dir", filepath.Join(p.dir, "state"),
		"--run-dir", filepath.Join(p.dir, "run"),
		"--uid-base", strconv.Itoa(p.uids.base),
		"--metrics-listen", "")
	// The daemon of this host, if there is one, keeps its audit log for itself;
	// and who gave the command is the only one here who could allow it.
	cmd.Env = append(os.Environ(),
		config.EnvName("audit.path")+"="+filepath.Join(p.dir, "state", "audit.jsonl"),
		config.EnvName("approvals.self_approve")+"=true")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.input, p.log, p.log
	// A process group of its own: Ctrl-C in the terminal is for toolctl, which
	// still needs the daemon to end the session.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd = cmd
	return nil
}

// watch waits for the daemon's end, and starts it again where that was not its own doing.
func (p *privateDaemon) watch() {
	defer close(p.exited)
	for again := true; again; {
		_ = p.process().Wait() // how it ended is in ProcessState
		p.mu.Lock()
		killed, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
		again = killed.Signaled() && p.again > 0 && p.launch() == nil
		p.again--
		p.mu.Unlock()
	}
}

// restart says how often it is started again from now on.
func (p *privateDaemon) restart(times int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.again = times
}

func (p *privateDaemon) process() *exec.Cmd {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd
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
			log := p.lastLog()
			if i := strings.LastIndex("\n"+log, "\ntoold: "); i >= 0 {
				return errors.New(log[i+len("toold: "):]) // what it has logged before is no part of the cause
			}
			return fmt.Errorf("toold ended at once (%s):\n%s", p.process().ProcessState, log)
		case <-ctx.Done():
			if interruption(ctx) != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("toold was not ready after %s (%+v):\n%s", privateReadyTimeout, health, p.lastLog())
		}
	}
}

// stop ends the daemon and removes its directory.
func (p *privateDaemon) stop() error {
	p.restart(0)
	_ = p.stdin.Close() // asks it to end its sessions and itself
	if !p.wait(privateStopTimeout) {
		_ = p.process().Process.Signal(syscall.SIGTERM)
		if !p.wait(privateStopTimeout / 2) {
			_ = p.process().Process.Kill()
			<-p.exited
		}
	}
	return errors.Join(p.closeFiles(), p.uids.release(), removePrivateDir(p.dir))
}

// closeFiles closes what is open of the log and the standard input.
func (p *privateDaemon) closeFiles() (err error) {
	for _, f := range []*os.File{p.log, p.input, p.stdin} {
		if f == nil {
			continue
		}
		if cerr := f.Close(); !errors.Is(cerr, os.ErrClosed) {
			err = errors.Join(err, cerr)
		}
	}
	return err
}

// maxLog is how much of the daemon's log is shown, in bytes.
const maxLog = 16 << 10

// lastLog is the end of the daemon's log.
func (p *privateDaemon) lastLog() string {
	info, err := p.log.Stat()
	if err != nil {
		return err.Error()
	}
	b := make([]byte, min(info.Size(), maxLog))
	n, _ := p.log.ReadAt(b, info.Size()-int64(len(b)))
	return strings.TrimSpace(string(b[:n]))
}

func (p *privateDaemon) wait(d time.Duration) bool {
	select {
	case <-p.exited:
		return true
	case <-time.After(d):
		return false
	}
}
