package run

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/sensitive"
	"github.com/toold/toold/internal/tool/run/ignore"
	"github.com/toold/toold/internal/tool/run/root"
)

// Watch knows which files of the worktree a host runs or obeys on sight: git when
// it is started there, a shell with direnv, an editor, CI. It remembers them from
// before the first call that may write, so that Changes can say which ones differ.
//
// Those at the top of the worktree are compared by their content. Below that, where
// only Changes looks, a file counts as changed when its change time says so, which
// no tool can set back: a tree of any size costs nothing when a session begins.
type Watch struct {
	mu     sync.Mutex // guards the fields below
	marked bool
	since  int64             // of change times, in ns
	before map[string]string // fingerprints, by the path below the worktree
	whole  bool              // before has all
}

// WriteTool is a Tool that may change the worktree.
type WriteTool interface {
	Tool
	writes()
}

func (Bash) writes()        {}
func (Write) writes()       {}
func (ApplyPatch) writes()  {}
func (FilePut) writes()     {}
func (FilePutTree) writes() {}

const (
	watchFiles     = 5000    // looked at by their content
	watchFileBytes = 1 << 20 // of one of them
	watchTime      = 2 * time.Second
	watchDirs      = 200_000 // looked into for names
	watchPaths     = 50      // told of each kind
	watchPathBytes = 300     // of one of them
	watchWalkTime  = 5 * time.Second
)

// Mark remembers how things are, the first time that it is called.
func (w *Watch) Mark(ctx context.Context, env *Env) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.marked {
		return
	}
	w.marked = true
	w.since = coarseNow()
	// A first call that is aborted must not end the look early.
	s := newSurvey(context.WithoutCancel(ctx), env, watchTime)
	defer s.cancel()
	if err := env.Root.Lend(s.ctx, s.top); err != nil {
		s.whole = false
	}
	w.before, w.whole = s.found, s.whole
}

// coarseNow is the clock that file systems take their times from, in ns. It moves in
// ticks of some milliseconds, so that a file may seem to have changed at the mark that
// was changed just before it, and never the other way round.
func coarseNow() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now) // it can always be read
	return now.Nano()
}

// Changed is what Changes tells. Paths are relative to the worktree and as
// displayName shows them.
type Changed struct {
	// Sensitive are files that are run or obeyed on sight, Build those whose
	// commands run when somebody builds.
	Sensitive []string `json:"sensitive,omitempty"`
	Build     []string `json:"build,omitempty"`
	// More counts those that are left out of the two.
	More int `json:"more,omitempty"`
	// Unchecked says what could not be looked at; "" = all was.
	Unchecked string `json:"unchecked,omitempty"`
}

// Changes tells the daemon what Watch has seen. It is no tool that is offered.
type Changes struct{ unprepared }

// ChangesName is the name of Changes.
const ChangesName = "worktree_changes"

// Name implements Tool.
func (Changes) Name() string { return ChangesName }

func (Changes) onlyFiles() {}

// changesInput is the input of Changes.
type changesInput struct {
	More []string `json:"more,omitempty"` // patterns as in a .gitignore
}

// ChangesJob asks for Changes. More are patterns, as in a .gitignore, of more files that are run or
// obeyed on sight.
func ChangesJob(more []string) Job {
	input, _ := json.Marshal(changesInput{more}) // never fails for such
	return Job{Tool: ChangesName, Input: input}
}

// Run implements Tool.
func (Changes) Run(ctx context.Context, env *Env, input json.RawMessage, _ *Prepared) (*Result, error) {
	var in changesInput
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, err
	}
	more, err := ignore.New(in.More)
	if err != nil {
		return nil, err
	}
	out, err := json.Marshal(env.Watch.changes(ctx, env, more))
	if err != nil {
		return nil, err
	}
	return &Result{Title: ChangesName, Output: string(out)}, nil
}

// changes compares.
func (w *Watch) changes(ctx context.Context, env *Env, more ignore.List) *Changed {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := &Changed{}
	if !w.marked { // no call could write
		return c
	}
	s := newSurvey(ctx, env, watchWalkTime)
	defer s.cancel()
	s.top()
	for key, now := range s.found {
		before, known := w.before[key]
		if known && before != now || !known && (w.whole || s.times[key] >= w.since) {
			s.sensitive = append(s.sensitive, key)
		}
	}
	for key := range w.before {
		if _, there := s.found[key]; !there && s.whole {
			s.sensitive = append(s.sensitive, key)
		}
	}
	s.since, s.more = w.since, more
	s.below()
	c.Sensitive, c.Build = c.shorten(s.sensitive), c.shorten(s.builds)
	var gaps []string
	if !s.whole {
		gaps = append(gaps, fmt.Sprintf("the worktree is too large: only %s of it were looked into", plain.Count(s.dirs, "directory", "directories")))
	}
	if !w.whole {
		gaps = append(gaps, fmt.Sprintf("more than %d files of git and the like when the session began: the rest is judged by its change times", watchFiles))
	}
	if s.unreadable > 0 {
		gaps = append(gaps, plain.Count(s.unreadable, "file or directory", "files or directories")+" cannot be read")
	}
	c.Unchecked = strings.Join(gaps, "; ")
	return c
}

