package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/tool/run/treetar"
)

// beside is what a patch lacks of a session: the files are saved whole in a directory beside
// it, as far as they can be read.
type beside struct {
	dir   string // "" where no file was saved
	saved []string
	lost  []lostWork
	// unnamed counts what could not be compared and has no name in lists.
	unnamed int
	// empty are FIFOs, sockets and devices, which have no content to save.
	empty []string
	// example is one of saved that the source has something else of, and whose name is as it is
	// written; "" without one.
	example string
	bytes   int64
}

// lostWork is a change that is saved nowhere.
type lostWork struct{ name, why string }

// Bounds of what is saved beside a patch, which are those of artifacts, and of a file that is
// fetched by itself: a larger one comes in a tar of its directory, which the daemon keeps no copy of.
const (
	maxBeside      = maxArtifacts
	maxBesideBytes = maxArtifactBytes
	maxSingle      = 16 << 20
)

// singleTimeout bounds fetching one such file: it may wait for somebody to allow it.
const singleTimeout = time.Minute

// whole reports whether a patch that was read to its end has all that has changed.
func whole(p *client.Patch) bool {
	left, unreadable := p.Missing()
	return left+unreadable+p.Stale() == 0
}

// saveBeside saves what a patch lacks beside it.
func saveBeside(ctx context.Context, c *client.Client, session, patch string) (*beside, error) {
	list, err := listChanges(ctx, c, session, client.DiffQuery{})
	if err != nil {
		return nil, fmt.Errorf("find what the patch lacks: %w", err)
	}
	b := &beside{unnamed: list.Unreadable}
	want := b.sort(list.Items)
	if len(want) == 0 {
		return b, nil
	}
	if b.dir, err = newDirBeside(patch); err != nil {
		return nil, err
	}
	f := &besideFetch{beside: b, client: c, session: session}
	for _, x := range f.singles(ctx, want) {
		f.trees(ctx, x)
	}
	if len(b.saved) == 0 {
		err, b.dir = os.RemoveAll(b.dir), "" // it has directories at most
	}
	return b, err
}

// newDirBeside makes a directory that was not there: what an earlier run has saved stays apart.
func newDirBeside(patch string) (string, error) {
	for i := 1; ; i++ {
		dir := patch + ".files"
		if i > 1 {
			dir = fmt.Sprintf("%s.%d", dir, i)
		}
		if err := os.Mkdir(dir, 0o777); err == nil || !errors.Is(err, fs.ErrExist) || i == maxBeside {
			return dir, err
		}
	}
}

// sort finds the changes that are to be saved, and takes down the others that a patch lacks.
// What is below .git is none of them: a directory of such files could be a repository, whose
// settings git obeys.
func (b *beside) sort(changes []client.Change) (want []*client.Change) {
	total := int64(0)
	for i := range changes {
		x := &changes[i]
		if x.Unreadable != "" {
			b.unnamed = max(0, b.unnamed-1)
		}
		name := rawPath(x)
		lacks := x.Stale || x.Unreadable != "" || max(x.Size, x.OldSize) > client.MaxPatched
		switch {
		case x.Kind == "other":
			b.empty = append(b.empty, changeName(x))
		case !lacks || slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return strings.EqualFold(part, ".git") }):
		case x.Stale && x.Kind == "" || x.Kind == "dir" && x.Unreadable == "":
			// A patch that is stale says so, and a directory has no content.
		case x.Kind == "":
			b.lose(x, "that it was removed")
		case x.Kind == "dir" || !filepath.IsLocal(name):
			b.lose(x, x.Unreadable)
		case len(want) == maxBeside || x.Size > maxBesideBytes-total:
			b.lose(x, fmt.Sprintf("a run saves %d such files and %s of them at most", maxBeside, bytesShort(maxBesideBytes)))
		default:
			want = append(want, x)
			total += x.Size
		}
	}
	return want
}

func (b *beside) lose(x *client.Change, why string) {
	b.lost = append(b.lost, lostWork{changeName(x), why})
}

func (b *beside) keep(x *client.Change) {
	name := changeName(x)
	if b.example == "" && x.Stale && x.Kind == "file" && name == rawPath(x) {
		b.example = name
	}
	if x.Kind == "link" {
		name += " (a link: the file says where it leads)"
	}
	b.saved = append(b.saved, name)
	b.bytes += x.Size
}

// besideFetch fetches files from a session.
type besideFetch struct {
	*beside

	client  *client.Client
	session string
}

// local is where a file is saved.
func (f *besideFetch) local(x *client.Change) string { return filepath.Join(f.dir, rawPath(x)) }

// singles fetches what it can one by one, and gives the others by the directories that have them.
func (f *besideFetch) singles(ctx context.Context, want []*client.Change) (rest [][]*client.Change) {
	var late []*client.Change
	for _, x := range want {
		err := errors.New("it is no small file")
		if x.Kind == "file" && x.Size <= maxSingle {
			err = f.single(ctx, x)
		}
		switch {
		case err == nil:
			f.keep(x)
		case x.Unreadable != "":
			f.lose(x, x.Unreadable)
		default:
			late = append(late, x)
		}
	}
	var dirs []string
	for _, x := range late {
		dirs = append(dirs, path.Dir(rawPath(x)))
	}
	for _, dir := range outermost(dirs) {
		var in []*client.Change
		late = slices.DeleteFunc(late, func(x *client.Change) bool {
			is := dir == "." || strings.HasPrefix(rawPath(x), dir+"/")
			if is {
				in = append(in, x)
			}
			return is
		})
		rest = append(rest, in)
	}
	return rest
}

