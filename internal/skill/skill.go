// Package skill reads skills: directories with instructions for a kind of work in SKILL.md,
// in the published layout, and with files that those speak of. They lie on the host, where an
// administrator has put them; nothing outside a directory of skills is read for one, wherever
// its links lead. Those of worktrees are read by others, and only parsed here.
package skill

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/toold/toold/internal/plain"
)

// Bounds of skills.
const (
	// MaxFile is the most that is read of one file, in bytes. A longer one is refused.
	MaxFile = 256 << 10

	// MaxSkills is how many of them there are at most.
	MaxSkills = 64

	maxProblems = 16   // that are told
	maxEntries  = 4096 // that are looked at, of one directory of skills
	maxFiles    = 100  // of one skill that are listed
)

// Instructions is the file that makes a directory a skill.
const Instructions = "SKILL.md"

// Skill is one skill, as its front matter describes it.
type Skill struct {
	Name        string
	Description string // one line of at most 1 KiB
	Allowed     string // tools that it would like to use; it allows none
	// Scripts: somebody may run one of its files, so that sandboxes have it at Place.
	Scripts bool
	// Tree is its directory in a worktree, as sandboxes see it; "" for one of the host.
	Tree string
	root string // the directory of skills
}

// Root is where skills with scripts are in a sandbox, and nothing else.
const Root = "/skills"

// Place is the directory of the skill in a sandbox.
func (s *Skill) Place() string { return path.Join(Root, s.Name) }

// Library is the skills that were found when it was made. The zero value and nil have none.
type Library struct {
	skills   []Skill
	roots    []string
	problems []string
	left     int
}

// Load looks for skills in directories of the host. Of two with one name the first counts.
func Load(roots []string) *Library {
	l := &Library{roots: roots}
	for _, root := range roots {
		if err := l.load(root); err != nil {
			l.leave(root, err)
		}
	}
	return l
}

// load adds the skills of one directory.
func (l *Library) load(root string) error {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	names, err := entries(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if st, err := dir.Stat(name); err == nil && !st.IsDir() {
			continue // nor is it opened: it may be a pipe
		}
		s, _, err := read(dir, name)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it is something else
			continue
		case err == nil && l.find(s.Name) != nil:
			err = errors.New("an earlier skill has its name")
		case err == nil && len(l.skills) == MaxSkills:
			err = fmt.Errorf("there are %d already", MaxSkills)
		}
		if err != nil {
			l.leave(filepath.Join(root, name), err)
			continue
		}
		s.root, s.Scripts = root, scripts(dir, name)
		l.skills = append(l.skills, *s)
	}
	return nil
}

// entries are the names in a directory, sorted.
func entries(dir *os.Root) ([]string, error) {
	d, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	names, err := d.Readdirnames(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(names) > maxEntries {
		return nil, fmt.Errorf("it has more than %d entries", maxEntries)
	}
	slices.Sort(names)
	return names, nil
}

// leave notes why something is not offered.
func (l *Library) leave(what string, err error) {
	if l.left++; len(l.problems) < maxProblems {
		l.problems = append(l.problems, plain.Cut(plain.Line(what+": "+err.Error()), maxDescription))
	}
}

// All are the skills. Nobody changes them.
func (l *Library) All() []Skill {
	if l == nil {
		return nil
	}
	return l.skills
}

// Has reports whether there is a skill of that name.
func (l *Library) Has(name string) bool { return l.find(name) != nil }

// Problems say what was found and cannot be used, and why; at most 16 of them.
func (l *Library) Problems() []string {
	if l == nil {
		return nil
	}
	return l.problems
}

// Left counts what was found and cannot be used.
func (l *Library) Left() int {
	if l == nil {
		return 0
	}
	return l.left
}

// None says why there is no skill at all; "" where there is one.
func (l *Library) None() string {
	switch {
	case len(l.All()) > 0:
		return ""
	case l == nil || len(l.roots) == 0:
		return "there are no skills here: [skills] paths of the configuration names no directory"
	case len(l.problems) > 0:
		return "there are no skills here that can be used: " + l.problems[0]
	}
	return "there are no skills in " + strings.Join(l.roots, ", ")
}

func (l *Library) find(name string) *Skill {
	for i, s := range l.All() {
		if s.Name == name {
			return &l.skills[i]
		}
	}
	return nil
}

// UnknownError says that there is no skill of a name, and which there are.
type UnknownError struct {
	Name string
	Have []string
}

// Error implements error.
func (e *UnknownError) Error() string {
	text := fmt.Sprintf("there is no skill %q", plain.Line(e.Name))
	if near := plain.Near(e.Name, e.Have); len(near) > 0 {
		return text + "; did you mean " + strings.Join(near, " or ") + "?"
	}
	if len(e.Have) == 0 {
		return text + ", nor any other"
	}
	return text + "; the skills are " + strings.Join(e.Have, ", ")
}

// open opens the directory of skills that a skill is in.
func (l *Library) open(name string) (*os.Root, error) {
	s := l.find(name)
	if s == nil {
		e := &UnknownError{Name: name}
		for _, s := range l.All() {
			e.Have = append(e.Have, s.Name)
		}
		return nil, e
	}
	return os.OpenRoot(s.root)
}

// Text gives a skill and its instructions, as they are now, and the other files of the skill;
// cut says that there are more of them.
func (l *Library) Text(name string) (s *Skill, text string, files []string, cut bool, err error) {
	dir, err := l.open(name)
	if err != nil {
		return nil, "", nil, false, err
	}
	defer func() { _ = dir.Close() }()
	if s, text, err = read(dir, name); err != nil {
		return nil, "", nil, false, err
	}
	s.Scripts = l.find(name).Scripts // as sandboxes have found it
	files, cut = listed(dir, name)
	return s, text, files, cut, nil
}

// Dir opens the directory of a skill.
func (l *Library) Dir(name string) (*os.File, error) {
	dir, err := l.open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	return dir.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY, 0)
}

