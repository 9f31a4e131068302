package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/agent/inside"
)

// listening listens in a directory of the agent's own, for sandboxes that see no
// file of the daemon's: it comes in by the "connect" of another agent. It closes
// all descriptors that the runtime has passed on.
func listening(dir string) (inside.Connections, []byte, error) {
	if err := unix.CloseRange(listenFD, uint(^uint32(0)), 0); err != nil {
		return nil, nil, fmt.Errorf("close other descriptors: %w", err)
	}
	// Some runtimes give a memory file system the mode of the image's directory of that
	// name, and from another host nobody can put that right.
	for _, shared := range []string{"/tmp", "/dev/shm"} {
		if err := os.Chmod(shared, 0o777|os.ModeSticky); err != nil {
			return nil, nil, fmt.Errorf("let tools write there: %w", err)
		}
	}
	nonce, err := nonceIn(dir)
	if err != nil {
		return nil, nil, err
	}
	path := filepath.Join(dir, "socket")
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	// Nobody else is here yet: the directory is closed to tools, and so is this.
	old := unix.Umask(0o077)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(old)
	return ln, nonce, err
}

// connect carries one connection of the daemon's to an agent that listens: from the
// standard input to the socket, and back to the standard output. It knows nothing
// of what it carries; the nonce is the daemon's to show.
func connect(path string) error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make the memory unreadable: %w", err)
	}
	c, err := dialSoon(path)
	if err != nil {
		return err
	}
	// Either end ends both: the process ends with the first.
	done := make(chan error, 2)
	go func() { _, err := io.Copy(c, os.Stdin); done <- err }()
	go func() { _, err := io.Copy(os.Stdout, c); done <- err }()
	return errors.Join(<-done, c.Close())
}

// startTime is how long an agent that has just been started may take to listen.
const startTime = 10 * time.Second

// dialSoon dials a socket that may not be there yet.
func dialSoon(path string) (*net.UnixConn, error) {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED)
		if !missing || time.Since(began) > startTime {
			return c, err
		}
	}
}
