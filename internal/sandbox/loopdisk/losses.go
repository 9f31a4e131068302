package loopdisk

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/sandbox/mount"
)

// Losses finds disks that have lost something of what nobody waited for: the kernel drops what it
// cannot write to the file of a disk, and tells who asks for it (syncfs) once. Such a disk becomes
// read-only, which outlives this process, and is what Survey.Failed lists. A journal learns of it
// by itself; what is lost of ext4's own tables it finds when they are touched next. A program that
// has asked before is told, and this is not.
type Losses struct {
	Dir string // which disks lie below

	mu   sync.Mutex       // guards seen, and lets one look at a time
	seen map[backed]int64 // the warnings that had come of no loss
}

// News reports whether Find would look at a disk. It does not wait: while somebody looks there are none.
func (l *Losses) News(s Survey) bool {
	if !l.mu.TryLock() {
		return false
	}
	defer l.mu.Unlock()
	return len(l.newsLocked(s)) > 0
}

func (l *Losses) newsLocked(s Survey) map[backed]int64 {
	news := maps.Clone(s.warned)
	maps.DeleteFunc(news, func(d backed, warnings int64) bool { return l.seen[d] == warnings })
	return news
}

// Find looks at the disks of a survey that have warnings that it has not seen: ext4 counts one for each
// write that it drops, but others too. looked: it has looked at one, which may have failed now. The error
// is of disks that could not be looked at.
func (l *Losses) Find(s Survey) (looked bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	news, seen := l.newsLocked(s), maps.Clone(s.warned)
	var mu sync.Mutex // guards seen
	err = each(func(yield func(device, file string) bool) {
		for d := range news {
			if !yield(d.device, d.file) {
				return
			}
		}
	}, func(device, file string) error {
		err := l.look(device, file)
		if err != nil { // it is looked at again
			mu.Lock()
			defer mu.Unlock()
			delete(seen, backed{device, file})
		}
		return err
	})
	l.seen = seen
	return len(news) > 0, err
}

// look has a disk fail that has lost something. It mounts it as its owner has, once more: only
// that gives the errors of the whole file system.
func (l *Losses) look(device, file string) error {
	loop, err := mount.OpenDevice(device)
	if err != nil {
		return notGone(err)
	}
	defer loop.Close()
	if below(l.Dir, device) != file {
		return nil // it has been let go of
	}
	options := lastingOptions()
	if strings.HasPrefix(filepath.Base(file), ownPrefix) {
		options = nil
	}
	root, err := mountLoop(loop, options)
	if err != nil {
		return notGone(err)
	}
	defer root.Close()
	lost := beneath.Sync(int(root.Fd()))
	if lost == nil || failed(device) {
		return nil
	}
	if err := os.WriteFile(filepath.Join("/sys/fs/ext4", device, "trigger_fs_error"), []byte("toold: lost writes"), 0); err != nil {
		return fmt.Errorf("the disk %s has lost what was written to it (%w), and cannot be made read-only: %w", file, lost, err)
	}
	return nil
}

// Flush writes what is on its way to the disks that are mounted, by whomever, with their files
// below dir, so that it has a place there if the host's disk is full a moment later. It needs no
// mount: a device writes the file system that is on it. What is lost of that Losses finds; the
// error is of disks that could not be asked.
func Flush(dir string) error {
	return each(attachedBelow(dir), func(device, file string) error {
		loop, err := mount.OpenDevice(device)
		if err != nil {
			return notGone(err)
		}
		defer loop.Close()
		if below(dir, device) != file {
			return nil // it has been let go of, and may be another's now
		}
		return notGone(unix.IoctlSetInt(int(loop.Fd()), unix.BLKFLSBUF, 0))
	})
}

// eachAtOnce bounds the disks that are waited for at a time.
const eachAtOnce = 16

// each does something with disks, some at a time.
func each(disks iter.Seq2[string, string], do func(device, file string) error) error {
	var wait sync.WaitGroup
	var mu sync.Mutex // guards all
	var all error
	places := make(chan struct{}, eachAtOnce)
	for device, file := range disks {
		places <- struct{}{}
		wait.Go(func() {
			err := do(device, file)
			<-places
			mu.Lock()
			defer mu.Unlock()
			all = errors.Join(all, err)
		})
	}
	wait.Wait()
	return all
}

// below is the file below dir that a device is attached to; "" for none.
func below(dir, device string) string {
	file, err := os.ReadFile(filepath.Join("/sys/block", device, "loop/backing_file"))
	if err != nil || !strings.HasPrefix(string(file), dir+"/") {
		return ""
	}
	return strings.TrimSpace(string(file))
}
