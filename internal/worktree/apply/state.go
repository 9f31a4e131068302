package apply

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/thread"
)

// The files of a private directory.
const (
	contentFile   = "content"   // of the changes, one after the other
	planFile      = "plan"      // what will be done; nothing of it is
	committedFile = "committed" // the same when it is being done
	ownFile       = "own"       // what was written by all jobs
	wroteFile     = "wrote"     // a plan is being carried out, or was: see Outdates
	heardFile     = "heard"     // the same, of which note is being taken
	newSuffix     = ".new"      // of a file that is being written
)

// step is called between any two steps that last. Tests stop the program in it.
var step = func(string) {}

// state is a private directory, for one job at a time.
type state struct {
	dir  string
	lock *os.File // the directory
	held *hold    // the lock on the source, while there is one
}

// openState waits for the end of another job of the directory: that of this session's apply which a
// daemon that was killed has left, mostly. A program that was just started holds the lock too, until it has
// closed what is not for it.
func openState(ctx context.Context, dir string) (*state, error) {
	for end := time.Now().Add(holdTime); ; {
		d, err := tryState(dir)
		if d != nil || err != nil {
			return d, err
		}
		if err := waitOn(ctx, end); err != nil {
			return nil, err
		}
	}
}

// tryState gives a private directory; nil where another job has it.
func tryState(dir string) (*state, error) {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return &state{dir: dir, lock: f}, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return nil, nil //nolint:nilnil // somebody else has it
	}
	return nil, fmt.Errorf("%w: lock %s: %w", ErrHeld, dir, err)
}

func (d *state) close() {
	d.letGo()
	d.lock.Close()
}

func (d *state) path(name string) string { return filepath.Join(d.dir, name) }

