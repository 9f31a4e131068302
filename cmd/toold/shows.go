package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/config"
	"github.com/toold/toold/internal/store"
)

const (
	// needs is how many bytes the disk of the state directory must take for a daemon to go on, beside
	// those of the journal, which become the database's: SQLite's index of its log, its first pages.
	needs = 1 << 20
	// lookAgain is how often a daemon that only shows looks whether the disk takes them.
	lookAgain = time.Second
	// spare is how much memory there is for what that daemon writes and nobody keeps, beside
	// copies of the files that it opens for writing, which are at most all together.
	spare = 64 << 20
	all   = 1 << 30
)

// errRoom ends a daemon that only shows.
var errRoom = errors.New("the disk of the state directory takes writes again")

// serve runs daemons until one ends for good. Where the disk of the state directory is full or
// cannot be written, that is no reason to end: sessions and their agents live on, and somebody has
// to say what is wrong. A daemon that only shows what is on record serves until there is room.
func serve(ctx context.Context, cfg *config.Config, o *options, p process) error {
	for {
		err := serveOnce(ctx, cfg, o, p, nil)
		why := cause(err)
		if err == nil || why == nil || ctx.Err() != nil || o.ephemeral || o.endSessions || onOther(err, cfg.Daemon.StateDir) {
			return err
		}
		if now := lacks(cfg.Daemon.StateDir); now != nil {
			why = now // which says more
		}
		log := newLogger(cfg.Daemon.Log, p.stderr)
		log.Error("cannot begin, for a disk takes no writes: what is on record is shown until it does", "error", err, "disk", why)
		if err := serveShowing(ctx, cfg, o, p, why); err != nil {
			log.Error("cannot show what is on record either: wait for the disk", "error", err)
			waiting(ctx, notifier{log}, func() {
				for lacks(cfg.Daemon.StateDir) != nil && ctx.Err() == nil {
					pause(ctx, lookAgain)
				}
			})
		}
		if ctx.Err() != nil {
			return nil
		}
		log.Info("the disk of the state directory takes writes again, as it seems")
		// Not at once where it is another disk. What was reloaded meanwhile holds.
		pause(ctx, lookAgain)
		if again, err := o.load(p.env); err != nil {
			log.Error("the configuration was not taken over, the old one stays", "error", err)
		} else {
			cfg = again
		}
	}
}

// waiting tells systemd that this process is well while it does what takes its time.
func waiting(ctx context.Context, n notifier, do func()) {
	ctx, done := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		n.watchdog(ctx, func(context.Context) error { return nil })
	}()
	do()
	done()
	<-over
}

// serveOnce is one daemon from its making to its end. why makes it one that only shows.
func serveOnce(ctx context.Context, cfg *config.Config, o *options, p process, why error) error {
	d, err := newDaemon(cfg, o, p, why)
	if err != nil {
		return err
	}
	if o.endSessions {
		return d.endSessions(ctx)
	}
	return d.run(ctx, p)
}

// serveShowing serves what is on record until ctx ends or the disk takes writes. The daemon works
// on the state directory under a layer of memory, which is thrown away with it: it may write
// there what it likes, and does not have to know. It takes over no session and changes nothing
// that anybody could believe to have changed (session.Manager.Show).
func serveShowing(ctx context.Context, cfg *config.Config, o *options, p process, why error) error {
	state := cfg.Daemon.StateDir
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		for ctx.Err() == nil {
			pause(ctx, lookAgain)
			if lacks(state) == nil {
				stop(errRoom)
			}
		}
	}()
	return serveOnce(ctx, cfg, o, p, fmt.Errorf("%s: %w", state, why))
}

// lacks is why a state directory does not take what a daemon needs to go on; nil where it does.
func lacks(state string) error {
	return takes(state, needs+sizeOf(filepath.Join(state, "toold.db.journal")))
}

