package far

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// DialFunc makes a connection to one place.
type DialFunc func(ctx context.Context) (net.Conn, error)

// SSH connects to the input and output of a command on another host, by way of the ssh
// program, which finds keys and known hosts as its user has set them up, and never asks
// anything. Only connecting has a deadline: the caller bounds the rest.
func SSH(u *url.URL, command ...string) (DialFunc, error) {
	// A host that is gone must be noticed: nothing is said on an idle connection.
	args := []string{"-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15", "-T"}
	if user := u.User.Username(); user != "" {
		args = append(args, "-l", user)
	}
	if u.Port() != "" {
		args = append(args, "-p", u.Port())
	}
	if strings.HasPrefix(u.Hostname(), "-") || strings.HasPrefix(u.User.Username(), "-") {
		return nil, errors.New("neither user nor host may begin with a dash")
	}
	args = append(append(args, "--", u.Hostname()), command...)
	return func(ctx context.Context) (net.Conn, error) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return startSSH(args)
	}, nil
}

// sshConn is a connection that a process carries.
type sshConn struct {
	net.Conn
	cmd  *exec.Cmd
	said *words
	once sync.Once
	err  error

	began atomic.Bool // something was read
}

// maxSaid bounds what of ssh's words goes into an error, in bytes.
const maxSaid = 2 << 10

// words are the first that a program says on its standard error.
type words struct {
	mu sync.Mutex // guards b
	b  []byte
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b = append(w.b, p[:min(len(p), maxSaid-len(w.b))]...)
	return len(p), nil
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.TrimSpace(string(w.b))
}

// Read says why there is nothing to read: ssh does, on its standard error. Write may have closed the connection
// for it.
func (c *sshConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.began.Store(true)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, net.ErrClosed) {
		err = c.why(err)
	}
	return n, err
}

// Write says why nothing can be written: it may find that out before Read does, or
// right after Read has closed the connection for it.
func (c *sshConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, net.ErrClosed) {
		err = c.why(err)
	}
	return n, err
}

// why gives what ssh said before it ended, if it ended before it had connected.
func (c *sshConn) why(err error) error {
	if c.began.Load() {
		return err
	}
	_ = c.Close() // then all is said
	if said := c.said.String(); said != "" || !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("ssh has ended: %q", said)
	}
	return err
}

// startSSH gives ssh one end of a pair of sockets for its input and output.
func startSSH(args []string) (net.Conn, error) {
	conn, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := exec.Command("ssh", args...)
	said := new(words)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, said
	cmd.WaitDelay = time.Second // should a child of ssh's hold its standard error
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start ssh: %w", err), conn.Close())
	}
	return &sshConn{Conn: conn, cmd: cmd, said: said}, nil
}

// Close ends the process too.
func (c *sshConn) Close() error {
	c.once.Do(func() {
		c.err = c.Conn.Close()
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait() // it was killed
	})
	return c.err
}
