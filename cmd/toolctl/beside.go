package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/sensitive"
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

// lostWork is a change that is saved nowhere: its path, how that is shown, and why.
type lostWork struct{ path, name, why string }

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

// saveBeside saves what a patch, which was read to its end and is in a file, lacks beside that file.
// What could not be saved for a reason of this side is a lostError.
func saveBeside(ctx context.Context, c *client.Client, session string, patch *client.Patch, file string) (*beside, error) {
	list, err := listChanges(ctx, c, session, client.DiffQuery{})
	if err != nil {
		return nil, &lostError{"find what the patch lacks: " + lines(err.Error())}
	}
	_, unreadable := patch.Missing() // more than now, where a file has changed while the patch was made
	b := &beside{unnamed: max(list.Unreadable, unreadable)}
	want := b.sort(list.Items)
	if len(want) == 0 {
		return b, nil
	}
	name, root, err := newDirBeside(file)
	if err != nil {
		return nil, &lostError{"save what the patch lacks: " + lines(err.Error())}
	}
	defer func() { _ = root.Close() }() // its files are closed
	b.dir = name
	f := &besideFetch{beside: b, client: c, session: session, root: root}
	for _, in := range f.singles(ctx, want) {
		f.tree(ctx, in)
	}
	if len(b.saved) == 0 {
		f.clear()
		err, b.dir = os.Remove(b.dir), "" // which is empty
	}
	return b, err
}

// newDirBeside makes a directory that was not there: what an earlier run has saved stays apart.
// All in it is made by the root that it gives: its name may be another directory's by then, since
// sessions may write where the patch is.
func newDirBeside(patch string) (dir string, root *os.Root, err error) {
	parent, base := filepath.Split(patch)
	in, err := os.OpenRoot(cmp.Or(parent, "."))
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = in.Close() }() // it was only looked into
	name := base + ".files"
	for i := 2; ; i++ {
		if err = in.Mkdir(name, 0o777); err == nil || !errors.Is(err, fs.ErrExist) || i > maxBeside {
			break
		}
		name = fmt.Sprintf("%s.files.%d", base, i)
	}
	if err != nil {
		return "", nil, err
	}
	if root, err = in.OpenRoot(name); err != nil {
		return "", nil, err
	}
	opened, err := root.Stat(".")
	if err == nil {
		var at fs.FileInfo
		if at, err = in.Lstat(name); err == nil && !os.SameFile(at, opened) {
			err = errors.New("it was replaced when it was just made")
		}
	}
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("%s: %w", name, err), root.Close())
	}
	return parent + name, root, nil
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
			b.lose(x, cmp.Or(x.Unreadable, "its path leads elsewhere"))
		case len(want) == maxBeside || x.Size > maxBesideBytes-total:
			b.lose(x, fmt.Sprintf("a run saves %d such files and %s of them at most", maxBeside, bytesShort(maxBesideBytes)))
		default:
			want = append(want, x)
			total += x.Size
		}
	}
	return b.noRepository(want)
}

// noRepository leaves out files that together would be a repository, as those below .git.
func (b *beside) noRepository(want []*client.Change) []*client.Change {
	has := make(map[string]map[string]bool) // names in lower case, by directory
	for _, x := range want {
		for at := rawPath(x); at != "."; at = path.Dir(at) {
			dir := path.Dir(at)
			if has[dir] == nil {
				has[dir] = make(map[string]bool)
			}
			has[dir][strings.ToLower(path.Base(at))] = true
		}
	}
	return slices.DeleteFunc(want, func(x *client.Change) bool {
		for dir := path.Dir(rawPath(x)); ; dir = path.Dir(dir) {
			if sensitive.Repository(has[dir]) {
				b.lose(x, "git would take the directory for a repository, and do what its settings say")
				return true
			}
			if dir == "." {
				return false
			}
		}
	})
}

func (b *beside) lose(x *client.Change, why string) {
	b.lost = append(b.lost, lostWork{rawPath(x), changeName(x), why})
}

func (b *beside) keep(x *client.Change, size int64) {
	name := changeName(x)
	if b.example == "" && x.Stale && x.Kind == "file" && name == rawPath(x) {
		b.example = name
	}
	if x.Kind == "link" {
		name += " (a link: the file says where it leads)"
	}
	b.saved = append(b.saved, name)
	b.bytes += size
}

// besideFetch fetches files from a session into a directory.
type besideFetch struct {
	*beside

	client  *client.Client
	session string
	root    *os.Root
}

// clear removes what is in the directory, whatever has its name by now.
func (f *besideFetch) clear() {
	at, err := f.root.Open(".")
	if err != nil {
		return
	}
	names, _ := at.Readdirnames(-1) // the directory stays where one cannot be removed, and that is told
	_ = at.Close()
	for _, name := range names {
		_ = f.root.RemoveAll(name)
	}
}

