// Package apply writes the changes of a session to the directory that its worktree came
// from.
//
// The changes come out of the sandbox as an archive, which is hostile. Job.Run takes the lock on
// the source, which one job of the host's daemons has at a time, keeps the archive in a private
// directory and checks all of it. Then it looks at the source: what has changed there since the
// session began is in its way. Only if nothing is does it write:
//
//  1. The plan, a journal of all that will be done, goes to the private directory.
//  2. New files are written to the source under names that the plan has.
//  3. The plan is committed, by a rename in the private directory.
//  4. The files take their places, one rename each; what was removed is removed.
//
// Before step 3 the source is as it was but for files with names of ours, which go again.
// After it the plan is carried out, now or by Recover at the next start. What somebody
// changes in between is left alone and told.
//
// The archive is a tar archive (PAX) that ends with two empty blocks. Each entry is a
// change: Name a relative path, Typeflag Reg, Dir, Symlink, or Fifo for what is none of
// these, Mode, the content; its PAX records say what has become of the path (TOOLD.status: added, modified, deleted or
// type), of which kind it was (TOOLD.old: "", file, dir, link or other) and the SHA-256
// that the file's content or the link's target had (TOOLD.oldsha256). A path that was
// deleted is a Reg entry without content, and so is everything that was below it. TOOLD.left
// says why an entry has no content, and is left alone; TOOLD.size and TOOLD.data are those of
// package treediff.
//
// A Copy comes back as a whole instead: what differs from how it was are its changes.
package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/thread"
)

// Limits bound an archive.
type Limits struct {
	Bytes   int64 // of all files together
	Entries int
	Names   int // bytes of all names and link targets together
}

// DefaultLimits are those of a large repository.
var DefaultLimits = Limits{Bytes: 8 << 30, Entries: 200_000, Names: 64 << 20}

// Job is one apply.
type Job struct {
	// Dir is a private directory of the daemon's for this session alone: it holds the
	// journal, and a record of what earlier jobs have written. It is made if need be. Two
	// jobs of one directory go one after the other.
	Dir string
	// Source is pinned; O_PATH will do. All work below it is done with Owner's ids.
	Source *os.File
	Owner  thread.User
	// Since is when the session began, in ns: files of the source with a later change time
	// are in the way, unless earlier jobs have written them.
	Since int64
	// Back is by how much the clock was set back since then, in ns: change times from later
	// are up to that much smaller. What was changed in that time before the session began
	// counts as changed since.
	Back int64
	// Request says what to write, and what to do about conflicts.
	Request client.ApplyRequest
	// Sensitive are patterns as in a .gitignore of what a host runs on sight, beside what package
	// sensitive knows.
	Sensitive []string
	// Others are other sessions over the source. What they began with is kept for them
	// where this job replaces it: they may have to merge it.
	Others []Other
	// Own reports whether a change can be the session's at all: the others are the source's own, which
	// the session does not see, and are not applied. It is asked in the order of a walk. Nil: all can.
	Own func(path string) (bool, error)
	// Begun may be nil. What is in another directory than it gives is in the way of a change there.
	Begun Begun
	// Merged is told the path, any bytes, of each file that was merged: the session has
	// something else there until it is given what the source has, and Given says so. It
	// may be nil.
	Merged func(path string)
	// Copy is set where the changes are those of a copy: what is in the way of one of them
	// is then left alone with what depends on it, and all others are applied. A request to
	// merge and Others are not for that.
	Copy *Copy
	// Room is asked before so many bytes are written to Dir; its error is that of the job. It
	// may be nil.
	Room func(bytes int64) error
	// Ask: somebody waits for the end. Whoever has told it calls Told; else CutOff has words about it
	// when the program has died.
	Ask bool
	// Limits are DefaultLimits if zero.
	Limits Limits
}

// Other is another session: the private directory of its jobs, when it began, and by how
// much the clock was set back since.
type Other struct {
	Dir         string
	Since, Back int64
}

// commitTime bounds what comes after the commit: the request's context counts no more.
const commitTime = 5 * time.Minute

// ErrUnfinished: the plan is committed, and something kept it from being carried out. The
// next job of the directory, or Recover, goes on with it.
var ErrUnfinished = errors.New("the changes are written in part: the rest follows at the next apply, or when the daemon starts")

// Run applies an archive. An error that wraps *ConflictError says what is in the way; then
// nothing is written, unless its Applied says otherwise. Other errors are ErrArchive,
// ErrTooLarge, ErrHeld, ErrUnfinished, or one of the system's, after which the source is as it was.
// A Copy has its own archive, and an error more, ErrNoTop.
func (j *Job) Run(ctx context.Context, archive io.Reader) (*client.Applied, error) {
	d, err := openState(ctx, j.Dir)
	if err != nil {
		return nil, err
	}
	defer d.close()
	if _, err := d.recover(ctx); err != nil {
		return nil, err
	}
	if j.Ask && !j.Request.DryRun {
		d.ask()
	}
	applied, err := j.run(ctx, d, archive)
	if !errors.Is(err, ErrUnfinished) && !errors.Is(err, errLitter) {
		d.clear()
	}
	return applied, err
}

