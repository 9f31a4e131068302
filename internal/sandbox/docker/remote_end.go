package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	cerrdefs "github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/state"
	"github.com/toold/toold/internal/sandbox/transfer"
)

// Destroy implements sandbox.Driver. What changed in the worktree is copied back
// first. While the Engine does not answer, nothing is given up: it is an error, and
// List finds the sandbox again.
func (r *Remote) Destroy(ctx context.Context, rec sandbox.Record) error {
	_, err := r.Return(ctx, rec)
	return err
}

// Return implements sandbox.Returning.
func (r *Remote) Return(ctx context.Context, rec sandbox.Record) (notes []string, err error) {
	note, err := r.destroy(ctx, &rec)
	if err != nil {
		err = fmt.Errorf("destroy sandbox %s: %w", rec.SessionID, err)
		if note == "" && r.waits(rec.SessionID) {
			note = fmt.Sprintf("changes of the worktree are not back: they wait at the Docker Engine %s; when it answers, toolctl gc brings them", r.d.engine.host)
		}
	}
	if note != "" {
		notes = []string{note}
	}
	return notes, err
}

// waits says whether a worktree is still to be copied back.
func (r *Remote) waits(session string) bool {
	if !state.IsName(session) {
		return false
	}
	c, err := r.copied(session)
	return err != nil || c != nil
}

// destroy gives a note about what did not come back, "" when all did.
func (r *Remote) destroy(ctx context.Context, rec *sandbox.Record) (note string, err error) {
	if !state.IsName(rec.SessionID) {
		return "", errors.New("that is no session id")
	}
	done, err := r.alone(ctx, rec.SessionID)
	if err != nil {
		return "", err
	}
	defer done()
	found, err := r.d.place(rec.SessionID).read()
	if errors.Is(err, os.ErrNotExist) {
		return "", r.d.removeLabelled(ctx, rec)
	} else if err != nil {
		return "", err
	}
	if !found.Same(&rec.ID) {
		return "", nil // gone, or another has the name by now
	}
	if err := r.kill(ctx, found.Container); err != nil {
		return "", err
	}
	// Whoever ends a sandbox has time for ending processes, not for a worktree.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), backTime, errSlow{backTime})
	defer cancel()
	if note, err = r.copyBack(ctx, found); err != nil {
		return "", err
	}
	return note, r.discard(ctx, found)
}

// alone waits until nobody else ends the session: what one copies back, another would
// overwrite.
func (r *Remote) alone(ctx context.Context, session string) (done func(), err error) {
	mine := make(chan struct{})
	for {
		r.mu.Lock()
		other := r.ends[session]
		if other == nil {
			r.ends[session] = mine
		}
		r.mu.Unlock()
		if other == nil {
			break
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("somebody else is ending it: %w", context.Cause(ctx))
		}
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.ends, session)
		close(mine)
	}, nil
}

// discard removes a sandbox as it is.
func (r *Remote) discard(ctx context.Context, rec *record) error {
	if err := r.d.removeLabelled(ctx, &rec.Record); err != nil {
		return err
	}
	r.mu.Lock()
	if f := r.pins[rec.SessionID]; f != nil {
		_ = f.Close()
		delete(r.pins, rec.SessionID)
	}
	r.mu.Unlock()
	return r.d.place(rec.SessionID).Remove()
}

// kill ends all processes of a container.
func (r *Remote) kill(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}
	err := r.running(ctx, id)
	if errors.Is(err, sandbox.ErrGone) {
		return nil
	} else if err != nil {
		return err
	}
	return r.d.engine.do(ctx, workTime, "kill container "+id, func(ctx context.Context) error {
		err := r.d.engine.c.ContainerKill(ctx, id, "SIGKILL")
		if cerrdefs.IsConflict(err) { // it has ended meanwhile
			return nil
		}
		return err
	})
}

// copyBack applies what has changed. Only an Engine that does not answer, or gives
// something without the worktree in it, is an error: what else cannot be applied will
// not be later either, and is kept as an archive, which the note says.
func (r *Remote) copyBack(ctx context.Context, rec *record) (note string, err error) {
	c, err := r.copied(rec.SessionID)
	if err != nil || c == nil || rec.Container == "" {
		return "", err
	}
	archive, err := r.fetch(ctx, rec, c.Target)
	if errors.Is(err, errNotFound) {
		r.d.log.Error("a container is gone, and with it what was changed in its worktree", "sandbox", rec.SessionID, "worktree", c.Path)
		return "changes of the worktree are lost: its container was removed", nil
	} else if err != nil {
		return "", err
	}
	defer archive.Close()
	report, err := r.apply(ctx, rec, c, archive)
	if err != nil && ctx.Err() != nil || errors.Is(err, transfer.ErrNoRoot) {
		return "", err // what has changed is at the Engine still
	}
	if !complete(report, err) {
		// It is all that is left when the container is gone.
		if err := archive.Sync(); err != nil {
			return "", err
		}
		note = missing(report, err, archive.Name())
	}
	r.tell(rec, c, report, err, archive.Name())
	// From here on there is nothing more to copy, also when removing fails.
	return note, os.Remove(r.d.place(rec.SessionID).File(copiedName))
}

