package apply

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/beneath"
)

// version is what is at a path.
type version struct {
	Kind  beneath.Kind `json:"kind"` // "" for nothing
	Perm  uint32       `json:"perm"`
	Size  int64        `json:"size"`
	CTime int64        `json:"ctime"` // ns
	Sum   raw          `json:"sum"`   // SHA-256 of a file's content or a link's target
	// Placed is when it was made or, as far as its times tell, moved there or given permissions: what
	// changes in a directory or is written to a file does not count. In ns; 0 for nothing.
	Placed int64 `json:"-"`
	// Born is when it was made, in ns, where the file system knows that.
	Born int64 `json:"-"`
	// which it is, for files.
	which which
}

func whichOf(st *unix.Stat_t) which {
	return which{Inode: st.Ino, Size: st.Size, MTime: st.Mtim.Nano(), CTime: st.Ctim.Nano()}
}

// found is what the survey finds out about a change.
type found struct {
	left             reason
	sensitive, build bool
	now              version
	done             bool   // it is as it is to be
	why              string // what is in the way
	hard             bool   // and Force does not help
	theirs           bool   // somebody put it into the source since the session began: it is never removed
	over             bool   // Force takes what somebody has changed in the source
	merged           raw    // if it was merged: of() of the session's version
	kept             bool   // the source's content is in the spool, at ours
	ours             int64
	parent           uint64 // inode of its directory; 0 where that is to be made
	home             home   // where it is written before it takes its place
}

// home is a directory that is there and can be written to.
type home struct {
	Dir raw    `json:"dir"`
	Ino uint64 `json:"ino"`
}

// survey looks at the source: which changes there are to make, and what is in their way.
type survey struct {
	ctx     context.Context //nolint:containedctx // of the one job that it lives for
	job     *Job
	state   *state
	spool   *spool
	choice  *chooser
	changes []*change
	own     map[string]own
	bases   bases
	heads   map[string]baseHead // what was kept of files, by path
	root    int
	dirs
	modes     map[string]*mode // of directories, by path
	conflicts conflicts
	tasks     []task
}

func newSurvey(ctx context.Context, j *Job, d *state, sp *spool, changes []*change) (*survey, error) {
	choice, err := newChooser(j.Request, j.Sensitive)
	if err != nil {
		return nil, err
	}
	s := &survey{ctx: ctx, job: j, state: d, spool: sp, choice: choice, changes: changes, modes: make(map[string]*mode)}
	if s.own, err = d.readOwn(); err == nil {
		s.bases, err = d.bases(j.Since)
	}
	s.begun = s.bases.begun()
	for i := 0; err == nil && i < len(changes); i++ {
		before := ""
		if i > 0 {
			before = changes[i-1].path
		}
		err = j.Begun.lead(s.begun, before, changes[i].path, changes[i].kind == beneath.Dir)
	}
	s.begun.but(s.own)
	s.heads = d.heads(&s.bases, len(changes), func(i int) string { return changes[i].path }, s.own) // its user may not read them
	return s, err
}

func (s *survey) over() error { return context.Cause(s.ctx) }

// look looks at all. It runs with the owner's ids.
func (s *survey) look(root int) error {
	s.root = root
	if err := s.choice.choose(root, s.changes, s.over); err != nil {
		return err
	}
	s.open = []openDir{{path: ".", fd: root}}
	defer s.close(1)
	gone := make(map[string]bool)
	for _, c := range s.changes {
		if c.left != chosen {
			continue
		}
		if err := s.over(); err != nil {
			return err
		}
		if err := s.examine(c); err != nil {
			if c.why = reasonOf(err); c.why == "" {
				return fmt.Errorf("%s: %w", shown(c.path), err)
			}
			c.hard = true
		}
		step("looked at")
		gone[c.path] = !c.put() && !c.theirs
	}
	for _, c := range slices.Backward(s.changes) {
		if c.left == chosen && !c.done && c.now.Kind == beneath.Dir && c.kind != beneath.Dir && c.why == "" {
			if err := s.emptied(c, gone); err != nil {
				return fmt.Errorf("%s: %w", shown(c.path), err)
			}
		}
	}
	return nil
}

// inTheWay is an error about one path.
type inTheWay string

func (e inTheWay) Error() string { return string(e) }

