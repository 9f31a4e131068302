package far

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/sandbox/state"
	"github.com/toold/toold/internal/sandbox/transfer"
	"github.com/toold/toold/internal/worktree/apply"
)

// GetFunc calls save with an archive of the directory target of a sandbox. The error is
// sandbox.ErrGone if the sandbox does not exist any more.
type GetFunc func(target string, save func(archive io.Reader) error) error

// Waits reports whether a worktree is still to be copied back.
func (t *Trees) Waits(at state.Dir) bool {
	c, err := read(at)
	return err != nil || c != nil
}

// Return applies what has changed in a worktree since Send. The note says what did not
// come back; it is "" when all did. A sandbox that does not answer or gives no worktree is an
// error, as is a source that others are writing to, and no Room: Return may be called again. Other changes
// that cannot be applied now cannot be applied later either: they are kept as an archive, which
// the note names.
func (t *Trees) Return(ctx context.Context, at state.Dir, get GetFunc) (note string, err error) {
	c, err := read(at)
	if err != nil || c == nil {
		return "", err
	}
	journal := filepath.Join(t.changes, at.ID())
	archive, err := t.fetch(at, c.Target, get)
	if errors.Is(err, sandbox.ErrGone) {
		t.forget(ctx, journal)
		t.log.Error("a container is gone, and with it what was changed in its worktree", "sandbox", at.ID(), "worktree", c.Path)
		return "changes of the worktree are lost: its container was removed", nil
	} else if err != nil {
		return "", err
	}
	defer archive.Close()
	report, err := t.apply(ctx, at, c, archive.Name(), journal)
	if err != nil && ctx.Err() != nil || errors.Is(err, apply.ErrNoTop) || errors.Is(err, apply.ErrHeld) {
		return "", err // what has changed is in the sandbox still
	}
	t.forget(ctx, journal)
	if !complete(report, err) {
		// It is all that is left when the sandbox is gone.
		if err := archive.Sync(); err != nil {
			return "", err
		}
		note = missing(report, err, archive.Name())
	}
	t.tell(at, c, note, archive.Name())
	// From here on there is nothing more to copy, also when removing fails.
	return note, os.Remove(at.File(copiedName))
}

// read gives what is known of a worktree that is to be copied back; nil where none was
// copied in, or all of it is back.
func read(at state.Dir) (*copied, error) {
	data, err := os.ReadFile(at.File(copiedName))
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

// fetch copies the worktree of a sandbox into a file here.
func (t *Trees) fetch(at state.Dir, target string, get GetFunc) (*os.File, error) {
	if err := os.MkdirAll(t.changes, 0o700); err != nil {
		return nil, err
	}
	name := filepath.Join(t.changes, at.ID()+".tar")
	_ = os.Remove(name) // not written over: the journal of a daemon before this one may have it
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	err = get(target, func(archive io.Reader) error { return t.save(at, f, archive) })
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return f, nil
}

// save writes what comes back to f, as long as there is room for it.
func (t *Trees) save(at state.Dir, f *os.File, archive io.Reader) error {
	most := 2*transfer.DefaultLimits.Bytes + int64(transfer.DefaultLimits.Files)*4096
	for n := int64(0); n <= most; {
		if err := t.Room(roomEvery); err != nil {
			return err
		}
		more, err := io.CopyN(f, archive, min(roomEvery, most+1-n))
		if n += more; errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
	// The rest is missed when it is applied: an archive must be whole.
	t.log.Warn("a worktree has grown past what can be copied back: its archive is cut", "sandbox", at.ID(), "bytes", most)
	return nil
}

// roomEvery is for how many bytes room is asked at once.
const roomEvery = 8 << 20

func (t *Trees) apply(ctx context.Context, at state.Dir, c *copied, archive, journal string) (*transfer.Report, error) {
	dir, err := t.worktree(at, c)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := os.Open(at.File(manifestName))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := transfer.ReadManifest(f)
	if err != nil {
		return nil, err
	}
	return transfer.Apply(ctx, dir, c.Owner, m, archive, path.Base(c.Target), journal, transfer.DefaultLimits)
}

// forget finishes what is under way in a journal, if that can be, and removes it.
func (t *Trees) forget(ctx context.Context, journal string) {
	if err := apply.Forget(ctx, journal); errors.Is(err, apply.ErrHeld) {
		t.log.Warn("what a copy has left is finished by the next apply to its source", "error", err)
	} else if err != nil {
		t.log.Warn("finish what a copy has left", "error", errors.Join(err, os.RemoveAll(journal)))
	}
}

// worktree gives the directory that was copied: the pinned one, or after a restart
// what has its name, if that is still the same.
func (t *Trees) worktree(at state.Dir, c *copied) (*os.File, error) {
	if pinned := t.unpin(at); pinned != nil {
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

// tell logs what became of the changes, and removes the archive where all of it is back.
func (t *Trees) tell(at state.Dir, c *copied, note, archive string) {
	log := t.log.With("sandbox", at.ID(), "worktree", c.Path)
	if note != "" {
		log.Warn("not all changes of a worktree were copied back; they are kept", "archive", archive, "note", note)
		return
	}
	log.Info("changes of a worktree were copied back")
	if err := os.Remove(archive); err != nil {
		log.Warn("remove an archive", "error", err)
	}
}