func (j *Job) run(ctx context.Context, d *state, archive io.Reader) (*client.Applied, error) {
	limits := j.Limits
	if limits == (Limits{}) {
		limits = DefaultLimits
	}
	// Before the archive is read: what differs is looked for while it is.
	if err := d.hold(ctx, j.Source); err != nil {
		return nil, err
	}
	sp, err := newSpool(ctx, d, limits, j)
	if err != nil {
		return nil, err
	}
	defer sp.f.Close()
	var changes []*change
	if j.Copy == nil {
		changes, err = sp.read(ctx, archive)
	} else {
		changes, err = sp.compare(ctx, j.Copy)
	}
	if err != nil {
		return nil, err
	}
	s, err := newSurvey(ctx, j, d, sp, changes)
	if err != nil {
		return nil, err
	}
	if err := d.as(ctx, j.Owner, j.Source, s.look); err != nil {
		return nil, writeError(err)
	}
	if err := s.merge(); err != nil {
		return nil, err
	}
	if err := s.conflicts.err(); err != nil && j.Copy == nil {
		return nil, err
	}
	report := s.report()
	if j.Request.DryRun {
		return report.applied(true), nil
	}
	if len(s.tasks) == 0 {
		s.tellMerged(report)
		return report.applied(false), s.conflicts.after(report)
	}
	p, err := s.plan(j)
	if err != nil {
		return nil, err
	}
	s.share()
	applied, err := j.write(ctx, d, sp, p, report, s.conflicts)
	if applied != nil {
		s.tellMerged(report)
	}
	return applied, err
}

// write carries a plan out. Found is what is not in it.
func (j *Job) write(ctx context.Context, d *state, sp *spool, p *plan, report *report, found conflicts) (*client.Applied, error) {
	if err := sp.sync(); err != nil {
		return nil, err
	}
	if err := d.prepare(p); err != nil {
		return nil, err
	}
	w := &writer{
		ctx: ctx, plan: p, content: sp.f, staged: make(map[int]stamp), report: report, own: make(map[string]own), buf: sp.buf,
		part: j.Copy != nil, conflicts: found,
	}
	err := d.as(ctx, j.Owner, j.Source, w.stage)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = d.commit(ctx, string(p.Source))
	}
	if err != nil {
		return nil, j.undo(ctx, d, p, err)
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), commitTime, errSlow)
	defer cancel()
	w.ctx, w.buf = ctx, &buffer{ctx, sp.buf.b}
	if err := w.carryOut(d, j.Owner, j.Source); err != nil {
		return nil, err
	}
	return report.applied(false), w.conflicts.after(report)
}

var errSlow = fmt.Errorf("it took longer than %v", commitTime)

// undo removes the files that were written for a plan that is not committed, and says why
// there is none.
func (j *Job) undo(ctx context.Context, d *state, p *plan, why error) error {
	if errors.Is(why, beneath.ErrStuck) {
		return errors.Join(writeError(why), errLitter)
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), commitTime, errSlow)
	defer cancel()
	w := &writer{ctx: ctx, plan: p}
	if err := d.as(ctx, j.Owner, j.Source, w.unstage); err != nil {
		return errors.Join(writeError(why), errLitter, err)
	}
	return writeError(why)
}

// errLitter: files that were written for a plan that is not committed could not be removed.
var errLitter = errors.New("files called .toold-… are left in the source until the next apply, or until the daemon starts")

// writeError words an error of the source's file system.
func writeError(err error) error {
	var conflict *ConflictError
	var errno unix.Errno
	switch {
	case errors.As(err, &conflict), !errors.As(err, &errno) && !errors.Is(err, beneath.ErrStuck):
		return err
	case slices.ContainsFunc(temporary, func(e error) bool { return errors.Is(err, e) }), errors.Is(err, beneath.ErrStuck):
		return fault.Overloaded.Errorf("nothing was applied: %w", err).Next("make room in the source's file system, or mend it; then try again")
	}
	return fault.Conflict.Errorf("nothing was applied: %w", err).Next("give the source's owner the rights to write there, then try again; or take the changes as a patch: toolctl diff")
}

// noRoom is for a disk of the host that is full.
func noRoom(format string, args ...any) error {
	return fault.Overloaded.Errorf(format, args...).Next("free space there, or apply less (paths, --exclude); then try again")
}

// temporary are errors that may be gone later: a committed plan waits for that.
var temporary = []error{unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EROFS, unix.ENOMEM, unix.ENFILE, unix.EMFILE, unix.EINTR}