// shorten puts paths into order, those first that are nearest to the top, and counts
// those that there is no room for.
func (c *Changed) shorten(keys []string) []string {
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(cmp.Compare(strings.Count(a, "/"), strings.Count(b, "/")), cmp.Compare(a, b))
	})
	keep := min(len(keys), watchPaths)
	c.More += len(keys) - keep
	for i, key := range keys[:keep] {
		keys[i] = plain.Cut(plain.Name(key), watchPathBytes)
	}
	return keys[:keep]
}

// survey is one look at the worktree.
type survey struct {
	ctx    context.Context //nolint:containedctx // of the one look that it lives for
	cancel context.CancelFunc
	env    *Env
	whole  bool // nothing was left out

	// What is compared: fingerprints, and change times for the case that there is
	// nothing to compare one with.
	found map[string]string
	times map[string]int64

	// since, when it is set, makes changed files sensitive by their change times.
	since      int64
	more       ignore.List // what else is sensitive
	sensitive  []string
	builds     []string
	dirs       int
	unreadable int
}

func newSurvey(ctx context.Context, env *Env, limit time.Duration) *survey {
	s := &survey{env: env, whole: true, found: map[string]string{}, times: map[string]int64{}}
	s.ctx, s.cancel = context.WithTimeout(ctx, limit)
	return s
}

// path is where a key is.
func (s *survey) path(key string) string { return fromWorktree(s.env, key) }

// top looks at the sensitive names at the top of the worktree.
func (s *survey) top() {
	for _, name := range sensitive.Top() {
		s.look(name)
	}
}

// look takes what a key names, if there is something.
func (s *survey) look(key string) {
	info, err := s.env.Root.Lstat(s.ctx, s.path(key))
	if err != nil {
		s.failed(err)
		return
	}
	s.take(key, info, true)
}

// failed notes what could not be looked at. What is gone is no failure.
func (s *survey) failed(err error) {
	switch root.CodeOf(err) {
	case root.NotExist, root.NotRegular, root.Stale, root.InvalidPath:
	case root.Denied, root.Failed, root.TooLarge:
		s.unreadable++
	default:
		s.whole = false
	}
}

// take notes what a key is, and what is in it. A link is noted with what it leads to.
func (s *survey) take(key string, info root.Info, follow bool) {
	if len(s.found) >= watchFiles || s.ctx.Err() != nil {
		s.whole = false
		return
	}
	s.note(key, info)
	switch {
	case info.Kind == root.KindDir:
		s.directory(key, info)
	case info.Kind == root.KindSymlink && follow:
		if to, err := s.env.Root.Resolve(s.ctx, info.Path); err == nil && to.Exists {
			s.take(key+" -> "+to.Path, to, false)
		}
	}
}

func (s *survey) note(key string, info root.Info) {
	if s.since != 0 {
		if info.Version.CTime >= s.since {
			s.sensitive = append(s.sensitive, key)
		}
		return
	}
	is := fmt.Sprintf("%s %o ", info.Kind, info.Mode)
	switch info.Kind {
	case root.KindFile:
		is += s.content(info)
	case root.KindSymlink:
		is += fmt.Sprint(info.Version)
	}
	s.found[key], s.times[key] = is, info.Version.CTime
}