// as works on a source with its owner's ids. A thread that is left behind keeps the
// directory and the source locked until it ends.
func (d *state) as(ctx context.Context, owner thread.User, source *os.File, f func(root int) error) error {
	keep, err := unix.FcntlInt(d.lock.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	held, err := unix.FcntlInt(d.held.file.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return errors.Join(err, unix.Close(keep))
	}
	release := sync.OnceFunc(func() { _, _ = unix.Close(keep), unix.Close(held) })
	err = beneath.As(ctx, owner, source, func(root int) error {
		defer release()
		return f(root)
	})
	if !errors.Is(err, beneath.ErrStuck) {
		release()
	}
	return err
}

// write writes a file so that it is there as a whole or not at all.
func (d *state) write(name string, content func(io.Writer) error) error {
	f, err := os.OpenFile(d.path(name+newSuffix), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = content(f)
	if err == nil {
		err = f.Sync()
	}
	step(name + " written")
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return d.rename(name+newSuffix, name)
}

// rename gives a file another name, for good.
func (d *state) rename(from, to string) error {
	if err := os.Rename(d.path(from), d.path(to)); err != nil {
		return err
	}
	step(to + " renamed")
	return d.lock.Sync()
}

// prepare keeps a plan of which nothing is done yet.
func (d *state) prepare(p *plan) error {
	if err := d.write(planFile, p.write); err != nil {
		return fmt.Errorf("keep the plan: %w", err)
	}
	return nil
}

// commit is the moment from which the plan is carried out, whatever happens.
func (d *state) commit(ctx context.Context, source string) error {
	if err := d.mark(ctx, source); err != nil {
		return err
	}
	if err := d.rename(planFile, committedFile); err != nil {
		return fmt.Errorf("keep the plan: %w", errors.Join(err, os.Rename(d.path(committedFile), d.path(planFile))))
	}
	return nil
}

// wrote says for Outdates that the source has been written to.
func (d *state) wrote() error {
	f, err := os.OpenFile(d.path(wroteFile), os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		err = errors.Join(f.Close(), d.lock.Sync())
	}
	if err != nil {
		return fmt.Errorf("say that a source is written to: %w", err)
	}
	step("said to write")
	return nil
}

// Outdates reports whether a job of a private directory has written to its source since Outdated last
// ended, or is sure to: also one that was cut off, whoever carries out the rest of it. Then the
// source is not what earlier states of the session lie over.
func Outdates(dir string) bool {
	return slices.ContainsFunc([]string{committedFile, wroteFile, heardFile}, func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return !errors.Is(err, fs.ErrNotExist) // who cannot look does not know
	})
}

// Outdated has note take note of what Outdates says. It says so again where note fails, or the
// program ends meanwhile, and where more was written until then.
func Outdated(dir string, note func() error) error {
	err := os.Rename(filepath.Join(dir, wroteFile), filepath.Join(dir, heardFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := note(); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, heardFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// finished forgets a plan that was carried out.
func (d *state) finished() error {
	if err := os.Rename(d.path(askedFile), d.path(doneFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	step("said to be done")
	if err := os.Remove(d.path(committedFile)); err != nil {
		return err
	}
	step("plan removed")
	if err := d.lock.Sync(); err != nil {
		return err
	}
	d.clear()
	return nil
}

// clear removes what is of no plan that is committed.
func (d *state) clear() {
	for _, name := range []string{contentFile, planFile, planFile + newSuffix, ownFile + newSuffix, askedFile + newSuffix, cutFile + newSuffix} {
		_ = os.Remove(d.path(name)) // the next job tries again
		step(name + " cleared")
	}
	unmark(d.dir)
}

// plan reads the plan that there is, if there is one.
func (d *state) plan() (p *plan, committed bool, err error) {
	f, err := os.Open(d.path(committedFile))
	if committed = err == nil; errors.Is(err, fs.ErrNotExist) {
		f, err = os.Open(d.path(planFile))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	p, err = readPlan(f)
	return p, committed, err
}

// own is a file or link that a job has written to the source.
type own struct {
	CTime int64 `json:"ctime"`
	Size  int64 `json:"size"`
	Sum   raw   `json:"sum"`
	// Of is the session's version of what was merged, until it is given the merged one.
	// Until then the file is not what the session's next change would be made from.
	Of raw `json:"of,omitempty"`
	// Lent: it is a directory that was opened for the time. CTime is that of its end; whatever became
	// of it later is another's.
	Lent bool `json:"lent,omitempty"`
}

// is says whether a file of the source is what the session has, or had.
func (o own) is(v version) bool { return o == own{CTime: v.CTime, Size: v.Size, Sum: v.Sum} }

// holds says whether a change was merged into the file already.
func (o own) holds(c *change, v version) bool {
	return o.Of != "" && o == own{CTime: v.CTime, Size: v.Size, Sum: v.Sum, Of: c.of()}
}

// of tells one version of a file from others.
func (c *change) of() raw { return raw(fmt.Sprintf("%o %s", c.perm, c.sum)) }

// ownLine is one of the file.
type ownLine struct {
	Path raw `json:"path"`
	own
}

// readOwn reads what earlier jobs have written.
func (d *state) readOwn() (map[string]own, error) {
	all := make(map[string]own)
	f, err := os.Open(d.path(ownFile))
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for dec := json.NewDecoder(bufio.NewReader(f)); ; {
		var l ownLine
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read what was applied before: %w", err)
		}
		all[string(l.Path)] = l.own
	}
}

// addOwn adds what a job has written; a zero own is of what it has removed.
func (d *state) addOwn(more map[string]own) error {
	all, err := d.readOwn()
	if err != nil {
		return err
	}
	for path, o := range more {
		if was, ok := all[path]; ok && o.Lent && !was.Lent {
			continue // it is the session's all the same
		}
		if all[path] = o; o == (own{}) {
			delete(all, path)
		}
	}
	return d.write(ownFile, func(w io.Writer) error {
		b := bufio.NewWriter(w)
		enc := json.NewEncoder(b)
		for path, o := range all {
			if err := enc.Encode(ownLine{raw(path), o}); err != nil {
				return err
			}
		}
		return b.Flush()
	})
}
