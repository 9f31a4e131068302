package loopdisk

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Survey is what disks that are mounted, by whomever, have together, in bytes.
type Survey struct {
	Promised  int64 // their sizes
	Unwritten int64 // of what was written to them, and has no place in their files yet
	// Failed are the names of the files of disks that have lost something that was written to
	// them, mostly because the host's disk was full, as far as the kernel has found that (see Losses).
	Failed []string
}

// Has reports whether the disk of Unnamed with this name has failed, or one of Create with one
// of the others.
func (s *Survey) Has(name string, others ...string) bool {
	return slices.ContainsFunc(append(others, ownPrefix+name), func(n string) bool { return slices.Contains(s.Failed, n) })
}

// Look adds up the disks with their files below dir. It costs some 20 µs for each loop device
// of the host. What is let go of meanwhile does not count.
func Look(dir string) (s Survey) {
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return s
	}
	for _, n := range names {
		file, err := os.ReadFile(n)
		if err != nil || !strings.HasPrefix(string(file), dir+"/") {
			continue
		}
		device := filepath.Dir(filepath.Dir(n))
		if failed(filepath.Base(device)) {
			name := strings.TrimSuffix(strings.TrimSuffix(string(file), "\n"), " (deleted)")
			s.Failed = append(s.Failed, filepath.Base(name))
		}
		s.Promised += number(filepath.Join(device, "size")) * 512
		s.Unwritten += number(filepath.Join("/sys/fs/ext4", filepath.Base(device), "delayed_allocation_blocks")) * block
	}
	return s
}

// failed reports whether the file system of a loop device has become read-only, as it does when
// the kernel could not write to it (see mountLoop). ext4's counts are no sign of it: errors are
// kept on the disk and stay when it is mounted anew, and a full disk alone gives warnings.
func failed(device string) bool {
	options, err := os.ReadFile(filepath.Join("/proc/fs/ext4", device, "options"))
	return err == nil && slices.ContainsFunc(strings.Fields(string(options)), func(o string) bool { return o == "ro" || o == "emergency_ro" })
}

func number(file string) int64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n
}
