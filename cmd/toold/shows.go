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
)

const (
	// needs is how many bytes the disk of the state directory must take for a daemon to begin:
	// SQLite's index of its log, its first pages, and the journal.
	needs = 1 << 20
	// lookAgain is how often a daemon that only shows looks whether the disk takes them.
	lookAgain = time.Second
	// spare is how much memory there is for what that daemon writes and nobody keeps, beside
	// copies of the database's files; database is the largest that is copied there.
	spare    = 64 << 20
	database = 1 << 30
)

// serve runs daemons until one ends for good. Where the disk of the state directory is full or
// cannot be written, that is no reason to end: sessions and their agents live on, and somebody has
// to say what is wrong. A daemon that only shows what is on record serves until there is room.
func serve(ctx context.Context, cfg *config.Config, o *options, p process) error {
	for {
		err := serveOnce(ctx, cfg, o, p, nil)
		why := takes(cfg.Daemon.StateDir, needs)
		if err == nil || why == nil || ctx.Err() != nil || o.ephemeral || o.endSessions {
			return err
		}
		log := newLogger(cfg.Daemon.Log, p.stderr)
		log.Error("cannot begin, for the disk of the state directory takes no writes: what is on record is shown until it does", "error", err, "disk", why)
		if err := serveShowing(ctx, cfg, o, p, why); err != nil {
			log.Error("cannot show what is on record either: wait for the disk", "error", err)
			for takes(cfg.Daemon.StateDir, needs) != nil && ctx.Err() == nil {
				pause(ctx, lookAgain)
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		log.Info("the disk of the state directory takes writes again")
	}
}

// serveOnce is one daemon from its making to its end. why makes it one that only shows.
func serveOnce(ctx context.Context, cfg *config.Config, o *options, p process, why error) error {
	d, err := newDaemon(cfg, o, p)
	if err != nil {
		return err
	}
	if o.endSessions {
		return d.endSessions(ctx)
	}
	d.shows = why
	return d.run(ctx, p)
}

// serveShowing serves what is on record until ctx ends or the disk takes writes. The daemon works
// on the state directory under a layer of memory, which is thrown away with it: it may write
// there what it likes, and does not have to know. It takes over no session and changes nothing
// that anybody could believe to have changed (session.Manager.Show).
func serveShowing(ctx context.Context, cfg *config.Config, o *options, p process, why error) (err error) {
	state := cfg.Daemon.StateDir
	above := showDir(&cfg.Daemon)
	if err := overMemory(state, above); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dropMemory(above)) }()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		for ctx.Err() == nil {
			pause(ctx, lookAgain)
			if takes(state, needs) == nil {
				stop(errors.New("the disk of the state directory takes writes again"))
			}
		}
	}()
	shown := *cfg
	shown.Daemon.StateDir = filepath.Join(above, "state")
	return serveOnce(ctx, &shown, o, p, fmt.Errorf("%s: %w", state, why))
}

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

// cause keeps what says that it is the disk's fault, without the path of a file that nobody knows.
func cause(err error) error {
	for _, e := range []error{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EIO} {
		if errors.Is(err, e) {
			return e
		}
	}
	return nil
}

// showDir is where a daemon that only shows has its layer. Only the one that has the lock of the
// run directory uses it.
func showDir(c *config.Daemon) string { return filepath.Join(c.RunDir, "shown") }

// overMemory mounts an overlay of state at above/state, whose upper layer is a tmpfs at above. It
// takes what the database needs when it is opened, and a little more.
func overMemory(state, above string) error {
	size := int64(spare)
	for _, name := range []string{"toold.db", "toold.db-wal", "toold.db-shm", "toold.db.journal"} {
		size += sizeOf(filepath.Join(state, name))
	}
	if size > database {
		return fmt.Errorf("the database has %s, more than is copied into memory", client.Size(size-spare))
	}
	if err := dropMemory(above); err != nil {
		return err
	}
	if err := os.MkdirAll(above, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("toold", above, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, fmt.Sprintf("mode=0700,size=%d", size)); err != nil {
		return fmt.Errorf("mount memory on %s: %w", above, err)
	}
	for _, d := range []string{"upper", "work", "state"} {
		if err := os.Mkdir(filepath.Join(above, d), 0o700); err != nil {
			return errors.Join(err, dropMemory(above))
		}
	}
	escape := strings.NewReplacer(`\`, `\\`, `:`, `\:`, `,`, `\,`).Replace
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", escape(state), escape(above), escape(above))
	if err := unix.Mount("toold", filepath.Join(above, "state"), "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return errors.Join(fmt.Errorf("mount a layer over %s: %w", state, err), dropMemory(above))
	}
	return nil
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
	for _, d := range []string{"upper", "work", "state", "."} { // of a daemon that was killed between
		err := os.Remove(filepath.Join(above, d))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && d == "." {
			return err
		}
	}
	return nil
}