// copied reads what is known of a worktree that is to be copied back; nil where none
// was copied in, or all of it is back.
func (r *Remote) copied(session string) (*copied, error) {
	data, err := os.ReadFile(r.d.place(session).File(copiedName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var c copied
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, err
	}
	if !c.Back {
		return nil, nil
	}
	return &c, nil
}

// maxNamed is how many paths a note names.
const maxNamed = 10

// missing is the note about changes that are not in the worktree.
func missing(report *transfer.Report, err error, archive string) string {
	if err != nil {
		return fmt.Sprintf("changes of the worktree could not be copied back: %v; as the session left it, it is in %s", err, archive)
	}
	note := "changes of the worktree that are not back:"
	if n := report.ConflictCount; n > 0 {
		note += fmt.Sprintf(" %d in conflict with this side, which stays as it is: %q;", n, report.Conflicts[:min(maxNamed, len(report.Conflicts))])
	}
	if n := report.RefuseCount; n > 0 {
		note += fmt.Sprintf(" %d that cannot be copied: %q;", n, report.Refused[:min(maxNamed, len(report.Refused))])
	}
	return note + " as the session left it, the worktree is in " + archive
}

// complete says whether all changes are in the worktree.
func complete(report *transfer.Report, err error) bool {
	return err == nil && report.ConflictCount+report.RefuseCount == 0
}

// fetch copies the worktree of a container into a file here.
func (r *Remote) fetch(ctx context.Context, rec *record, target string) (*os.File, error) {
	dir := filepath.Join(r.d.dir, "changes")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, rec.SessionID+".tar"), os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	room, err := roomIn(f)
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	err = r.d.engine.do(ctx, backTime, "copy from container "+rec.Container, func(ctx context.Context) error {
		body, _, err := r.d.engine.c.CopyFromContainer(ctx, rec.Container, target)
		if err != nil {
			return err
		}
		defer body.Close()
		most := 2*r.limits.Bytes + int64(r.limits.Files)*4096
		n, err := io.Copy(f, io.LimitReader(body, min(most, room)+1))
		switch {
		case err == nil && n > room:
			return fmt.Errorf("%s has not enough room for the worktree beside the %d MiB that stay free", dir, leastRoom>>20)
		case err == nil && n > most:
			// The rest is missed when it is applied: an archive must be whole.
			r.d.log.Warn("a worktree has grown past what can be copied back: its archive is cut", "sandbox", rec.SessionID, "bytes", most)
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return f, nil
}

// leastRoom (bytes) stays free where changes are kept: the daemon's own records are
// there, too.
const leastRoom = 1 << 30

// roomIn is how many bytes a file may take.
func roomIn(f *os.File) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return 0, fmt.Errorf("look for room: %w", err)
	}
	return max(0, int64(st.Bavail)*st.Bsize-leastRoom), nil
}

func (r *Remote) apply(ctx context.Context, rec *record, c *copied, archive *os.File) (*transfer.Report, error) {
	dir, err := r.worktree(rec.SessionID, c)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := os.Open(r.d.place(rec.SessionID).File(manifestName))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := transfer.ReadManifest(f)
	if err != nil {
		return nil, err
	}
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return transfer.Apply(ctx, dir, c.Owner, m, archive, path.Base(c.Target), r.limits)
}

// worktree gives the directory that was copied: the pinned one, or after a restart
// what has its name, if that is still the same.
func (r *Remote) worktree(session string, c *copied) (*os.File, error) {
	r.mu.Lock()
	pinned := r.pins[session]
	delete(r.pins, session)
	r.mu.Unlock()
	if pinned != nil {
		return pinned, nil
	}
	f, err := os.OpenFile(c.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || uint64(st.Dev) != c.Dev || st.Ino != c.Ino {
		return nil, errors.Join(fmt.Errorf("%s is another directory by now", c.Path), err, f.Close())
	}
	return f, nil
}

// tell logs what became of the changes, and removes the archive where nothing else
// is in it.
func (r *Remote) tell(rec *record, c *copied, report *transfer.Report, err error, archive string) {
	log := r.d.log.With("sandbox", rec.SessionID, "worktree", c.Path)
	if report != nil {
		log = log.With("written", report.Written, "removed", report.Removed,
			"conflicts", report.ConflictCount, "refused", report.RefuseCount)
	}
	switch {
	case err != nil:
		log.Error("changes of a worktree could not be copied back; they are kept", "archive", archive, "error", err)
		return
	case !complete(report, err):
		log.Warn("not all changes of a worktree were copied back; they are kept", "archive", archive,
			"conflicting", report.Conflicts, "not_copied", report.Refused)
		return
	}
	log.Info("changes of a worktree were copied back")
	if err := os.Remove(archive); err != nil {
		log.Warn("remove an archive", "error", err)
	}
}
