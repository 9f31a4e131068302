package worktree

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toold/toold/internal/beneath"
)

// Linked is a directory in which git lists the linked worktrees of a repository, below a
// directory that sessions write to.
type Linked struct {
	List string // its path below the directory
	// Own are the entries, single names, whose linked worktree lies in the directory, where
	// a session sees it too and git finds it.
	Own []string
	// Why says why a session cannot be kept from this list; "" where it can.
	Why string
}

const (
	// maxLooked bounds the directories in which repositories are looked for, maxNear the names
	// of one of them, and maxNames those of all.
	maxLooked = 2048
	maxNear   = 4096
	maxNames  = 64 << 10
	// maxLists bounds the repositories, each of which takes a mount.
	maxLists = 16
	// maxEntries bounds those of a list that are read.
	maxEntries = 1000
	// maxOwn bounds the entries of a list that a session may use, each of which takes a mount.
	maxOwn = 64
)

// findLinked finds the lists of the repositories that git would use in a directory, or in any
// below it, also as a submodule. All of it is hostile: what is named is below the directory,
// over no link, when it is looked at.
func (r Rules) findLinked(d *Directory) (found []Linked) {
	_ = r.asUser(func() error {
		found = looking{d.File, r.Linked}.lists()
		return nil
	})
	return found
}

// looking is a look at a directory that a session sees at the path target.
type looking struct {
	dir    *os.File
	target string
}

func (l looking) lists() (found []Linked) {
	seen := map[string]bool{}
	near, cut := l.repositories()
	for _, at := range near {
		common := l.gitDir(at)
		if common == "" || seen[common] {
			continue
		}
		seen[common] = true
		list := Linked{List: filepath.Join(common, "worktrees")}
		there, link := l.isDir(list.List)
		switch {
		case !there:
			continue
		case link:
			list.Why = "a link leads there"
		case len(found) == maxLists:
			list.Why = fmt.Sprintf("there are more than %d repositories with linked worktrees, and so it is with others", maxLists)
			return append(found, list)
		default:
			list.Own, list.Why = l.own(list.List)
		}
		found = append(found, list)
	}
	if cut != "" {
		found = append(found, Linked{List: cut, Why: fmt.Sprintf("not all below it was looked at: it is more than %d directories, or %d names in one of them", maxLooked, maxNear)})
	}
	return found
}

// isDir says whether there is a directory, and whether a link is on the way to it.
func (l looking) isDir(path string) (there, link bool) {
	dir := int(l.dir.Fd())
	fd, err := beneath.Open(dir, path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ELOOP) {
		link = true
		fd, err = unix.Openat2(dir, path, &unix.OpenHow{
			Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
		})
	}
	if err != nil {
		// One with a path from the root may be there in a session, where that is another.
		return link && errors.Is(err, unix.EXDEV), link
	}
	_ = unix.Close(fd)
	return true, link
}

// What is not looked into: directories that programs fill, in which nobody has a repository,
// and in a git directory those that are git's alone.
var (
	heavy  = []string{"node_modules", "__pycache__", ".venv", ".tox"}
	gitOwn = []string{"objects", "refs", "logs", "hooks", "info", "branches", "rr-cache", "lfs"}
)

// repositories are the directories that may have a repository or be one, those nearest to the
// top first; cut is one of which not all was looked at, "" for none. Submodules are found where
// git nests them, in directories that are called as they are.
func (l looking) repositories() (all []string, cut string) {
	left := maxNames
	for next, looked := []string{"."}, 0; len(next) > 0; looked++ {
		at := next[0]
		next = next[1:]
		if looked == maxLooked || left == 0 {
			return all, cmp.Or(cut, filepath.Dir(at))
		}
		most := min(left, maxNear)
		entries := l.names(at, most+1)
		if len(entries) > most {
			entries, cut = entries[:most], cmp.Or(cut, at)
		}
		left -= len(entries)
		has := map[string]bool{}
		for _, e := range entries {
			has[e.Name()] = true
		}
		bare := has["HEAD"] && has["objects"] && has["refs"]
		if bare || has[".git"] || len(entries) == 0 { // one that cannot be listed may have one
			all = append(all, at)
		}
		git := bare || has["HEAD"] && has["commondir"]
		for _, e := range entries {
			if e.IsDir() && !slices.Contains(heavy, e.Name()) && (!git || !slices.Contains(gitOwn, e.Name())) {
				next = append(next, filepath.Join(at, e.Name()))
			}
		}
	}
	return all, cut
}

// names are those in a directory, most at most; none where it cannot be read.
func (l looking) names(path string, most int) []os.DirEntry {
	dir, err := beneath.OpenFile(l.dir, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	defer dir.Close()
	list, err := dir.ReadDir(most)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	return list
}

// gitDir is the directory of the repository that git would use in a directory, the one
// that linked worktrees share; "" where there is none below l.dir.
func (l looking) gitDir(at string) string {
	fd, err := beneath.Open(int(l.dir.Fd()), at, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = unix.Close(fd) }()
	kind, ok := kindAt(fd, ".git")
	switch {
	case ok && kind == unix.S_IFDIR:
		return filepath.Join(at, ".git")
	case ok:
		to, err := linkedTo(fd, kind)
		if err != nil {
			return ""
		}
		return l.common(l.below(at, to))
	}
	for name, want := range map[string]uint32{"HEAD": 0, "objects": unix.S_IFDIR, "refs": unix.S_IFDIR} {
		if kind, ok := kindAt(fd, name); !ok || want != 0 && kind != want {
			return ""
		}
	}
	return at
}

// common is the directory that a git directory shares with others, mostly itself.
func (l looking) common(dir string) string {
	if dir == "" {
		return ""
	}
	text, err := readAt(int(l.dir.Fd()), filepath.Join(dir, "commondir"), maxGitFile)
	switch {
	case errors.Is(err, unix.ENOENT):
		return dir
	case err != nil:
		return ""
	}
	return l.below(dir, strings.TrimRight(text, "\r\n"))
}

// below is the path below l.dir that a text names which git finds in at; "" for any other
// place.
func (l looking) below(at, text string) string {
	if filepath.IsAbs(text) {
		at, text = ".", strings.TrimPrefix(filepath.Clean(text), l.target+"/")
	}
	if place := filepath.Join(at, text); text != "" && !filepath.IsAbs(text) && filepath.IsLocal(place) {
		return place
	}
	return ""
}

// own are the entries of a list whose linked worktree is at the same place in the session;
// why says that they are too many.
func (l looking) own(list string) (names []string, why string) {
	for _, e := range l.names(list, maxEntries) {
		at := filepath.Join(list, e.Name())
		text, err := readAt(int(l.dir.Fd()), filepath.Join(at, "gitdir"), maxGitFile)
		place := l.below(at, strings.TrimRight(text, "\r\n"))
		if err != nil || filepath.Base(place) != ".git" {
			continue
		}
		if _, err := readAt(int(l.dir.Fd()), place, maxGitFile); err != nil {
			continue
		}
		if len(names) == maxOwn {
			return nil, fmt.Sprintf("more than %d of them lie in it", maxOwn)
		}
		names = append(names, e.Name())
	}
	return names, ""
}
