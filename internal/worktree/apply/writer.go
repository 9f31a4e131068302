package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
	"github.com/toold/toold/internal/thread"
)

// writer carries out a plan. Its methods that have a root run with the owner's ids.
type writer struct {
	ctx     context.Context //nolint:containedctx // of the one plan that it lives for
	plan    *plan
	content *os.File // the spool
	// again: an earlier writer has carried out nobody knows how much of the plan.
	again bool
	// part: what cannot be written to its home is left alone, and no reason to write nothing.
	part bool
	// rewrote: of a file that was written once more the staged one may be left, in a
	// directory that was not in its place just then.
	rewrote   bool
	root      int
	staged    map[int]stamp
	made      map[string]uint64 // inodes of directories
	waited    int
	buf       *buffer
	own       map[string]own
	report    *report
	conflicts conflicts
}

// stamp tells whether a file is still the one that was staged.
type stamp struct {
	ino         uint64
	ctime, size int64
}

func stampOf(st *unix.Stat_t) stamp { return stamp{st.Ino, st.Ctim.Nano(), st.Size} }

// dir opens a directory of the source, which has to have that inode; 0 is any.
func (w *writer) dir(rel raw, ino uint64) (int, error) {
	fd, err := beneath.Open(w.root, string(rel), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return fd, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || ino != 0 && st.Ino != ino {
		_ = unix.Close(fd)
		return -1, errors.Join(err, errMoved)
	}
	return fd, nil
}

// parent opens the directory of a task.
func (w *writer) parent(t *task) (int, error) {
	dir, ino := path.Dir(string(t.Path)), t.Parent
	if ino == 0 {
		if ino = w.made[dir]; ino == 0 && !w.again {
			return -1, errMoved
		}
	}
	return w.dir(raw(dir), ino)
}

// stage writes all new files under names of ours, and waits until they are on the disk.
func (w *writer) stage(root int) error {
	w.root = root
	for i := range w.plan.tasks {
		t := &w.plan.tasks[i]
		if !t.content() {
			continue
		}
		if w.ctx.Err() != nil {
			return context.Cause(w.ctx)
		}
		fd, err := w.dir(t.Home.Dir, t.Home.Ino)
		if err == nil {
			w.staged[i], err = w.make(fd, i)
			_ = unix.Close(fd)
		}
		why := reasonOf(err)
		if why != "" && w.part {
			w.leave(string(t.Path), err)
			continue
		}
		if why != "" {
			w.conflicts.add(string(t.Path), why)
			return w.conflicts.err()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", shown(string(t.Path)), err)
		}
		step("staged")
	}
	return w.sync()
}

// sync waits until all is on the disk.
func (w *writer) sync() error {
	err := beneath.Sync(w.root)
	step("synced")
	return err
}

// make writes what a task wants under a name of ours.
func (w *writer) make(dir, i int) (stamp, error) {
	t, name := &w.plan.tasks[i], w.plan.temp(i)
	if t.Want.Kind == beneath.Link {
		if err := unix.Symlinkat(string(t.Link), dir, name); err != nil {
			return stamp{}, err
		}
		t.date(dir, name, unix.AT_SYMLINK_NOFOLLOW)
		st, err := beneath.Lstat(dir, name)
		return stampOf(&st), err
	}
	fd, err := beneath.Open(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return stamp{}, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	step("file made")
	err = w.fill(f, t.At, t.Want.Size)
	if err == nil {
		err = w.adorn(t, fd)
	}
	if err == nil {
		err = unix.Fchmod(fd, t.Want.Perm)
	}
	t.date(fd, "", unix.AT_EMPTY_PATH)
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	return stampOf(&st), err
}

// fill gives a file so many bytes of the spool from an offset on. Holes stay holes.
func (w *writer) fill(f *os.File, at, size int64) error {
	// Behind its end all would be a hole.
	if fi, err := w.content.Stat(); err != nil || fi.Size() < at+size {
		return errors.Join(err, fmt.Errorf("the spool is cut off: %w", unix.EIO))
	}
	for done := int64(0); done < size; {
		begin, end := beneath.Extent(int(w.content.Fd()), at+done, at+size)
		if begin == end {
			break
		}
		if _, err := f.Seek(begin-at, io.SeekStart); err != nil {
			return err
		}
		n, err := w.buf.copy(f, io.NewSectionReader(w.content, begin, end-begin))
		if err == nil && n != end-begin {
			err = fmt.Errorf("the spool has %d of %d bytes: %w", begin-at+n, size, unix.EIO)
		}
		if err != nil {
			return err
		}
		done = end - at
	}
	return f.Truncate(size)
}

// unstage removes the files of ours that are left.
func (w *writer) unstage(root int) error {
	w.root = root
	var failed error
	for i := range w.plan.tasks {
		t := &w.plan.tasks[i]
		if !t.content() {
			continue
		}
		if w.ctx.Err() != nil {
			return context.Cause(w.ctx)
		}
		dirs := []raw{t.Home.Dir, raw(path.Dir(string(t.Path)))}
		for _, dir := range slices.Compact(dirs) {
			fd, err := w.homeAgain(dir, t.Home)
			if err != nil {
				continue // what it was is not here any more, with all that was in it
			}
			err = unix.Unlinkat(fd, w.plan.temp(i), 0)
			_ = unix.Close(fd)
			if err != nil && !errors.Is(err, unix.ENOENT) {
				failed = fmt.Errorf("remove %s: %w", shown(path.Join(string(dir), w.plan.temp(i))), err)
			}
			step("unstaged")
		}
	}
	return failed
}

// homeAgain opens a directory in which a file of ours may be. If it is another one than it
// was, somebody may be moving it to and fro: it is waited for, a bounded time.
func (w *writer) homeAgain(dir raw, h home) (int, error) {
	if dir != h.Dir {
		return w.dir(dir, 0)
	}
	for {
		fd, err := w.dir(dir, h.Ino)
		if err == nil || w.waited >= maxWaits || w.ctx.Err() != nil {
			return fd, err
		}
		w.waited++
		time.Sleep(time.Millisecond)
	}
}

// maxWaits is how often a writer waits, a millisecond each time, for a directory to be
// where it was.
const maxWaits = 1000

// carryOut carries out a plan that is committed, and forgets it.
func (w *writer) carryOut(d *state, owner thread.User, source *os.File) error {
	err := d.wrote()
	if err == nil {
		err = d.as(w.ctx, owner, source, w.all)
	}
	if err == nil {
		err = d.addOwn(w.own)
	}
	if err == nil {
		err = d.wrote() // note may have been taken of what was written until then
	}
	if err == nil {
		err = d.finished()
	}
	if err != nil {
		return unfinished(err)
	}
	return nil
}

// all carries out all tasks. What somebody has changed meanwhile is left alone.
func (w *writer) all(root int) error {
	w.root, w.made = root, make(map[string]uint64)
	for _, m := range w.plan.modes {
		_ = w.chmod(m, m.Perm|0o700) // what cannot be opened shows in what is in it
	}
	for i := range slices.Backward(w.plan.tasks) {
		if w.plan.tasks[i].removes() && !w.report.left[i] {
			if err := w.one(i, w.remove); err != nil {
				return err
			}
		}
	}
	for i := range w.plan.tasks {
		if w.plan.tasks[i].Want.Kind != "" && !w.report.left[i] {
			if err := w.one(i, w.put); err != nil {
				return err
			}
		}
	}
	if w.again || w.rewrote || w.conflicts.found.Count > 0 {
		if err := w.unstage(root); err != nil {
			return err
		}
	}
	for _, m := range slices.Backward(w.plan.modes) {
		if err := w.chmod(m, m.Perm); err != nil {
			w.leave(string(m.Path), err)
		}
	}
	return w.sync()
}

// one carries out a part of a task. An error that may be gone later ends it all.
func (w *writer) one(i int, f func(i int) error) error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	err := f(i)
	step("task")
	if err == nil {
		return nil
	}
	name := string(w.plan.tasks[i].Path)
	if slices.ContainsFunc(temporary, func(e error) bool { return errors.Is(err, e) }) {
		return fmt.Errorf("%s: %w", shown(name), err)
	}
	w.leave(name, err)
	return nil
}

// leave notes that a path is left alone.
func (w *writer) leave(name string, err error) {
	why := reasonOf(err)
	if why == "" {
		why = errnoOf(err).Error()
	}
	w.conflicts.add(name, why)
	if i, ok := slices.BinarySearchFunc(w.plan.tasks, name, func(t task, name string) int { return compare(string(t.Path), name) }); ok {
		w.report.left[i] = true
	}
}

// chmod gives a directory of the plan a mode, if it has another one. Bits above those of
// the permissions stay.
func (w *writer) chmod(m mode, perm uint32) error {
	ino := m.Ino
	if ino == 0 {
		ino = w.made[string(m.Path)]
	}
	fd, err := w.dir(m.Path, ino)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil // not made, or no more a directory, which its task tells
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&0o777 == perm && !m.Lent {
		return err
	}
	if st.Mode&0o777 != perm {
		err = unix.Fchmodat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), st.Mode&0o7000|perm, 0)
		step("chmod")
	}
	if err == nil && m.Lent {
		err = unix.Fstat(fd, &st) // a change time is set by no program
	}
	if err == nil {
		w.own[string(m.Path)] = own{CTime: st.Ctim.Nano(), Lent: m.Lent}
	}
	return err
}