// File gives one file of a skill. file is below the skill's directory.
func (l *Library) File(name, file string) ([]byte, error) {
	if !filepath.IsLocal(file) || slices.Contains(strings.Split(file, "/"), "..") {
		return nil, errors.New("it is not a path below the directory of the skill")
	}
	dir, err := l.open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	return content(dir, name, file)
}

// read reads what makes a directory a skill.
func read(dir *os.Root, name string) (*Skill, string, error) {
	raw, err := content(dir, name, Instructions)
	if err != nil {
		return nil, "", err
	}
	return Parse(name, raw)
}

// Parse reads a SKILL.md, which may be hostile, of a directory of that name. It gives the skill
// and its instructions.
func Parse(name string, raw []byte) (*Skill, string, error) {
	s, text, err := parse(raw)
	if err == nil && s.Name != name {
		err = fmt.Errorf("its name is %s, and that of its directory is not", s.Name)
	}
	return s, text, err
}

// Named reports whether a skill may have that name.
func Named(name string) bool { return len(name) <= maxName && nameForm.MatchString(name) }

// content reads a regular file below a skill's own directory. It waits for no other end of a
// pipe.
func content(dir *os.Root, name, file string) ([]byte, error) {
	own, err := dir.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = own.Close() }()
	f, err := own.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err == nil && len(text) > MaxFile {
		err = fmt.Errorf("it has more than %d bytes", MaxFile)
	}
	return text, err
}

// listed are the regular files of a skill but its instructions.
func listed(dir *os.Root, name string) (files []string, cut bool) {
	cut = walk(dir, name, func(p string, _ fs.DirEntry) (enough bool) {
		if p == Instructions {
			return false
		}
		if len(files) == maxFiles {
			return true
		}
		files = append(files, path.Clean(p))
		return false
	})
	return files, cut
}

// scripts reports whether a file of a skill may be run as a program.
func scripts(dir *os.Root, name string) (found bool) {
	walk(dir, name, func(_ string, e fs.DirEntry) bool {
		st, err := e.Info()
		found = err == nil && st.Mode().Perm()&0o111 != 0
		return found
	})
	return found
}

// walk goes through the regular files of a skill, as far as it looks at all. It reports whether
// it ended before their end.
func walk(dir *os.Root, name string, visit func(p string, e fs.DirEntry) (enough bool)) (cut bool) {
	own, err := dir.OpenRoot(name)
	if err != nil {
		return false // it is going away
	}
	defer func() { _ = own.Close() }()
	seen := 0
	_ = fs.WalkDir(own.FS(), ".", func(p string, e fs.DirEntry, err error) error {
		if seen++; seen > maxEntries || err == nil && e.Type().IsRegular() && visit(p, e) {
			cut = true
			return fs.SkipAll
		}
		return nil // what cannot be looked at is not there
	})
	return cut
}
