package auth

import (
	"cmp"
	"fmt"
	"os"
	"strconv"

	"github.com/toold/toold/internal/procstat"
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
	start, err := procstat.Number(b, procstat.Start)
	var field [3]string
	for i, n := range []int{procstat.Group, procstat.Terminal, procstat.Foreground} {
		text, terr := procstat.Text(b, n)
		field[i], err = text, cmp.Or(err, terr)
	}
	return Process{Start: uint64(start), Terminal: field[1] != "0" && field[2] == field[0]}, err
}
