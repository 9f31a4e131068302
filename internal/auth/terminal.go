package auth

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// Process is a process of the host as the kernel tells of it.
type Process struct {
	// Start is when it began, in clock ticks since the host did: with its id it names the
	// process, also when the id is another one's by now.
	Start uint64
	// Terminal reports whether what is typed at its controlling terminal is for it: it is in
	// the group in the foreground.
	Terminal bool
}

// ProcessOf looks at the process with this id, as it is in the daemon's namespace; 0 is one
// of another.
func ProcessOf(pid int32) (Process, error) {
	if pid <= 0 {
		return Process{}, fmt.Errorf("process %d is not of the daemon's PID namespace", pid)
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(int(pid)) + "/stat")
	if err != nil {
		return Process{}, err
	}
	// The second field is the name, which may hold anything. See proc(5) for the numbers.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	const group, tty, foreground, start = 5 - 3, 7 - 3, 8 - 3, 22 - 3
	if len(fields) <= start {
		return Process{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	p := Process{Terminal: string(fields[tty]) != "0" && bytes.Equal(fields[foreground], fields[group])}
	p.Start, err = strconv.ParseUint(string(fields[start]), 10, 64)
	return p, err
}