// singles fetches what it can one by one, and gives the others by their directories.
func (f *besideFetch) singles(ctx context.Context, want []*client.Change) (rest map[string][]*client.Change) {
	rest = make(map[string][]*client.Change)
	for _, x := range want {
		size, err := x.Size, errors.New("it is no small file")
		if x.Kind == "file" && x.Size <= maxSingle {
			size, err = f.single(ctx, x)
		}
		switch {
		case err == nil:
			f.keep(x, size)
		case x.Unreadable != "":
			f.lose(x, x.Unreadable)
		default:
			dir := path.Dir(rawPath(x))
			rest[dir] = append(rest[dir], x)
		}
	}
	return rest
}

func (f *besideFetch) single(ctx context.Context, x *client.Change) (size int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, singleTimeout)
	defer cancel()
	r, _, err := f.client.GetFile(ctx, f.session, rawPath(x))
	if err != nil {
		return 0, err
	}
	defer r.Close()
	return f.write(x, r, min(maxSingle, maxBesideBytes-f.bytes))
}

// write makes a file of what is in r, which has so many bytes at most, or none.
func (f *besideFetch) write(x *client.Change, r io.Reader, most int64) (size int64, err error) {
	name := rawPath(x)
	if err := f.root.MkdirAll(path.Dir(name), 0o777); err != nil {
		return 0, err
	}
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return 0, err
	}
	size, err = io.Copy(file, io.LimitReader(r, most+1))
	if err == nil && size > most {
		err = errors.New("it has grown")
	}
	if info, serr := file.Stat(); err == nil && serr == nil && x.Kind == "file" && executable(x.Mode) {
		err = file.Chmod(info.Mode() | info.Mode()&0o444>>2)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		_ = f.root.Remove(name) // the first error is the one to tell
	}
	return size, err
}

// executable reports whether permissions such as "0755" let somebody execute a file.
func executable(mode string) bool {
	bits, err := strconv.ParseUint(mode, 8, 32)
	return err == nil && bits&0o111 != 0
}

// tree fetches files from a tar of the directory that has them. No link is made: a reader may
// follow it.
func (f *besideFetch) tree(ctx context.Context, files []*client.Change) {
	byPath := make(map[string]*client.Change, len(files))
	for _, x := range files {
		byPath["/"+rawPath(x)] = x
	}
	links := make(map[string]string)
	err := f.unpack(ctx, path.Dir(rawPath(files[0])), func(at string, e *treetar.Entry) bool {
		x := byPath[at]
		if x != nil && e.Kind == treetar.Link {
			links[at] = e.Target
		}
		return x == nil || e.Kind != treetar.File || e.Size != x.Size
	})
	for _, x := range files {
		failed := err
		if leads, is := links["/"+rawPath(x)]; is {
			_, failed = f.write(x, strings.NewReader(leads), int64(len(leads)))
		}
		info, serr := f.root.Lstat(rawPath(x))
		switch {
		case serr != nil && failed == nil:
			f.lose(x, "it could not be read, or changed meanwhile")
		case failed != nil:
			_ = f.root.Remove(rawPath(x)) // it may not be whole
			f.lose(x, lines(failed.Error()))
		default:
			f.keep(x, info.Size())
		}
	}
}

// errSpoiled: in a tar there may be other bytes than the file had.
var errSpoiled = errors.New("files of its directory changed while they were read")

func (f *besideFetch) unpack(ctx context.Context, dir string, leaves func(at string, e *treetar.Entry) bool) error {
	r, id, err := client.Tree{Client: f.client, Session: f.session, Dir: dir}.Get(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	got, err := unpackIn(ctx, r, f.root, ".", dir, leaves)
	if err != nil {
		return err
	}
	call, err := f.client.GetCall(ctx, id)
	if err != nil {
		return err
	}
	if n, _ := call.Metadata["short"].(float64); n > 0 || got.Failed.N > 0 {
		return errSpoiled
	}
	return nil
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
		if slices.ContainsFunc(b.lost, func(l lostWork) bool { return strings.Contains(l.why, "permission") }) {
			a.say("  what the tools may not read is saved when the command gives them the right at its end: chmod -R u+rwX PATH")
		}
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
	lost, unnamed := b.lost, b.unnamed // what has no name is never applied
	if applied != nil && applied.SkippedCount <= len(applied.Skipped) && applied.SensitiveCount <= len(applied.Sensitive) {
		left := slices.Concat(applied.Skipped, applied.Sensitive)
		lost = slices.DeleteFunc(slices.Clone(lost), func(l lostWork) bool { return !slices.Contains(left, plain.Name(l.path)) })
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