func (f *besideFetch) single(ctx context.Context, x *client.Change) error {
	ctx, cancel := context.WithTimeout(ctx, singleTimeout)
	defer cancel()
	r, _, err := f.client.GetFile(ctx, f.session, rawPath(x))
	if err != nil {
		return err
	}
	defer r.Close()
	to := f.local(x)
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	if err := replaceFile(to, r); err != nil || !executable(x.Mode) {
		return err
	}
	info, err := os.Lstat(to)
	if err != nil {
		return err
	}
	return os.Chmod(to, info.Mode()|info.Mode()&0o444>>2)
}

// executable reports whether permissions such as "0755" let somebody execute a file.
func executable(mode string) bool {
	bits, err := strconv.ParseUint(mode, 8, 32)
	return err == nil && bits&0o111 != 0
}

// trees fetches files from a tar of the directory that has them all. No link is made: a reader may
// follow it.
func (f *besideFetch) trees(ctx context.Context, files []*client.Change) {
	byPath := make(map[string]*client.Change, len(files))
	var dirs []string
	for _, x := range files {
		byPath["/"+rawPath(x)] = x
		dirs = append(dirs, path.Dir(rawPath(x)))
	}
	links := make(map[string]string)
	err := f.unpack(ctx, outermost(dirs)[0], func(at string, e *treetar.Entry) bool {
		x := byPath[at]
		if x != nil && e.Kind == treetar.Link {
			links[at] = e.Target
		}
		return x == nil || e.Kind != treetar.File || e.Size != x.Size
	})
	for _, x := range files {
		to, leads := f.local(x), links["/"+rawPath(x)]
		if leads != "" {
			err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o777), replaceFile(to, strings.NewReader(leads)))
		}
		info, serr := os.Lstat(to)
		switch {
		case serr == nil && info.Mode().IsRegular() && (leads != "" && err == nil || leads == "" && info.Size() == x.Size):
			f.keep(x)
		case err != nil:
			f.lose(x, lines(err.Error()))
		default:
			f.lose(x, "it could not be read, or changed meanwhile")
		}
	}
}

func (f *besideFetch) unpack(ctx context.Context, dir string, leaves func(at string, e *treetar.Entry) bool) error {
	r, _, err := client.Tree{Client: f.client, Session: f.session, Dir: dir}.Get(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := os.MkdirAll(filepath.Join(f.dir, dir), 0o777); err != nil {
		return err
	}
	_, err = unpackBelow(ctx, r, f.dir, path.Join("/", dir), leaves)
	return err
}

// say names what the patch lacks, where it is, and how to go on. source is the directory that the
// worktree was made of.
func (b *beside) say(a *app, source string) {
	if len(b.saved) > 0 {
		a.say("what the patch lacks is saved whole, as the session has it, in %s:", line(b.dir))
		sayPaths(a, b.saved, len(b.saved))
	}
	if b.example != "" {
		from, to := filepath.Join(source, b.example), filepath.Join(b.dir, b.example)
		a.say("to compare one with the source, and to mark there what differs:")
		a.say("  %s", line(shellQuote([]string{"diff", "-u", from, to})))
		a.say("  %s", line(shellQuote([]string{"git", "merge-file", from, "/dev/null", to})))
	}
	if len(b.empty) > 0 {
		a.say("FIFOs, sockets and devices have no content, and are not saved:")
		sayPaths(a, b.empty, len(b.empty))
	}
	if n := len(b.lost) + b.unnamed; n > 0 {
		var names []string
		for _, l := range b.lost {
			names = append(names, l.name+": "+l.why)
		}
		a.say("saved nowhere:")
		sayPaths(a, names, n)
		a.say("  what the tools may not read is saved when the command gives them the right at its end: chmod -R u+rwX PATH")
	}
}

// lostError says that work is saved nowhere.
type lostError struct{ what string }

func (e *lostError) Error() string { return e.what }

// failure is nil where nothing is lost but what applied, where that is not nil, has written.
func (b *beside) failure(applied *client.Applied) error {
	if b == nil {
		return nil
	}
	lost, unnamed := b.lost, b.unnamed
	if applied != nil {
		left := slices.Concat(applied.Skipped, applied.Sensitive)
		lost = slices.DeleteFunc(slices.Clone(lost), func(l lostWork) bool { return !slices.Contains(left, l.name) })
		unnamed = 0
	}
	n := len(lost) + unnamed
	if n == 0 {
		return nil
	}
	var shown []string
	for _, l := range lost[:min(len(lost), maxNamed)] {
		shown = append(shown, l.name+" ("+l.why+")")
	}
	if more := n - len(shown); more > 0 {
		shown = append(shown, plural(more, "path")+" more")
	}
	return &lostError{"saved nowhere: " + strings.Join(shown, ", ")}
}