// remove removes what was there.
func (w *writer) remove(i int) error {
	t := &w.plan.tasks[i]
	parent, err := w.parent(t)
	if errors.Is(err, unix.ENOENT) || w.again && (errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)) {
		return nil // it went with its directory, which may be something else by now
	}
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	name := path.Base(string(t.Path))
	now, err := versionOf(parent, name, nil, nil)
	switch {
	case err != nil:
		return err
	case now.Kind == "", w.again && t.Want.Kind != "" && now.Kind == t.Want.Kind:
		w.own[string(t.Path)] = own{}
		return nil
	}
	if err := w.unchanged(parent, name, now, t.Was); err != nil {
		return err
	}
	flags := 0
	if now.Kind == beneath.Dir {
		flags = unix.AT_REMOVEDIR
	}
	if err := unix.Unlinkat(parent, name, flags); errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		return errUnknown
	} else if err != nil {
		return err
	}
	w.own[string(t.Path)] = own{}
	return nil
}

// unchanged sees that something is still what it was. What is in a directory counts by
// itself. A new change time alone is no change: it may be of the file's links or owner.
func (w *writer) unchanged(parent int, name string, now, was version) error {
	if now.Kind != was.Kind {
		return errTouched
	}
	if now.Kind == "" || now.Kind == beneath.Dir || now.Size == was.Size && now.CTime == was.CTime {
		return nil
	}
	return w.holds(parent, name, &was)
}