// showing puts the layer of a daemon that only shows over its state directory, which is another one
// from then on, or takes away what such a daemon has left. Only who has the lock of the run
// directory comes here.
func (d *daemon) showing() error {
	c := &d.cfg.Daemon
	above := filepath.Join(c.RunDir, "shown")
	if err := dropMemory(above); err != nil || d.shows == nil {
		return err
	}
	size, err := overMemory(c.StateDir, above, d.cfg.AuditPath())
	if err != nil {
		return err
	}
	d.onClose("memory over the state directory", func() error { return dropMemory(above) })
	d.log.Info("what this daemon writes is kept in memory and dropped", "state_dir", c.StateDir, "at_most", client.Size(size))
	shown := *d.cfg
	shown.Daemon.StateDir = filepath.Join(above, "state")
	d.cfg = &shown
	return nil
}

// showStatus is what systemd is told of a daemon that only shows.
func (d *daemon) showStatus() string { return "only shows what is on record: " + d.shows.Error() }

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// takes says why the disk of a directory would not take so many bytes; nil where it does, and where
// there is no directory yet. What it tries with has no name and is gone at once.
func takes(dir string, bytes int64) error {
	f, err := os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.EOPNOTSUPP):
		if f, err = os.CreateTemp(dir, ".room-"); err == nil {
			err = os.Remove(f.Name())
		}
	}
	if err != nil {
		return cause(err)
	}
	defer f.Close()
	err = unix.Fallocate(int(f.Fd()), 0, 0, bytes)
	if errors.Is(err, unix.EOPNOTSUPP) {
		_, err = f.Write(make([]byte, bytes))
		err = errors.Join(err, f.Sync())
	}
	return cause(err)
}

// cause keeps what says that it is a disk's fault, without the path of a file that nobody knows.
func cause(err error) error {
	if errors.Is(err, store.ErrFull) {
		return store.ErrFull
	}
	for _, e := range []error{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EIO} {
		if errors.Is(err, e) {
			return e
		}
	}
	return nil
}

// onOther reports whether an error is of a file on another file system than the state directory:
// of the audit log, the run directory, a cgroup. Room for the state would not help there, and
// nobody would learn what does.
func onOther(err error, state string) bool {
	e, ok := errors.AsType[*fs.PathError](err)
	if !ok || !filepath.IsAbs(e.Path) {
		return false
	}
	path := e.Path
	var of, at unix.Stat_t
	for ; unix.Stat(path, &at) != nil && path != "/"; path = filepath.Dir(path) {
	}
	return unix.Stat(state, &of) == nil && of.Dev != at.Dev
}

// overMemory mounts an overlay of state at above/state, whose upper layer is a tmpfs at above. It
// takes the files that are opened for writing, and a little more: so many bytes at most.
func overMemory(state, above, audit string) (size int64, err error) {
	size = spare + sizeOf(audit)
	for _, name := range []string{"toold.db", "toold.db-wal", "toold.db-shm", "toold.db.journal"} {
		size += sizeOf(filepath.Join(state, name))
	}
	if most := min(all, memoryLimit()/2); size > most {
		return 0, fmt.Errorf("that would take %s of memory, more than the %s that there are for it", client.Size(size), client.Size(most))
	}
	if err := os.MkdirAll(above, 0o700); err != nil {
		return 0, err
	}
	if err := unix.Mount("toold", above, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, fmt.Sprintf("mode=0700,size=%d", size)); err != nil {
		return 0, fmt.Errorf("mount memory on %s: %w", above, err)
	}
	for _, d := range []string{"upper", "work", "state"} {
		if err := os.Mkdir(filepath.Join(above, d), 0o700); err != nil {
			return 0, errors.Join(err, dropMemory(above))
		}
	}
	escape := strings.NewReplacer(`\`, `\\`, `:`, `\:`, `,`, `\,`).Replace
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", escape(state), escape(above), escape(above))
	if err := unix.Mount("toold", filepath.Join(above, "state"), "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return 0, errors.Join(fmt.Errorf("mount a layer over %s: %w", state, err), dropMemory(above))
	}
	return size, nil
}

// dropMemory removes what overMemory made, also for a daemon that was killed.
func dropMemory(above string) error {
	if _, err := os.Lstat(above); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, at := range []string{filepath.Join(above, "state"), above} {
		for unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
		}
	}
	for _, d := range []string{"upper", "work", "state"} {
		_ = os.Remove(filepath.Join(above, d)) // of a daemon that was killed between, or none
	}
	return os.Remove(above)
}
