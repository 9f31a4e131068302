package apply

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/fault"
	"github.com/toold/toold/internal/hostlock"
)

// mark is what is left of a job whose plan was committed and not carried out. It is a file of its
// own in a directory that all daemons of the host have, and is named for the job's directory.
type mark struct {
	Dir string `json:"dir"`
	Way way    `json:"way"` // to Dir
	// Source is the path of the source, as its daemon sees it.
	Source    raw `json:"source"`
	SourceWay way `json:"source_way"`
	// Daemon says to people whose it is: its host or container, and its cgroup.
	Daemon string `json:"daemon"`
	sourceNames
}

func marksDir() string { return filepath.Join(hostlock.Dir(), "applies") }

func markName(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:])
}

func markFile(dir string) string { return filepath.Join(marksDir(), markName(dir)) }

// mark marks that the plan of a directory is being carried out. It returns when that is on the disk.
func (d *state) mark(ctx context.Context, source string) error {
	m := mark{Dir: d.dir, Source: raw(source), Daemon: daemonName(), sourceNames: d.held.sourceNames}
	// A source that was moved meanwhile has no way to it.
	m.SourceWay, _ = soon(ctx, func() (way, error) { return wayTo(source) })
	var err error
	if m.Way, err = wayTo(d.dir); err == nil {
		err = m.write()
	}
	if err != nil {
		return fmt.Errorf("mark a source: %w", err)
	}
	step("marked")
	return nil
}