// holds sees that something has the content and the mode that are wanted, and takes its
// change time.
func (w *writer) holds(parent int, name string, want *version) error {
	now, err := versionOf(parent, name, w.buf, nil)
	if err != nil {
		return err
	}
	if !now.is(*want) {
		return errTouched
	}
	want.CTime = now.CTime
	return nil
}

// put makes a path what it is to be. What was there and had to go has gone.
func (w *writer) put(i int) error {
	t := &w.plan.tasks[i]
	parent, err := w.parent(t)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	name, was := path.Base(string(t.Path)), t.Was
	if t.removes() {
		was = version{}
	}
	now, err := versionOf(parent, name, nil, nil)
	if err != nil {
		return err
	}
	if t.Want.Kind == beneath.Dir {
		return w.putDir(t, parent, now, was)
	}
	if want := t.Want; w.again && w.holds(parent, name, &want) == nil {
		w.own[string(t.Path)] = t.own(want.CTime, want.Size) // a writer before this one has put it there
		return nil
	}
	if err := w.unchanged(parent, name, now, was); err != nil {
		return err
	}
	return w.putFile(i, parent, name, now.Kind != "")
}

func (w *writer) putDir(t *task, parent int, now, was version) error {
	name := path.Base(string(t.Path))
	switch {
	case now.Kind == beneath.Dir && (was.Kind == beneath.Dir || w.again):
		return nil
	case now.Kind != "" || was.Kind != "":
		return errTouched
	}
	if err := unix.Mkdirat(parent, name, t.Want.Perm|0o700); err != nil {
		return err
	}
	if fd, err := beneath.Open(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0); err == nil {
		t.Attrs.give(fd)
		_ = unix.Close(fd)
	}
	st, err := beneath.Lstat(parent, name)
	w.made[string(t.Path)] = st.Ino
	w.own[string(t.Path)] = own{CTime: st.Ctim.Nano()}
	return err
}

// putFile gives a file its place. The staged one takes it, if it is still as it was
// written; else it is written once more, beside its place.
func (w *writer) putFile(i, parent int, name string, there bool) error {
	t, temp := &w.plan.tasks[i], w.plan.temp(i)
	err := error(errTouched)
	if stamp, ok := w.staged[i]; ok {
		err = w.move(t, temp, stamp, parent, name, there)
	}
	if errors.Is(err, errTouched) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOENT) {
		if err := w.removeTemps(t, temp, parent); err != nil {
			return err
		}
		if _, err := w.make(parent, i); err != nil {
			_ = unix.Unlinkat(parent, temp, 0)
			return err
		}
		w.rewrote = true
		step("file written again")
		if err = rename(parent, temp, parent, name, there); err != nil {
			_ = unix.Unlinkat(parent, temp, 0)
		}
	}
	if err != nil {
		return err
	}
	st, err := beneath.Lstat(parent, name)
	w.own[string(t.Path)] = t.own(st.Ctim.Nano(), st.Size)
	return err
}

// move renames a staged file to its place.
func (w *writer) move(t *task, temp string, stamp stamp, parent int, name string, there bool) error {
	step("place open")
	fd, err := w.dir(t.Home.Dir, t.Home.Ino)
	if err != nil {
		return errTouched
	}
	defer unix.Close(fd)
	st, err := beneath.Lstat(fd, temp)
	if err != nil || stampOf(&st) != stamp {
		return errTouched
	}
	return rename(fd, temp, parent, name, there)
}

func (w *writer) removeTemps(t *task, temp string, parent int) error {
	home, err := w.dir(t.Home.Dir, 0)
	if err == nil {
		err = unix.Unlinkat(home, temp, 0)
		_ = unix.Close(home)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	if err := unix.Unlinkat(parent, temp, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// rename takes the place of what is there, or a place where nothing is.
func rename(from int, temp string, to int, name string, there bool) error {
	if there {
		return unix.Renameat(from, temp, to, name)
	}
	err := unix.Renameat2(from, temp, to, name, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // not on this file system
		return unix.Renameat(from, temp, to, name)
	}
	return err
}
