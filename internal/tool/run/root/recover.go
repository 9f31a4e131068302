package root

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Recovered says what became of a transaction whose process was killed.
type Recovered struct {
	Paths []string // that it was about, as they are in the Root
	// Finished: all of its changes were to be seen, and stay; else none is there any more.
	Finished bool
	// Left are paths that somebody has changed since. They are as they are.
	Left []string
}

// RecoverOptions say what a journal is about.
type RecoverOptions struct {
	// Below is the directory that paths of the journal are below that the Root has as "/";
	// others are left alone. "" = the Root is the same.
	Below string
	// Leave reports, where it is not nil, of paths in the Root that are not to be touched.
	Leave func(path string) bool
}

// Recover finishes or undoes what the journal in a directory says was under way, when the
// process that kept it is gone. The directory is read with the caller's ids, all else is
// the tool user's work. It may be called again.
func (r *Root) Recover(ctx context.Context, dir string, o RecoverOptions) (all []Recovered, errs error) {
	records, errs := readRecords(dir)
	for _, rec := range records {
		var done Recovered
		err := r.do(ctx, func() (err error) {
			done, err = r.recover(rec.in(o))
			return err
		})
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		if len(done.Paths) > 0 {
			all = append(all, done)
		}
		errs = errors.Join(errs, os.Remove(filepath.Join(dir, rec.name())))
	}
	return all, errs
}

// in is the record with the paths that they have in the Root.
func (r *record) in(o RecoverOptions) *record {
	out := &record{token: r.token, done: r.done}
	there := func(p string) (string, bool) {
		rest, ok := strings.CutPrefix(p, strings.TrimSuffix(o.Below, "/"))
		return rest, ok && strings.HasPrefix(rest, "/") && rest != "/" && (o.Leave == nil || !o.Leave(rest))
	}
	for _, e := range r.Steps {
		if p, ok := there(e.Path); ok {
			e.Path = p
			out.Steps = append(out.Steps, e)
		}
	}
	for _, d := range r.Dirs {
		if p, ok := there(d); ok {
			out.Dirs = append(out.Dirs, p)
		}
	}
	return out
}

// progress is how far a step had come.
type progress int

const (
	before progress = iota // nothing of it is to be seen
	away                   // the old file has lost its name, the new one has not got it
	after                  // it is to be seen
)

// trace is a step as it is found.
type trace struct {
	entry
	dir  int // -1 = its directory is not there
	base string
	now  string // the hash of what has the file's name; "" = none
	kept string // the name of what was there before; "" = it has none
	at   progress
}

func (r *Root) recover(rec *record) (Recovered, error) {
	done := Recovered{Finished: rec.done}
	traces := make([]*trace, 0, len(rec.Steps))
	defer func() {
		for _, t := range traces {
			if t.dir >= 0 {
				unix.Close(t.dir)
			}
		}
	}()
	for _, e := range rec.Steps {
		t, err := r.trace(e)
		if err != nil {
			return done, err
		}
		traces, done.Paths = append(traces, t), append(done.Paths, e.Path)
	}
	var errs error
	for _, t := range slices.Backward(traces) {
		r.at()
		theirs, err := false, error(nil)
		if !done.Finished {
			theirs, err = t.undo()
		}
		if err != nil { // what was there stays, and so does the record
			errs = errors.Join(errs, sysError("put back", t.Path, err))
			continue
		}
		if theirs {
			done.Left = append(done.Left, t.Path)
		}
		t.sweep()
	}
	if !done.Finished {
		for _, dir := range slices.Backward(rec.Dirs) {
			r.removeDir(dir)
		}
	}
	return done, errs
}

// trace looks how far a step had come.
func (r *Root) trace(e entry) (*trace, error) {
	t := &trace{entry: e, dir: -1}
	dir, base, err := r.openParent(e.Path, false)
	switch CodeOf(err) {
	case "":
	case NotExist, Stale, InvalidPath, NotRegular:
		return t, nil
	default:
		return t, err
	}
	t.dir, t.base = dir, base
	t.now = sumAt(dir, base)
	fresh, old := sumAt(dir, e.New), sumAt(dir, e.Old)
	switch {
	case e.Was == "":
		if t.now == e.Is && fresh == "" {
			t.at = after
		}
		return t, nil
	case old != "":
		t.kept = e.Old
	case fresh == e.Was && e.Was != e.Is:
		t.kept = e.New
	}
	switch {
	case t.kept == e.Old && t.now == "":
		t.at = away
	case t.kept != "":
		t.at = after
	}
	return t, nil
}

// undo puts back what was there. theirs: somebody has changed it since, and nothing was done.
func (t *trace) undo() (theirs bool, err error) {
	switch {
	case t.at == before:
		return false, nil
	case t.Was == "":
		return false, unix.Unlinkat(t.dir, t.base, 0)
	case t.now != "" && t.now != t.Is:
		return true, nil
	}
	return false, unix.Renameat(t.dir, t.kept, t.dir, t.base) // over the mark of an overlay, if there is one
}

// sweep removes what has no place any more.
func (t *trace) sweep() {
	if t.dir < 0 {
		return
	}
	for _, name := range []string{t.New, t.Old} {
		_ = unix.Unlinkat(t.dir, name, 0)
	}
}

// sumAt is the hash of the file of that name; "" = there is none. What cannot be compared
// is like no other.
func sumAt(dir int, name string) string {
	fd, info, err := openRegular(dir, name, name, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
	if CodeOf(err) == NotExist {
		return ""
	}
	if err != nil {
		var st unix.Stat_t
		if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && kindOf(st.Mode) == KindDevice && st.Rdev == 0 {
			return "" // in a layer of an overlay, which marks so what is removed
		}
		return "?"
	}
	defer unix.Close(fd)
	if info.Size > maxSummed {
		return "?"
	}
	data, err := io.ReadAll(io.LimitReader(fdReader(fd), maxSummed+1))
	if err != nil {
		return "?"
	}
	return sumOf(data)
}
