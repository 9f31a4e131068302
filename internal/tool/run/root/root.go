// Package root opens, lists and replaces files below one directory and never
// outside it, with the ids of the tool user, whatever the tree below does
// meanwhile.
//
// Paths are used in two steps. Resolve follows every symlink, absolute ones
// included, as if the root were "/", and gives the canonical path: that is what
// is shown and judged. Everything else takes a canonical path and refuses to
// follow any symlink, so that what is opened is what was judged; a tree that
// changed in between answers Stale.
//
// Lookups use openat2 from a held descriptor. Go's os.Root is not enough: under
// gVisor it follows a symlink out of its root, because openat with
// O_NOFOLLOW|O_DIRECTORY follows links there.
//
// Every system call that touches the tree runs on a thread whose effective ids are the
// tool user's meanwhile (see threads), so every method may be called from any goroutine. Nothing here waits for another process: files are
// opened without blocking, and only regular files and directories are opened
// at all.
package root

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"
)

// Config says what a Root works on.
type Config struct {
	// Dir is the directory that paths are below, "/" in a sandbox.
	Dir string
	// UID and GID are the effective ids of all work. UID -1 leaves the ids of
	// the process as they are, for tests and for programs of the user's own.
	UID, GID int
	// Threads is the most system threads used at once; 0 means 4.
	Threads int
	// Memory is how many bytes Reserve hands out at a time; 0 means 128 MiB.
	Memory int64
	// Journal is a directory, of the process and not below Dir as tools see it, where
	// transactions are noted before they are made (see Recover). It is opened with the
	// process's own ids, and the tool user may not be able to enter it. "" = a process
	// that is killed leaves a transaction as it is then.
	Journal string
}

// Root is the sandbox's root directory as file tools see it.
type Root struct {
	fd      int           // O_PATH descriptor of Config.Dir
	prefix  string        // what /proc/self/fd calls Config.Dir, "" for "/"
	named   bool          // temporary files have names, as some file systems want it
	patient time.Duration // how long Begin waits for a lock
	threads *threads
	memory  *semaphore.Weighted // of most bytes
	most    int64
	journal *journal // nil for none
	step    func()   // see at; for tests

	mu    sync.Mutex // guards swept
	swept map[fileKey]struct{}
}

const defaultThreads = 4

// New opens c.Dir and proves on a first thread that the ids can be switched.
func New(c Config) (*Root, error) {
	if c.Threads <= 0 {
		c.Threads = defaultThreads
	}
	if c.Memory <= 0 {
		c.Memory = defaultMemory
	}
	fd, err := unix.Open(c.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open root %s: %w", c.Dir, err)
	}
	j, err := openJournal(c.Journal)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	r := &Root{
		journal: j,
		fd:      fd, memory: semaphore.NewWeighted(c.Memory), most: c.Memory,
		threads: newThreads(c.Threads, identity{uid: c.UID, gid: c.GID}),
		swept:   make(map[fileKey]struct{}), patient: lockWait,
	}
	err = r.do(context.Background(), func() error {
		prefix, err := fdPath(fd)
		if err != nil {
			return fmt.Errorf("read the path of root %s: %w", c.Dir, err)
		}
		if prefix != "/" {
			r.prefix = prefix
		}
		return nil
	})
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close waits for the work that is being done. The Root must not be used afterwards.
func (r *Root) Close() {
	r.threads.close()
	r.journal.close()
	unix.Close(r.fd)
}

// Err is not nil once a thread was found without the ids that it must have.
// Nothing works from then on; the session must be ended.
func (r *Root) Err() error { return r.threads.err() }

// do runs f on a thread with the tool user's ids.
func (r *Root) do(ctx context.Context, f func() error) error { return r.threads.do(ctx, f) }

// Lend runs f, all of whose work through the Root is then done without a change of ids
// for each. f must not wait for long for anything but files. It may be run without a
// thread, when many are lent already. The error says that f has not run.
func (r *Root) Lend(ctx context.Context, f func()) error { return r.threads.lend(ctx, f) }
