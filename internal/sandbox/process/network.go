package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/descriptor"
)

// NetNamespace opens the network namespace that the process is in.
func (p *Process) NetNamespace() (*os.File, error) {
	f, err := p.Open("ns/net", unix.O_RDONLY)
	return f, Gone(err)
}

// maxSockets bounds what Sockets looks at.
const maxSockets = 512

// Sockets are duplicates of the sockets that the process has open. It may be anything: the
// process is not trusted to have none but its own.
func (p *Process) Sockets() ([]*os.File, error) {
	dir, err := p.Open("fd", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, Gone(err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxSockets)
	if err != nil && len(names) > 0 {
		return nil, Gone(err)
	}
	var files []*os.File
	for _, name := range names {
		f, err := p.socket(dir, name)
		if err != nil {
			return files, err
		}
		if f != nil {
			files = append(files, f)
		}
	}
	return files, nil
}

// socket duplicates one descriptor, nil where that is no socket, or was closed meanwhile.
func (p *Process) socket(dir *os.File, name string) (*os.File, error) {
	buf := make([]byte, 64)
	n, err := unix.Readlinkat(int(dir.Fd()), name, buf)
	if err != nil || !strings.HasPrefix(string(buf[:n]), "socket:") {
		return nil, ignoreMissing(err)
	}
	number, err := strconv.Atoi(name)
	if err != nil {
		return nil, fmt.Errorf("descriptor %q: %w", name, err)
	}
	fd, err := descriptor.Use(p.pidfd, func(pidfd int) (int, error) { return unix.PidfdGetfd(pidfd, number, 0) })
	if errors.Is(err, unix.EBADF) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("take descriptor %d of process %d: %w", number, p.pid, err)
	}
	return os.NewFile(uintptr(fd), "socket"), nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
