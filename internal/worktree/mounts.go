package worktree

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// IsMountedIn is what a session is told of a Source in which something was mounted after it began.
const IsMountedIn = "something is mounted in it"

const (
	// maxMounted bounds what In says, in bytes: a directory in which more is mounted is not watched.
	maxMounted = 16 << 10
	// maxMountsOf bounds of how many directories it is known what is mounted in them.
	maxMountsOf = 4096
)

// Mounts sees what is mounted in directories of the host. The kernel says whether that has changed in about a
// microsecond, so that each call can ask. The zero value is ready for use.
type Mounts struct {
	mu    sync.Mutex // guards the fields below
	info  int        // the descriptor of /proc/self/mountinfo; no os.File, which would be polled by others; 0 before the first question
	text  []byte     // what that said last
	known map[string]string
}

// Close lets go of what the kernel is asked by.
func (m *Mounts) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.info == 0 {
		return nil
	}
	err := unix.Close(m.info)
	m.info, m.known = 0, nil
	return err
}

// In says what is mounted in an open directory, below it, for MountedSince; "" where that cannot be said.
func (m *Mounts) In(dir *os.File) string {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.look() != nil {
		return ""
	}
	is, known := m.known[path]
	if !known {
		if len(m.known) >= maxMountsOf {
			clear(m.known)
		}
		is = mountedIn(m.text, path)
		m.known[path] = is
	}
	return is
}

// look reads the mounts where they have changed.
func (m *Mounts) look() error {
	if m.info == 0 {
		fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		m.info = fd
	} else if m.known != nil {
		fds := []unix.PollFd{{Fd: int32(m.info), Events: unix.POLLPRI}}
		if n, err := unix.Poll(fds, 0); n == 0 && err == nil {
			return nil
		}
	}
	m.known = nil // until all is read
	if _, err := unix.Seek(m.info, 0, unix.SEEK_SET); err != nil {
		return err
	}
	text, part := m.text[:0], make([]byte, 32<<10)
	for {
		n, err := unix.Read(m.info, part)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		text = append(text, part[:n]...)
	}
	m.text, m.known = text, make(map[string]string)
	return nil
}

// escaped are the bytes that a mountinfo has as numbers.
var escaped = strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`)

// mountedIn has a line for each mount below a path: the device, what of it is mounted, and where.
func mountedIn(info []byte, path string) string {
	below := " " + strings.TrimSuffix(escaped.Replace(path), "/") + "/"
	if !bytes.Contains(info, []byte(below)) {
		return "\n"
	}
	var all []string
	for line := range strings.Lines(string(info)) {
		fields := strings.SplitN(line, " ", 6)
		if len(fields) == 6 && strings.HasPrefix(" "+fields[4], below) {
			all = append(all, strings.Join(fields[2:5], " "))
		}
	}
	slices.Sort(all)
	is := "\n" + strings.Join(append(all, ""), "\n")
	if len(is) > maxMounted {
		return ""
	}
	return is
}

// MountedSince reports whether something is mounted in a directory now that was not when In said before.
func MountedSince(before, now string) bool {
	if before == "" || now == "" {
		return false
	}
	for line := range strings.Lines(now[1:]) {
		if !strings.Contains(before, "\n"+line) {
			return true
		}
	}
	return false
}
