package root

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Transaction is a change of several files: all of it happens, or nothing. It holds a lock
// on each file that is there, and their directories, as a Replacement does of one.
//
// No file is ever there in part: each takes its place by one rename, and gives its place
// back when a later one cannot take its own. Where the Root has a journal
// (Config.Journal), what is being done stands in it before it is begun, so that Recover
// can finish or undo it when the process is killed.
type Transaction struct {
	r     *Root
	begun map[string]*Replacement
}

// FileChange is what becomes of one file.
type FileChange struct {
	Path    string // canonical; one of those that BeginAll was given
	Remove  bool
	Content []byte
	// Like is the path of a file, as it was, whose mode, owner and attributes a file gets
	// that is made: one that is moved has those of its source. "" = a new file's.
	Like string
	// Exec gives or takes the right to execute from all who may read; nil = neither.
	Exec *bool
}

// BeginAll prepares to change, make or remove the files at canonical paths. What locks
// them, or a part of them, for longer than lockWait makes it Failed.
func (r *Root) BeginAll(ctx context.Context, paths []string) (*Transaction, error) {
	t := &Transaction{r: r, begun: make(map[string]*Replacement)}
	sorted := slices.Clone(paths) // two transactions that want the same files wait in the same order
	slices.Sort(sorted)
	for _, path := range slices.Compact(sorted) {
		p, err := r.Begin(ctx, path, BeginOptions{})
		switch {
		case CodeOf(err) == NotExist: // its directory is not there either
		case err != nil:
			t.Close()
			return nil, err
		default:
			t.begun[path] = p
		}
	}
	return t, nil
}

// Info is a file as it is before the transaction.
func (t *Transaction) Info(path string) Info {
	if p := t.begun[path]; p != nil {
		return p.Info()
	}
	return Info{Path: path}
}

// ReadOld is Replacement.ReadOld of one of the files.
func (t *Transaction) ReadOld(ctx context.Context, path string, limit int64) ([]byte, error) {
	if p := t.begun[path]; p != nil {
		return p.ReadOld(ctx, limit)
	}
	return nil, nil
}

// Close gives up locks and directories. It must be called once, also after Commit.
func (t *Transaction) Close() {
	for _, p := range t.begun {
		p.Close()
	}
}

// Commit makes the changes, at most one of each path. It is Stale when a file is not as
// BeginAll found it. After an error nothing has changed. Where something could not be put
// back, the error says so: somebody else has changed it in that moment, or the file system
// takes no more changes; then it says which file beside has what was there.
func (t *Transaction) Commit(ctx context.Context, changes []FileChange, o CommitOptions) ([]Committed, error) {
	var done []Committed
	err := t.r.do(ctx, func() error {
		c, err := t.plan(changes, o)
		if err != nil {
			return err
		}
		done, err = c.run(ctx)
		return err
	})
	return done, err
}

// commit is a transaction on its way.
type commit struct {
	t     *Transaction
	o     CommitOptions
	steps []*step
	log   *record // nil without a journal
	dirs  []string
}

// plan names all that is going to be made.
func (t *Transaction) plan(changes []FileChange, o CommitOptions) (*commit, error) {
	c := &commit{t: t, o: o}
	token := strings.TrimPrefix(tempName(), tempPrefix)
	for i := range changes {
		s := &step{FileChange: changes[i], p: t.begun[changes[i].Path]}
		if t.r.journal == nil {
			s.fresh, s.old = tempName(), tempName()
		} else {
			// Not the names of temporary files, which the next one sweeps away.
			s.fresh, s.old = fmt.Sprintf("%s%s-%d.new", journalPrefix, token, i), fmt.Sprintf("%s%s-%d.old", journalPrefix, token, i)
		}
		if s.Remove && !t.Info(s.Path).Exists {
			return nil, errf(Stale, "%q has been removed by somebody else meanwhile", s.Path)
		}
		c.steps = append(c.steps, s)
	}
	c.dirs = t.missing(changes)
	if t.r.journal == nil {
		return c, nil
	}
	c.log = &record{token: token, Dirs: c.dirs}
	for _, s := range c.steps {
		e := entry{Path: s.Path, New: s.fresh, Old: s.old}
		if info := t.Info(s.Path); info.Exists {
			old, err := s.p.readKnown()
			if err != nil {
				return nil, err
			}
			e.Was = sumOf(old)
		}
		if !s.Remove {
			e.Is = sumOf(s.Content)
		}
		s.alike = e.Was == e.Is
		c.log.Steps = append(c.log.Steps, e)
	}
	return c, nil
}

