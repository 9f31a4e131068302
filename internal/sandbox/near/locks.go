package near

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// FileLocks implements sandbox.Uncounted. A process that has ended meanwhile has none. What was sent
// by a socket and not taken out has no descriptor, and is not seen.
func (s *Sandbox) FileLocks(ctx context.Context, most int) (n int, err error) {
	if s.Enclosed || s.Tree == nil {
		return 0, nil
	}
	for _, pid := range s.Tree.Processes(s.Group) {
		locks, err := locksOf(ctx, filepath.Join("/proc", pid), most-n)
		if n += locks; err != nil || n > most {
			return n, err
		}
	}
	return n, nil
}

// locksOf counts the locks of a process, by its directory in /proc, until there are more than most.
// Where its first thread has ended, another one says which files they have open. A thread that has
// a table of descriptors of its own is not seen.
func locksOf(ctx context.Context, process string, most int) (int, error) {
	n, some, err := locksIn(ctx, filepath.Join(process, "fdinfo"), most)
	if some || err != nil {
		return n, err
	}
	threads, _ := filepath.Glob(filepath.Join(process, "task", "*", "fdinfo"))
	for _, dir := range threads[min(len(threads), 1):] {
		if n, some, err = locksIn(ctx, dir, most); some || err != nil {
			return n, err
		}
	}
	return 0, nil
}

// locksIn counts the locks in a directory of what the kernel says of descriptors. some is false
// where there are none of these.
func locksIn(ctx context.Context, dir string, most int) (n int, some bool, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return 0, false, nil
	}
	defer d.Close()
	for n <= most {
		names, _ := d.Readdirnames(256)
		if len(names) == 0 {
			break
		}
		some = true
		for _, name := range names {
			if ctx.Err() != nil {
				return n, some, fmt.Errorf("count locks of files: %w", ctx.Err())
			}
			text, _ := os.ReadFile(filepath.Join(dir, name)) // one that was closed meanwhile has none
			if n += bytes.Count(text, []byte("\nlock:")); n > most {
				break
			}
		}
	}
	return n, some, nil
}