// reasonOf says what an error about one path means to people; "" where it is about more.
func reasonOf(err error) string {
	var way inTheWay
	switch {
	case err == nil:
		return ""
	case errors.As(err, &way):
		return string(way)
	case errors.Is(err, unix.ELOOP):
		return "a symbolic link is on the way to it"
	case errors.Is(err, unix.EXDEV):
		return "something is mounted there"
	case errors.Is(err, unix.ENOTDIR):
		return "what should be its directory is none"
	case errors.Is(err, unix.ENOENT):
		return "its directory is not there"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.ENXIO):
		return errnoOf(err).Error()
	}
	return ""
}

func errnoOf(err error) error {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno
	}
	return err
}

// examine looks at what is where a change goes.
func (s *survey) examine(c *change) error {
	up := c.up
	switch {
	case c.why != "":
		return inTheWay(c.why)
	case s.job.Copy != nil && up != nil && up.why != "" && c.put() && up.makes():
		return errNotMade
	}
	if up != nil && up.left == chosen && up.now.Kind != beneath.Dir {
		// Nothing is there: the directory is yet to be made, or has become something else.
		if c.put() && path.Dir(c.path) != up.path {
			return unix.ENOENT
		}
		c.done, c.home = !c.put(), up.home
		s.modeOf(c)
		return nil
	}
	parent, err := s.dir(path.Dir(c.path))
	if (errors.Is(err, unix.ENOENT) || s.job.Copy != nil && errors.Is(err, unix.ENOTDIR)) && !c.put() {
		c.done = true
		return nil
	}
	if err != nil {
		return err
	}
	c.now, err = s.version(c, parent)
	if err != nil {
		return err
	}
	if s.judge(c); c.done {
		return nil
	}
	s.modeOf(c)
	return s.enter(c, parent)
}

// version looks at what is there, and keeps the content of a file that this job or another
// one may have to merge.
func (s *survey) version(c *change, parent int) (version, error) {
	name, keep := path.Base(c.path), io.Writer(nil)
	v, err := versionOf(parent, name, s.spool.buf, func(st *unix.Stat_t) io.Writer {
		if s.keeps(c, st) {
			keep = &spooling{s.spool, s.spool.at}
		}
		return keep
	})
	if keep != nil && err == nil {
		c.kept, c.ours = true, s.spool.at
		s.spool.at += v.Size
		s.spool.data += v.Size
	}
	return v, err
}

// versionOf looks at what a directory has by a name. A file is read through a buffer;
// without one, it has no sum. content says where to write a copy; nil is nowhere.
func versionOf(parent int, name string, buf *buffer, content func(*unix.Stat_t) io.Writer) (v version, err error) {
	fd, err := beneath.Open(parent, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) {
		return v, nil
	}
	if err != nil {
		return v, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return v, err
	}
	v = version{Kind: beneath.KindOf(st.Mode), Perm: st.Mode & 0o777, Size: st.Size, CTime: st.Ctim.Nano(), which: whichOf(&st)}
	v.Placed, v.Born = placed(fd, &st)
	switch v.Kind {
	case "":
		v.Kind = other
	case beneath.Link:
		target := make([]byte, beneath.MaxPath+1)
		n, err := unix.Readlinkat(fd, "", target)
		v.Sum = raw(sumOf(string(target[:max(n, 0)])))
		return v, err
	case beneath.File:
		if buf != nil {
			v.Sum, err = read(parent, name, &st, buf, content)
		}
	}
	return v, err
}

// placed gives a version's Placed and Born. What is put into a directory, or removed, changes both of its
// times.
func placed(fd int, st *unix.Stat_t) (at, born int64) {
	var x unix.Statx_t
	if unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &x) == nil && x.Mask&unix.STATX_BTIME != 0 {
		born = x.Btime.Sec*1e9 + int64(x.Btime.Nsec)
	}
	if st.Ctim != st.Mtim {
		return max(born, st.Ctim.Nano()), born
	}
	return born, born
}

