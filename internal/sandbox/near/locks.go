package near

import (
	"bytes"
	"os"
	"path/filepath"
)

// FileLocks implements sandbox.Uncounted. A process that has ended meanwhile has none.
func (s *Sandbox) FileLocks(most int) (n int) {
	if s.Enclosed || s.Tree == nil {
		return 0
	}
	for _, pid := range s.Tree.Processes(s.Group) {
		n += locksOf(filepath.Join("/proc", pid, "fdinfo"), most-n)
		if n > most {
			break
		}
	}
	return n
}

// locksOf counts the locks in a directory of what the kernel says of descriptors, until there are more
// than most.
func locksOf(dir string, most int) (n int) {
	d, err := os.Open(dir)
	if err != nil {
		return 0
	}
	defer d.Close()
	for n <= most {
		names, err := d.Readdirnames(256)
		for _, name := range names {
			text, _ := os.ReadFile(filepath.Join(dir, name)) // one that was closed meanwhile has none
			if n += bytes.Count(text, []byte("\nlock:")); n > most {
				break
			}
		}
		if err != nil {
			break
		}
	}
	return n
}