// content is a file's, as far as it says whether the file is still the same.
func (s *survey) content(info root.Info) string {
	if info.Size > watchFileBytes {
		return fmt.Sprint(info.Version)
	}
	f, err := s.env.Root.Open(s.ctx, info.Path)
	if err != nil {
		s.failed(err)
		return fmt.Sprint(info.Version)
	}
	defer func() { _ = f.Close() }() // it was only read
	sum := sha256.New()
	if _, err := io.CopyN(sum, f, watchFileBytes+1); err != nil && err != io.EOF { //nolint:errorlint // CopyN gives it as it is
		s.failed(err)
		return fmt.Sprint(info.Version)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// directory looks at what is in a directory, but for a repository's own data.
func (s *survey) directory(key string, dir root.Info) {
	entries, repository := s.list(dir.Path)
	for _, e := range entries {
		if repository && isData(e) {
			continue
		}
		info, err := s.env.Root.Lstat(s.ctx, dir.Path+"/"+e.Name)
		switch {
		case err != nil:
			s.failed(err)
		case repository && e.Name == "worktrees" && e.Kind == root.KindDir && info.Version.Dev != dir.Version.Dev:
			s.linked(key+"/worktrees", info)
		case repository && e.Name == "HEAD" && e.Kind == root.KindFile:
			// Its content is the branch, and is never run.
			if s.since == 0 {
				s.found[key+"/HEAD"] = string(e.Kind)
			}
		default:
			s.take(key+"/"+e.Name, info, true)
		}
	}
}

// linked looks at a list of linked worktrees that is not the host's: another one is mounted
// over it, which ends with the session. Of the host are what is mounted in that.
func (s *survey) linked(key string, dir root.Info) {
	entries, _ := s.list(dir.Path)
	for _, e := range entries {
		info, err := s.env.Root.Lstat(s.ctx, dir.Path+"/"+e.Name)
		if err != nil {
			s.failed(err)
		} else if info.Kind == root.KindDir && info.Version.Dev != dir.Version.Dev {
			s.take(key+"/"+e.Name, info, false)
		}
	}
}

// list gives the entries of a directory, and whether it is a repository's own.
func (s *survey) list(dir string) (entries []root.Entry, repository bool) {
	err := s.env.Root.ReadDir(s.ctx, dir, func(e root.Entry) bool {
		repository = repository || e.Name == "HEAD"
		entries = append(entries, e)
		return len(entries) < watchFiles
	})
	if err != nil {
		s.failed(err)
	}
	s.whole = s.whole && len(entries) < watchFiles
	return entries, repository
}

// isData reports whether an entry of a git directory is data that git itself writes
// all the time, and never runs. What is not known to be that is looked at.
func isData(e root.Entry) bool {
	switch e.Name {
	case "objects", "refs", "logs", "lfs", "rr-cache":
		return e.Kind == root.KindDir
	case "HEAD", "COMMONDIR", "CONFIG":
		return false
	case "index", "packed-refs", "shallow", "description", "gc.log", "gc.pid":
		return e.Kind == root.KindFile
	}
	// ORIG_HEAD, COMMIT_EDITMSG, AUTO_MERGE …
	upper := !strings.ContainsFunc(e.Name, func(r rune) bool { return r != '_' && (r < 'A' || r > 'Z') })
	return e.Kind == root.KindFile && (upper || strings.HasSuffix(e.Name, ".lock") || strings.HasPrefix(e.Name, "sharedindex."))
}

// below looks for changed files below the top of the worktree, by their names.
func (s *survey) below() {
	dirs := []string{""}
	for len(dirs) > 0 {
		if s.ctx.Err() != nil || s.dirs >= watchDirs {
			s.whole = false
			return
		}
		key := dirs[len(dirs)-1]
		s.dirs++
		dirs = append(dirs[:len(dirs)-1], s.into(key)...)
	}
}

// into looks at one directory and gives those that are in it.
func (s *survey) into(key string) (dirs []string) {
	prefix, dir := "", strings.TrimSuffix(s.env.Worktree, "/")
	if key != "" {
		prefix, dir = key+"/", s.path(key)
	}
	has := make(map[string]bool, 4)
	var onSight, builds []string
	err := s.env.Root.ReadDir(s.ctx, dir, func(e root.Entry) bool {
		kind := sensitive.Of(e.Name)
		if kind == sensitive.Part {
			has[strings.ToLower(e.Name)] = true
		}
		switch {
		case key == "" && slices.Contains(sensitive.Top(), e.Name):
			// top has looked at it
		case kind == sensitive.OnSight, s.more.Has(prefix+e.Name, e.Kind == root.KindDir):
			onSight = append(onSight, prefix+e.Name)
		case kind == sensitive.Build:
			builds = append(builds, prefix+e.Name)
		case e.Kind == root.KindDir:
			dirs = append(dirs, prefix+e.Name)
		}
		return true
	})
	if err != nil {
		s.failed(err)
	}
	if sensitive.Repository(has) {
		if key == "" {
			onSight = append(onSight, "HEAD", "config", "hooks", "info", "commondir")
		} else {
			onSight, dirs = append(onSight, key), nil
		}
	}
	for _, k := range onSight {
		s.look(k)
	}
	for _, k := range builds {
		if info, err := s.env.Root.Lstat(s.ctx, s.path(k)); err != nil {
			s.failed(err)
		} else if info.Version.CTime >= s.since {
			s.builds = append(s.builds, k)
		}
	}
	return dirs
}
