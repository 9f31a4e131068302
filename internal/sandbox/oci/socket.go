package oci

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// listen makes the control socket of a sandbox, in a directory that only root
// may enter. The listening descriptor is the agent's; its path is the daemon's.
func listen(b bundle) (*os.File, error) {
	dir, err := os.OpenFile(b.control(), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socketName(dir)})
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	f, err := l.File()
	return f, errors.Join(err, l.Close())
}

// socketName names the socket by way of its open directory: paths of sockets
// are limited to 107 bytes.
func socketName(dir *os.File) string {
	return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/socket"
}

// dial connects to the control socket.
func dial(ctx context.Context, b bundle) (*net.UnixConn, error) {
	dir, err := os.OpenFile(b.control(), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	c, err := new(net.Dialer).DialContext(ctx, "unix", socketName(dir))
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// noncePipe gives the reading end of a pipe with the nonce in it and nothing
// after it.
func noncePipe(nonce []byte) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if _, err := w.Write(nonce); err != nil { // a few bytes: cannot block
		r.Close()
		return nil, err
	}
	return r, nil
}

// stdioSize is what agent and runtime can write to their standard output and
// error, together, in the whole life of a sandbox.
const stdioSize = 64 << 10

// newStdio makes a file in memory that cannot grow: what the agent prints fills
// neither the host's disk nor its memory.
func newStdio() (*os.File, error) {
	fd, err := unix.MemfdCreate("toold-agent-output", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "agent output")
	if err := f.Truncate(stdioSize); err != nil {
		f.Close()
		return nil, err
	}
	seals := unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		f.Close()
		return nil, fmt.Errorf("seal memfd: %w", err)
	}
	return f, nil
}

// maxQuoted bounds how much of that output goes into an error.
const maxQuoted = 2 << 10

// printed is the last of what was written to a newStdio: it may be the agent's,
// that is, anyone's.
func printed(stdio *os.File) string {
	buf := make([]byte, stdioSize)
	n, _ := stdio.ReadAt(buf, 0) // what can be read; the caller has better news
	text := strings.TrimSpace(strings.TrimRight(string(buf[:n]), "\x00"))
	return text[max(0, len(text)-maxQuoted):]
}

// withOutput adds it to an error, quoted.
func withOutput(err error, stdio *os.File) error {
	if text := printed(stdio); text != "" {
		return fmt.Errorf("%w: it printed %q", err, text)
	}
	return err
}