// missing are the directories that are to be made, the upper ones first.
func (t *Transaction) missing(changes []FileChange) []string {
	var dirs []string
	for i := range changes {
		if t.begun[changes[i].Path] != nil {
			continue
		}
		var above []string
		for dir := filepath.Dir(changes[i].Path); dir != "/"; dir = filepath.Dir(dir) {
			fd, err := openat2(t.r.fd, dir, unix.O_PATH|unix.O_DIRECTORY, noFollow)
			if err == nil {
				unix.Close(fd)
				break
			}
			above = append(above, dir)
		}
		for _, dir := range slices.Backward(above) {
			if !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

func (c *commit) run(ctx context.Context) (done []Committed, err error) {
	if c.log != nil {
		if err := c.t.r.journal.put(c.log); err != nil {
			return nil, &Error{Code: Failed, Msg: "the change of several files cannot be noted before it is made: " + err.Error(), Err: err}
		}
	}
	defer func() {
		if err != nil {
			err = c.undo(err)
		}
		for _, s := range c.steps {
			s.close()
		}
		if err != nil { // by now nothing of ours is in them
			for _, dir := range slices.Backward(c.dirs) {
				c.t.r.removeDir(dir)
			}
		}
		if c.log != nil {
			c.t.r.at()
			c.t.r.journal.drop(c.log)
		}
	}()
	if err := c.stage(ctx); err != nil {
		return nil, err
	}
	for _, s := range c.steps {
		if err := s.check(); err != nil {
			return nil, err
		}
	}
	for _, s := range c.steps {
		c.t.r.at()
		if err := s.place(c.t.r); err != nil {
			return nil, err
		}
	}
	return c.finish()
}

// stage writes all new content under names of its own.
func (c *commit) stage(ctx context.Context) error {
	for _, s := range c.steps {
		if s.p == nil {
			c.t.r.at()
			p, err := c.t.r.begin(s.Path, BeginOptions{Parents: true})
			if errors.Is(err, errLocked) {
				err = errf(Stale, "%q has been created by somebody else meanwhile", s.Path)
			}
			if err != nil {
				return err
			}
			s.p, c.t.begun[s.Path] = p, p
		}
		if s.Remove {
			continue
		}
		var like *Replacement
		switch {
		case s.Like != "" && c.t.begun[s.Like] != nil:
			like = c.t.begun[s.Like]
		case s.p.info.Exists:
			like = s.p
		}
		c.t.r.at()
		if err := s.fill(ctx, like, c.o); err != nil {
			return err
		}
	}
	return nil
}

// finish removes what was there before. From here on nothing is undone.
func (c *commit) finish() ([]Committed, error) {
	var done []Committed
	for _, s := range c.steps {
		if c.o.Durable {
			if err := syncDir(s.p.dirfd); err != nil {
				return nil, sysError("sync the directory of", s.Path, err)
			}
		}
	}
	if c.log != nil {
		c.t.r.at()
		if err := c.t.r.journal.finish(c.log); err != nil {
			return nil, &Error{Code: Failed, Msg: "the change of several files cannot be noted as done: " + err.Error(), Err: err}
		}
	}
	for _, s := range c.steps {
		c.t.r.at()
		s.settle()
		d := Committed{Info: Info{Path: s.Path}, NotKept: s.notKept, Names: s.names}
		var st unix.Stat_t
		if !s.Remove && unix.Fstat(s.t.fd, &st) == nil {
			d.Info = infoOf(s.Path, &st)
		}
		done = append(done, d)
	}
	return done, nil
}

// undo puts everything back, the last first, and says why.
func (c *commit) undo(why error) error {
	var left []string
	for _, s := range slices.Backward(c.steps) {
		c.t.r.at()
		if err := s.undo(); err != nil {
			left = append(left, fmt.Sprintf("%q could not be put back, as %s", s.Path, err))
		}
	}
	if len(left) == 0 {
		return why
	}
	return &Error{Code: CodeOf(why), Msg: fmt.Sprintf("%s; and %s", why, strings.Join(left, "; ")), Err: why}
}

// removeDir removes a directory that was made, if nothing is in it.
func (r *Root) removeDir(canonical string) {
	dirfd, base, err := r.openParent(canonical, false)
	if err != nil {
		return
	}
	defer unix.Close(dirfd)
	_ = unix.Unlinkat(dirfd, base, unix.AT_REMOVEDIR)
}

// at is called before each change that a process could be killed before.
func (r *Root) at() {
	if r.step != nil {
		r.step()
	}
}
