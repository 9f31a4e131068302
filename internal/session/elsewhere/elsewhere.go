// Package elsewhere decides how a session sees the git repository of its worktree where
// that is not in the worktree: where git looks for it inside, what git must be told, and
// what the session's notes say.
package elsewhere

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/worktree"
)

// View is what a session sees of such a repository. A nil View is that there is none.
type View struct {
	// Mount is git's directory, nil where it is not shown.
	Mount *sandbox.Mount
	// Note is for the session's: what git can do there, or why it does not work.
	Note string

	part   bool // the worktree is a part of the repository
	source string
	git    *worktree.Elsewhere
	own    string // where git's directory is, in a mount of the session's own; "" for none
}

// Within reports whether git's directory is shown by what the session itself has mounted at a place.
func (v *View) Within(place string) bool {
	return v != nil && v.own != "" && worktree.Within(v.own, place)
}

// Show decides it for a directory that was pinned as source and will be at target. taken
// are the other places that something is mounted at; check says why nothing can be at one
// of these places, the worktree's first. Git's directory is the view's from here on, or
// closed.
func Show(d *worktree.Directory, source, target string, taken []string, check func(places []string) error) *View {
	if d.Git == nil {
		return nil
	}
	v := &View{source: source, git: d.Git, part: !d.Git.Linked}
	if d.Git.Dir == nil {
		v.Note = v.broken(d.Git.Why)
		return v
	}
	place := resolve(target, d.Git.Names)
	why, own := hidden(d, place, target, taken, check)
	switch {
	case own: // who has made the session has thought of it
		v.own = place
	case why != "":
		v.Note = v.broken(why)
	default:
		v.Mount = &sandbox.Mount{Source: d.Git.Dir.File, Target: place, UID: d.UID, GID: d.GID, NoExec: true}
		v.Note = v.readOnly()
		return v
	}
	_ = d.Git.Dir.Close()
	return v
}

// hidden says why git would not find its directory at place, "" where it would. own: the
// session has a mount of its own there.
func hidden(d *worktree.Directory, place, target string, taken []string, check func([]string) error) (why string, own bool) {
	for _, t := range taken {
		if worktree.Within(place, t) {
			return "", true
		}
	}
	back := d.Git.Back
	switch {
	// At /.git everything in the sandbox would be a part of the repository.
	case back != "" && resolve(place, back) != target, place == "/.git":
		return "git wants the worktree in the same place below its repository: give it the target " + plain.Name(fitting(d)), false
	case worktree.Within(place, target):
		return "it would be in the worktree", false
	}
	if err := check(append([]string{target, place}, taken...)); err != nil {
		return err.Error(), false
	}
	return "", false
}

// fitting is a target at which git finds the repository of a part or a submodule: it
// ends as the directory does below what it has in common with the repository.
func fitting(d *worktree.Directory) string {
	e := d.Git
	if path.IsAbs(e.Names) || path.IsAbs(e.Back) {
		return d.Path
	}
	names := strings.Split(d.Path, "/")
	up := strings.Count(path.Clean(e.Names), "../")
	return path.Join(append([]string{sandbox.Workspace}, names[max(len(names)-up, 0):]...)...)
}

func resolve(dir, name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(dir, name)
}

// Hide takes the mount back: the note says why.
func (v *View) Hide(why string) {
	_ = v.Mount.Source.Close()
	v.Mount, v.Note = nil, v.broken(why)
}

// Env is what git must be told by its environment: to look above the mount that it is
// called in.
func (v *View) Env() map[string]string {
	if v == nil || v.Mount == nil || !v.part {
		return nil
	}
	return map[string]string{"GIT_DISCOVERY_ACROSS_FILESYSTEM": "1"}
}

// Config is what git must be told by the user's configuration, "" for nothing. The index
// has the files' ids on the host, and cannot be brought up to date: without the first
// setting each git status would read all files. The second one lets git trust the directory
// above a part of a repository, which is the sandbox's and not the user's.
func (v *View) Config() string {
	if v == nil || v.Mount == nil {
		return ""
	}
	config := "[core]\n\tcheckStat = minimal\n"
	if v.part {
		config += "[safe]\n\tdirectory = " + Value(path.Dir(v.Mount.Target)) + "\n"
	}
	return config
}

// Value is s, which has no line's end, as a value of git's configuration.
func Value(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// broken says why git does not work in a worktree, and what to do.
func (v *View) broken(why string) string {
	e := v.git
	switch {
	case e.Linked:
		return fmt.Sprintf("git does not work in this session: .git of the worktree names %s, which is not there (%s); to use git, make the session with a clone (git clone %s DIR)",
			named(e.Path), why, named(v.source))
	case !e.Allowed:
		return fmt.Sprintf("git does not work in this session: the worktree is a part of the repository at %s, which is not in it; to use git, make the session with a clone of that",
			named(e.Path))
	}
	return fmt.Sprintf("git does not work in this session: the worktree is a part of the repository at %s, which is not in it (%s); to use git, make the session with that as its worktree, and give bash the workdir %s",
		named(e.Path), why, v.below())
}

// readOnly says what git can do with a repository that is read-only, and what to do for
// the rest.
func (v *View) readOnly() string {
	e := v.git
	note := fmt.Sprintf("git shows and does not change: the repository's %s is read-only in this session, so that git commit fails; ", named(e.Dir.Path))
	if e.Linked {
		note += fmt.Sprintf("to commit, make the session with a clone (git clone %s DIR)", named(v.source))
	} else {
		note += fmt.Sprintf("to commit, make the session with %s as its worktree, and give bash the workdir %s; the repository's other files count as deleted here: use git status . and git diff .",
			named(e.Path), v.below())
	}
	if e.Alternates {
		note += "; objects that it keeps in other directories (objects/info/alternates) are not shown"
	}
	return note
}

// below is the path of the worktree below the repository that it is a part of.
func (v *View) below() string {
	below, err := filepath.Rel(v.git.Path, v.source)
	if err != nil {
		below = v.source
	}
	return named(below)
}

// named is hostile text of a path for a note.
func named(p string) string { return plain.Name(strings.ToValidUTF8(p, "\uFFFD")) }
