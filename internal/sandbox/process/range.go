package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/toold/toold/internal/sandbox"
)

// In looks for a process whose real, effective, saved or file system uid is in the range of
// a session that begins at base; "" is none. It reads status files, not the owner of
// /proc/PID, which is root for a process that is not dumpable.
func In(base uint32) (string, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return "", err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return "", err
	}
	for _, pid := range names {
		if pid[0] < '0' || pid[0] > '9' {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
		if err != nil {
			continue // it has ended
		}
		if ended(string(b)) {
			continue
		}
		for _, uid := range UIDs(string(b)) {
			if uid >= base && uid-base < sandbox.RangeSize {
				return "process " + pid, nil
			}
		}
	}
	return "", nil
}

// ended reports whether a process is dead and merely not reaped yet. The first
// process of a sandbox waits for the host's init, and can do nothing meanwhile. One
// whose first thread has ended looks the same while its others run on.
func ended(status string) bool {
	dead, threads := false, "1"
	for line := range strings.Lines(status) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), "\t"); name {
		case "State:":
			dead = strings.HasPrefix(value, "Z") || strings.HasPrefix(value, "X")
		case "Threads:":
			threads = value
		}
	}
	return dead && (threads == "1" || threads == "0")
}

// UIDs are those in the text of a /proc/PID/status: real, effective, saved, file system.
func UIDs(status string) []uint32 {
	var uids []uint32
	for line := range strings.Lines(status) {
		rest, ok := strings.CutPrefix(line, "Uid:")
		if !ok {
			continue
		}
		for f := range strings.FieldsSeq(rest) {
			if v, err := strconv.ParseUint(f, 10, 32); err == nil {
				uids = append(uids, uint32(v))
			}
		}
	}
	return uids
}
