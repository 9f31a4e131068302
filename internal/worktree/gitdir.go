package worktree

import (
	"errors"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxGitConfig bounds the configuration of a submodule, which is read for one value.
const maxGitConfig = 256 << 10

// Why a git directory is not shown. The texts are one for all that a user may not open,
// so that .git, which a session may have written, asks nothing of the host.
var (
	errOutside   = errors.New("it is not below a directory that sessions may be given")
	errNotOpened = errors.New("it is no directory that you may open, or a link is on the way")
	errNoGit     = errors.New("it is not a git directory")
	errForeign   = errors.New("it belongs to another user than the worktree")
	errNotBack   = errors.New("it does not name this worktree as one of its own")
)

// pinGit pins the git directory of d, if d has a claim to it: what .git of d says alone
// is none, since a session of before may have written that. A linked worktree and a
// submodule are named by the git directory; a part of a repository lies in it.
func (r Rules) pinGit(d *Directory, e *Elsewhere) error {
	at := e.Path
	if !e.Linked {
		at = filepath.Join(e.Path, ".git")
		e.Names, e.Back = relative(d.Path, at), relative(at, d.Path)
	}
	dir, err := r.pinGitDir(at, d.UID)
	if err != nil {
		return err
	}
	if e.Linked {
		if dir, err = r.common(d, dir, e); err != nil {
			return err
		}
	}
	err = r.asUser(func() error { return dir.lookLikeGit(e) })
	if err != nil {
		return errors.Join(err, dir.Close())
	}
	e.Dir = dir
	return nil
}

// relative leads from one directory to another; both are absolute.
func relative(from, to string) string {
	rel, err := filepath.Rel(from, to)
	if err != nil {
		return to
	}
	return rel
}

// pinGitDir pins a directory under the rules of the source. Like git it wants one user
// for both: with another's configuration git would run what that one likes.
func (r Rules) pinGitDir(path string, uid uint32) (*Directory, error) {
	r.Write, r.Git, r.Linked = false, false, ""
	dir, err := Pin(path, r)
	switch {
	case errors.Is(err, ErrForbidden):
		return nil, errOutside
	case err != nil:
		return nil, errNotOpened
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil || st.Uid != uid {
		return nil, errors.Join(errForeign, dir.Close())
	}
	return dir, nil
}

// common gives the directory that git needs where .git of d names own, and closes own
// if it is another. It must name d.
func (r Rules) common(d, own *Directory, e *Elsewhere) (*Directory, error) {
	linked, back := false, ""
	err := r.asUser(func() error {
		linked, back = own.names()
		return nil
	})
	if err != nil || back == "" || resolve(own.Path, back) != d.Path {
		return nil, errors.Join(errNotBack, own.Close())
	}
	if !linked {
		e.Back = back
		return own, nil
	}
	defer func() { _ = own.Close() }() // it was opened for its path alone
	dir, err := r.pinGitDir(filepath.Dir(filepath.Dir(own.Path)), d.UID)
	if err != nil {
		return nil, err
	}
	// Two levels above what git made; Names leads there the same way.
	e.Names = filepath.Join(e.Names, "../..")
	return dir, nil
}

// names says which worktree a git directory is of: back leads there, "" for none.
// linked: it is one of the directories in worktrees of the common one.
func (d *Directory) names() (linked bool, back string) {
	common, err := readAt(int(d.Fd()), "commondir", maxGitFile)
	if err == nil {
		back, err := readAt(int(d.Fd()), "gitdir", maxGitFile)
		place, at := filepath.Split(strings.TrimRight(back, "\r\n"))
		if err != nil || at != ".git" || strings.TrimSpace(common) != "../.." || filepath.Base(filepath.Dir(d.Path)) != "worktrees" {
			return true, ""
		}
		return true, place
	}
	for _, name := range []string{"config", "config.worktree"} {
		config, _ := readAt(int(d.Fd()), name, maxGitConfig)
		if w := coreWorktree(config); w != "" {
			back = w
		}
	}
	return false, back
}

// coreWorktree is core.worktree of a configuration as git itself writes it: "" for none,
// and where anything is written in a way that git does not write.
func coreWorktree(config string) (value string) {
	core := false
	for line := range strings.Lines(config) {
		line = strings.Trim(line, " \t\r\n")
		if strings.HasPrefix(line, "[") {
			if core = strings.EqualFold(line, "[core]"); !strings.HasSuffix(line, "]") {
				return ""
			}
			continue
		}
		key, v, _ := strings.Cut(line, "=")
		if strings.HasSuffix(line, "\\") {
			return ""
		}
		if !core || !strings.EqualFold(strings.TrimRight(key, " \t"), "worktree") {
			continue
		}
		v = strings.Trim(v, " \t")
		n, strange := len(v), ";#\"\\\t\r\x00"
		if n > 1 && v[0] == '"' && v[n-1] == '"' {
			v, strange = v[1:n-1], strange[2:]
		}
		if value = v; strings.ContainsAny(v, strange) {
			return ""
		}
	}
	return value
}

// lookLikeGit fails where git would not take d for a git directory.
func (d *Directory) lookLikeGit(e *Elsewhere) error {
	for name, want := range map[string]uint32{"HEAD": unix.S_IFREG, "objects": unix.S_IFDIR, "refs": unix.S_IFDIR} {
		if kind, ok := kindAt(int(d.Fd()), name); !ok || kind != want {
			return errNoGit
		}
	}
	text, err := readAt(int(d.Fd()), "objects/info/alternates", maxGitConfig)
	e.Alternates = text != "" || err != nil && !errors.Is(err, unix.ENOENT)
	return nil
}
