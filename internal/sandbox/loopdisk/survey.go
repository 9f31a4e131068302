package loopdisk

import (
	"iter"
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
	// warned are disks that have not failed, and of which the kernel has given so many warnings.
	warned map[backed]int64
}

// backed is a loop device and the file that it is of.
type backed struct{ device, file string }

// Has reports whether the disk of Unnamed with this name has failed, or one of Create with one
// of the others.
func (s *Survey) Has(name string, others ...string) bool {
	return slices.ContainsFunc(append(others, ownPrefix+name), func(n string) bool { return slices.Contains(s.Failed, n) })
}

// Look adds up the disks with their files below dir. It costs some 20 µs for each loop device
// of the host. What is let go of meanwhile does not count.
func Look(dir string) (s Survey) {
	for device, file := range attachedBelow(dir) {
		if failed(device) {
			s.Failed = append(s.Failed, filepath.Base(strings.TrimSuffix(file, " (deleted)")))
		} else if n := number(filepath.Join("/sys/fs/ext4", device, "warning_count")); n > 0 {
			if s.warned == nil {
				s.warned = map[backed]int64{}
			}
			s.warned[backed{device, file}] = n
		}
		s.Promised += number(filepath.Join("/sys/block", device, "size")) * 512
		s.Unwritten += number(filepath.Join("/sys/fs/ext4", device, "delayed_allocation_blocks")) * block
	}
	return s
}

// attachedBelow gives the loop devices that are attached to files below dir, with these files.
func attachedBelow(dir string) iter.Seq2[string, string] {
	return func(yield func(device, file string) bool) {
		names, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // fails for other patterns alone
		for _, n := range names {
			device := filepath.Base(filepath.Dir(filepath.Dir(n)))
			if file := below(dir, device); file != "" && !yield(device, file) {
				return
			}
		}
	}
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