// write writes the mark. The lock on the directory says that a file with newSuffix is being written.
func (m *mark) write() error {
	marks, err := os.Open(marksDir())
	if err != nil {
		return err
	}
	defer marks.Close()
	if err := unix.Flock(int(marks.Fd()), unix.LOCK_SH); err != nil {
		return err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	name := markFile(m.Dir)
	f, err := os.OpenFile(name+newSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	step("mark written")
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return marks.Sync()
}

// unmark takes back the mark of a directory, which the caller has locked.
func unmark(dir string) {
	_ = os.Remove(markFile(dir)) // a job that finds it finds nothing to do
}

// daemonName tells people which daemon this is.
func daemonName() string {
	host, _ := os.Hostname()
	text, _ := os.ReadFile("/proc/self/cgroup")
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	_, group, _ := strings.Cut(lines[len(lines)-1], "::")
	return strings.TrimSpace(host + " " + group)
}

// way has the directories on a path, from the root on. Daemons may have mounts of their own, so
// that one finds nothing, or something else, where another has a directory: the names of mount
// namespaces do not tell, as the kernel gives them again.
type way []stage

// stage is one of them: which it is, and whether something is mounted there.
type stage struct {
	Dev     uint64 `json:"dev"`
	Ino     uint64 `json:"ino"`
	Mounted bool   `json:"mounted"`
}

// wayTo gives the way to a directory. Its path must have no links.
func wayTo(dir string) (w way, err error) {
	err = walk(dir, func(_ int, s stage) bool { w = append(w, s); return true })
	return w, err
}

// walk shows all that is on a path, until show is false.
func walk(dir string, show func(i int, s stage) bool) error {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	names := strings.Split(strings.Trim(dir, "/"), "/")
	var mount uint64
	for i := 0; ; i++ {
		var st unix.Statx_t
		if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_INO|unix.STATX_MNT_ID, &st); err != nil {
			return err
		}
		s := stage{Dev: unix.Mkdev(st.Dev_major, st.Dev_minor), Ino: st.Ino, Mounted: i > 0 && st.Mnt_id != mount}
		if mount = st.Mnt_id; !show(i, s) || i == len(names) || names[i] == "" {
			return nil
		}
		next, err := unix.Openat(fd, names[i], unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		_ = unix.Close(fd)
		fd = next
	}
}

// sight is what this process sees of a directory of another one.
type sight int

const (
	unseen sight = iota // something else may be mounted on the way to it, here or there
	seen
	gone // it was removed, or moved
)

// look looks for the directory that the way leads to.
func (w way) look(dir string) sight {
	passed, at := 0, unseen
	err := walk(dir, func(i int, s stage) bool {
		switch {
		case i >= len(w):
		case s.Dev == w[i].Dev && s.Ino == w[i].Ino:
			passed++
			return true
		case i > 0 && !s.Mounted && !w[i].Mounted:
			at = gone // another is in the same directory by that name
		}
		return false
	})
	missing := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
	switch {
	case err == nil && passed == len(w) && passed > 0:
		return seen
	case err == nil:
		return at
	case missing && passed > 0 && passed < len(w) && !w[passed].Mounted:
		return gone
	}
	return unseen
}

// look looks for the job's directory. A mark of an older daemon has no way to it: there the path
// has to do.
func (m *mark) look() sight {
	if len(m.Way) > 0 {
		return m.Way.look(m.Dir)
	}
	switch _, err := os.Lstat(m.Dir); {
	case err == nil:
		return seen
	case errors.Is(err, fs.ErrNotExist):
		return gone
	}
	return unseen
}

// finishOthers carries out the plans that others have committed for the source and died with.
func (d *state) finishOthers(ctx context.Context) error {
	names, err := os.ReadDir(marksDir())
	if err != nil {
		return fmt.Errorf("look for marks on a source: %w", err)
	}
	for _, n := range names {
		if filepath.Ext(n.Name()) == newSuffix {
			sweepMarks()
			continue // of one that is being written, whose plan is not committed
		}
		if n.Name() == markName(d.dir) {
			continue
		}
		m, err := d.readMark(ctx, n.Name())
		if err != nil {
			return err
		}
		if m == nil || !d.held.near(m.sourceNames) {
			continue
		}
		if err := d.finishOther(ctx, m); errors.Is(err, errBusy) {
			return err
		} else if err != nil {
			hint := "it is tried again with each apply and when its daemon starts: see to what it says, and try again"
			if e, ok := errors.AsType[*fault.Error](err); ok && e.Hint != "" {
				err, hint = e.Err, e.Hint
			}
			return fault.Overloaded.Errorf("nothing was applied: %w: one before it is not finished: %w", ErrHeld, err).Next(hint)
		}
	}
	return nil
}

// sweepMarks removes marks that were not written to their end, unless one is being written.
func sweepMarks() {
	marks, err := os.Open(marksDir())
	if err != nil {
		return
	}
	defer marks.Close()
	if unix.Flock(int(marks.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	left, _ := filepath.Glob(filepath.Join(marksDir(), "*"+newSuffix))
	for _, name := range left {
		_ = os.Remove(name) // the next job tries again
	}
}

// readMark reads a mark; nil is none. One that cannot be read is made again where it is of a
// directory beside that of d, whose plan says what was in it.
func (d *state) readMark(ctx context.Context, name string) (*mark, error) {
	if len(name) != 2*sha256.Size {
		return nil, nil //nolint:nilnil // no job has written that
	}
	m, err := parseMark(name)
	if m != nil || err == nil {
		return m, nil
	}
	dirs, _ := filepath.Glob(filepath.Join(filepath.Dir(d.dir), "*"))
	for _, dir := range dirs {
		if markName(dir) == name {
			return planned(ctx, dir)
		}
	}
	return nil, fault.Overloaded.Errorf("nothing was applied: an apply was cut off, and what its mark says of it is damaged, so that it may have been about these files: %w", err).
		Next("restart the other toolds of this host, each of which finishes its own; if it is then still there and no apply is unfinished, the host's administrator removes " +
			filepath.Join(marksDir(), name))
}

// parseMark reads a mark; nil without an error is none.
func parseMark(name string) (*mark, error) {
	text, err := os.ReadFile(filepath.Join(marksDir(), name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // carried out meanwhile
	}
	m := new(mark)
	if err == nil {
		err = json.Unmarshal(text, m)
	}
	if err == nil && (markName(m.Dir) != name || len(m.Own) == 0) {
		err = errors.New("it is not whole")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// planned is the mark that the plan of a directory needs; nil where it needs none.
func planned(ctx context.Context, dir string) (*mark, error) {
	p, committed, err := (&state{dir: dir}).plan()
	if err != nil || !committed {
		return nil, err
	}
	m := &mark{Dir: dir, Source: p.Source}
	source, err := soon(ctx, p.open)
	if errors.Is(err, errElsewhere) {
		return nil, nil //nolint:nilnil // until it is back there, nobody can carry it out
	}
	if err != nil {
		return nil, unfinished(err)
	}
	defer source.Close()
	m.sourceNames, err = soon(ctx, func() (sourceNames, error) { return namesOf(source) })
	return m, err
}

// finishOther carries out the plan of another directory, with the lock of this one. It is errBusy where
// somebody else does.
func (d *state) finishOther(ctx context.Context, m *mark) error {
	switch m.look() {
	case gone:
		unmark(m.Dir)
		return nil
	case unseen:
		return m.hidden(m.Dir)
	}
	o, err := tryState(m.Dir)
	if err != nil {
		return err
	}
	if o == nil {
		return errBusy
	}
	defer o.lock.Close()
	o.held = d.held
	_, err = o.recoverHeld(ctx) // which takes the mark back with the plan
	if errors.Is(err, errElsewhere) {
		at, _ := soon(ctx, func() (sight, error) { return m.SourceWay.look(string(m.Source)), nil })
		if len(m.SourceWay) > 0 && at == unseen {
			return m.hidden(string(m.Source))
		}
		return nil // until it is back there, nobody can
	}
	if err == nil {
		unmark(m.Dir)
	}
	return err
}

// hidden says that the plan of a mark needs what this daemon cannot see.
func (m *mark) hidden(path string) error {
	whose := cmp.Or(m.Daemon, "an older version")
	return fault.Overloaded.Errorf("it is of another daemon (%s), and this one cannot see %s, which has mounts of its own", shown(whose), shown(path)).
		Next(fmt.Sprintf("start that daemon again, which finishes it, and try again; if it is gone for good, the host's administrator looks at %s and removes %s",
			shown(string(m.Source)), markFile(m.Dir)))
}

// Trouble says which applies were cut off that this daemon cannot finish: applies to their
// sources are refused.
func Trouble() (all []string) {
	names, _ := os.ReadDir(marksDir()) // where there is none, nothing was cut off
	for _, n := range names {
		if len(n.Name()) != 2*sha256.Size {
			continue
		}
		switch m, err := parseMark(n.Name()); {
		case err != nil:
			all = append(all, fmt.Sprintf("a mark of an apply that was cut off is damaged: %s", filepath.Join(marksDir(), n.Name())))
		case m != nil && m.look() == unseen:
			all = append(all, fmt.Sprintf("an apply to %s was cut off, of another daemon (%s) that keeps it in %s", shown(string(m.Source)), shown(m.Daemon), shown(m.Dir)))
		}
	}
	return all
}
