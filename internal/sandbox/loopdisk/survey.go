package loopdisk

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Survey is what disks that are mounted, by whomever, have together, in bytes.
type Survey struct {
	Promised  int64 // their sizes
	Unwritten int64 // of what was written to them, and has no place in their files yet
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
		s.Promised += number(filepath.Join(device, "size")) * 512
		s.Unwritten += number(filepath.Join("/sys/fs/ext4", filepath.Base(device), "delayed_allocation_blocks")) * block
	}
	return s
}

func number(file string) int64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n
}
