package treetar

import (
	"fmt"
	"strings"

	"github.com/toold/toold/internal/plain"
)

// Count is what became of a tree.
type Count struct {
	Files, Dirs, Links int
	Bytes              int64
	Skipped            plain.Names // what no archive has: devices, sockets, FIFOs
	Failed             plain.Names // what could not be read or written
	Short              int         // of those, files that a tar has with zeros at their end
	Why                string      // of the first of those, without raw names
	Parted             plain.Names // files that were replaced and have other names, which keep the old content
}

func (c *Count) fail(path string, err error) {
	if c.Failed.N == 0 {
		c.Why = err.Error()
	}
	c.Failed.Add(path)
}

// Text says what was done: "Packed 3 files, 1 directory, 0 links (12 bytes)".
func (c *Count) Text(did string) string {
	return fmt.Sprintf("%s %s, %s, %s (%s)", did, plain.Count(c.Files, "file", "files"), plain.Count(c.Dirs, "directory", "directories"),
		plain.Count(c.Links, "link", "links"), plain.Count(c.Bytes, "byte", "bytes"))
}

// Notes says what is missing, each on a line; verb is what could not be done, such as "be read".
func (c *Count) Notes(verb string) []string {
	var notes []string
	if c.Skipped.N > 0 {
		notes = append(notes, fmt.Sprintf("%s skipped, since only files, directories and links are copied: %s", plain.Count(c.Skipped.N, "entry", "entries"), &c.Skipped))
	}
	if c.Failed.N > 0 {
		notes = append(notes, fmt.Sprintf("%s could not %s: %s; the first: %s", plain.Count(c.Failed.N, "entry", "entries"), verb, &c.Failed, strings.TrimSuffix(c.Why, ".")))
	}
	if c.Parted.N > 0 {
		notes = append(notes, fmt.Sprintf("%s other names (hard links), which keep the old content: %s", plain.Count(c.Parted.N, "file had", "files had"), &c.Parted))
	}
	return notes
}

// maxPending bounds the names of directories that are remembered for later, in bytes.
const maxPending = 32 << 20