// read reads a file, which must be the one that st is of, and stay as it is.
func read(parent int, name string, st *unix.Stat_t, buf *buffer, content func(*unix.Stat_t) io.Writer) (raw, error) {
	fd, err := beneath.Open(parent, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	sum := sha256.New()
	to := io.Writer(sum)
	if content != nil {
		if w := content(st); w != nil {
			to = io.MultiWriter(sum, w)
		}
	}
	var now unix.Stat_t
	n, err := buf.copy(to, io.LimitReader(f, st.Size))
	if err == nil {
		err = unix.Fstat(fd, &now)
	}
	if err == nil && (n != st.Size || now.Ino != st.Ino || now.Ctim != st.Ctim || now.Size != st.Size) {
		err = errTouched
	}
	return raw(sum.Sum(nil)), err
}

// The reasons why a path is left alone.
const (
	errTouched  = inTheWay("somebody is changing it")
	errMoved    = inTheWay("its directory is another one now")
	errUnknown  = inTheWay("it is a directory with files in it that the session has not removed")
	errReadOnly = inTheWay("its directory cannot be written to")
	errNotOwned = inTheWay("its mode is another user's to change")
	errNotMade  = inTheWay("its directory is not made")
	errNoTarget = inTheWay("it is a hard link to no file that comes before it")
	errAnother  = inTheWay("it is another directory than the session began with")
	errSpecial  = inTheWay("the source has a FIFO, socket or device there, which is not replaced")
	errAmid     = inTheWay("its directory is not the one that the session began with")
	errTheirs   = inTheWay("it came into the source since the session began")
)

// judge says whether a change is done already, and what is in its way.
func (s *survey) judge(c *change) {
	now := c.now
	switch {
	case now.is(c.want()), c.status == client.ChangeAdded && c.kind == beneath.Dir && now.Kind == beneath.Dir:
		c.done = true
	case s.own[c.path].holds(c, now):
		c.done, c.merged = true, c.of()
	case now.Kind == other:
		c.why, c.hard = string(errSpecial), true
	case now.Kind == beneath.Dir && c.old != beneath.Dir:
		c.why, c.hard = "a directory is in its place", true
	case now.Kind == c.old && (now.Kind == "" || now.Kind == beneath.Dir) && !s.replaces(c):
	case now.Kind == beneath.Dir && c.kind == beneath.Dir && now.Kind == c.old:
		c.why = string(errBothModes)
		if _, known := s.bases.dirMode(c.path); !known {
			c.why = "it was changed since the session began"
		}
	case now.Kind == beneath.Dir && c.old == beneath.Dir:
		// Its files are somebody's, whatever the difference to it says of them.
		c.why, c.hard, c.theirs = string(errAnother), c.put(), true
	case c.old == "":
		c.why = "something new is in its place"
	case now.Kind == "":
		c.why = "it was removed"
	case now.Kind != c.old:
		c.why = "it is of another type now"
	case now.Sum != raw(c.oldSum):
		c.why = "its content is not what the session's change was made from"
	case now.CTime > s.since(c) && !s.own[c.path].is(now), s.heads[c.path].differs(now, func() (raw, error) { return now.Sum, nil }):
		c.why = "it was changed since the session began"
	}
	if c.why == "" && !c.done && s.amidAnother(c) {
		c.why = string(errAmid)
	}
	if s.theirs(c) {
		c.why, c.theirs = string(errTheirs), true
	}
	if c.why != "" && s.unchanged(c) {
		c.why, c.hard, c.theirs, c.done = "", false, false, true
	}
}

// amidTheirs says whether a directory that leads to where the walk is is another one than the session
// began with: then all that is in it is somebody's.
func (s *dirs) amidTheirs(had *bases, since int64, all map[string]own) bool {
	if s.swapped() {
		return true
	}
	for i := 1; i < len(s.open); i++ {
		d := &s.open[i]
		if d.looked {
			if d.another {
				return true
			}
			continue
		}
		d.looked = true
		var st unix.Stat_t
		if d.err != nil || unix.Fstat(d.fd, &st) != nil {
			continue
		}
		v := version{Kind: beneath.Dir, Perm: st.Mode & 0o777}
		v.Placed, v.Born = placed(d.fd, &st)
		if d.another = had.another(d.path, v, since, all); d.another {
			return true
		}
	}
	return false
}

// amidAnother says whether something is there that is not what the change was made from, because it
// is in another directory.
func (s *survey) amidAnother(c *change) bool {
	return s.job.Copy == nil && c.now.Kind != "" && s.swapped()
}

// theirs says whether what would be removed came into the source after the session began. What was
// there before is known by what was kept of it; else by when it was put there, which a file tells that
// was written in place.
func (s *survey) theirs(c *change) bool {
	if c.put() || c.done || s.job.Copy != nil || c.now.Kind == "" {
		return false
	}
	if s.amidTheirs(&s.bases, s.job.Since-s.job.Back, s.own) {
		return true
	}
	_, wrote := s.own[c.path]
	return c.why != "" && c.now.Kind != beneath.Dir && !wrote && !s.bases.has(c.path) && c.now.Placed > s.since(c)
}

// is says whether something is what is wanted.
func (v version) is(want version) bool {
	switch {
	case v.Kind != want.Kind:
		return false
	case v.Kind == beneath.Dir:
		return v.Perm == want.Perm
	case v.Kind == beneath.File:
		return v.Perm == want.Perm && v.Size == want.Size && v.Sum == want.Sum
	}
	return v.Sum == want.Sum
}

// want is what is to be there.
func (c *change) want() version {
	if !c.put() {
		return version{}
	}
	size := c.size
	if c.kind == beneath.Link {
		size = int64(len(c.link))
	}
	return version{Kind: c.kind, Perm: c.perm, Size: size, Sum: raw(c.sum)}
}

// modeOf notes the mode that a directory gets when all is in it.
func (s *survey) modeOf(c *change) {
	if c.kind != beneath.Dir || c.done {
		return
	}
	if s.modes[c.path] == nil {
		s.modes[c.path] = &mode{Path: raw(c.path)}
	}
	s.modes[c.path].Perm, s.modes[c.path].Lent = c.perm, false
}

// enter sees that the owner can write where a change goes. A directory of his that he
// cannot write to is opened for the time, as the tools in the session have done.
func (s *survey) enter(c *change, parent int) error {
	var st unix.Stat_t
	if err := unix.Fstat(parent, &st); err != nil {
		return err
	}
	c.parent = st.Ino
	dir := path.Dir(c.path)
	if c.kind == beneath.Dir && c.now.Kind == beneath.Dir {
		return s.mayChmod(c, parent)
	}
	err := unix.Faccessat2(parent, "", unix.W_OK|unix.X_OK, unix.AT_EACCESS|unix.AT_EMPTY_PATH)
	if err == nil {
		c.home = home{raw(dir), st.Ino}
		return nil
	}
	if !errors.Is(err, unix.EACCES) || st.Uid != s.job.Owner.UID {
		return errReadOnly
	}
	if s.modes[dir] == nil {
		s.modes[dir] = &mode{Path: raw(dir), Ino: st.Ino, Perm: st.Mode & 0o777, Lent: true}
	}
	return s.homeAbove(c)
}

// homeAbove finds the nearest directory above that can be written to.
func (s *survey) homeAbove(c *change) error {
	for _, d := range slices.Backward(s.open) {
		if unix.Faccessat2(d.fd, "", unix.W_OK|unix.X_OK, unix.AT_EACCESS|unix.AT_EMPTY_PATH) == nil {
			var st unix.Stat_t
			err := unix.Fstat(d.fd, &st)
			c.home = home{raw(d.path), st.Ino}
			return err
		}
	}
	return errReadOnly
}

// mayChmod sees that the mode of a directory is the owner's to change.
func (s *survey) mayChmod(c *change, parent int) error {
	st, err := beneath.Lstat(parent, path.Base(c.path))
	if err == nil && st.Uid != s.job.Owner.UID && s.job.Owner.UID != 0 {
		return errNotOwned
	}
	s.modes[c.path].Ino = st.Ino
	return err
}

// emptied sees that a directory that goes has nothing in it but what goes too.
func (s *survey) emptied(c *change, gone map[string]bool) error {
	fd, err := beneath.Open(s.root, c.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		if c.why, c.hard = reasonOf(err), true; c.why == "" {
			return err
		}
		return nil
	}
	f := os.NewFile(uintptr(fd), c.path)
	defer f.Close()
	for {
		names, err := f.Readdirnames(1000)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if !gone[c.path+"/"+name] {
				// With Force it is kept, unless something else has to take its place.
				c.why, c.hard, c.theirs = string(errUnknown), c.put(), !c.put()
				gone[c.path] = false
				return nil
			}
		}
	}
}
