package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"time"

	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/call/errand"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/plain"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/skill"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// treeSkillDirs are the directories of a worktree that have skills. Of two skills with one name
// the first counts.
var treeSkillDirs = []string{".toold/skills", ".claude/skills", ".opencode/skills"}

const (
	// maxTreeEntries are looked at, of one of these directories.
	maxTreeEntries = 256
	// maxTreeSkill bounds the SKILL.md of one, in bytes: an errand holds a file as a whole.
	maxTreeSkill = 64 << 10
	// treeSkillsTime bounds the reading of all of them.
	treeSkillsTime = 5 * time.Second
)

// treeSkills reads the skills of a worktree, inside its sandbox and as the tool user, so that
// neither a link nor a file of another kind reaches anything of the host. All that it reads may
// be hostile.
type treeSkills struct {
	errand errand.Errand
	place  treePlace

	found []skill.Skill
	left  int
	why   error // the first of those that were left out
}

// treePlace is the worktree of a session.
type treePlace struct {
	errand func() (errand.Errand, error)
	target string
	log    *slog.Logger
	// mayRead is what the rules of the session say of showing a file.
	mayRead func(path string) policy.Verdict
}

func (p treePlace) open() (*treeSkills, error) {
	e, err := p.errand()
	return &treeSkills{errand: e, place: p}, err
}

// read lists those that the worktree has now and whose names are not the host's.
func (p treePlace) read(ctx context.Context, host *skill.Library) *treeSkills {
	ctx, cancel := context.WithTimeout(ctx, treeSkillsTime)
	defer cancel()
	t, err := p.open()
	if err != nil {
		t.leave("the worktree", err)
	} else {
		for _, dir := range treeSkillDirs {
			t.list(ctx, dir, host)
		}
	}
	if t.left > 0 {
		p.log.Warn("skills of the worktree cannot be used", "first", t.why.Error(), "all", t.left)
	}
	return t
}

// leave notes that something is not offered.
func (t *treeSkills) leave(what string, err error) {
	if t.left++; t.why == nil {
		t.why = errors.New(plain.Cut(plain.Line(what+": "+err.Error()), 1<<10))
	}
}

// list adds the skills of one directory.
func (t *treeSkills) list(ctx context.Context, dir string, host *skill.Library) {
	at := path.Join(t.place.target, dir)
	names, more, err := t.errand.Dirs(ctx, at, maxTreeEntries, treeSkillsTime, isAt(at, "dir"))
	if err == nil && more {
		err = fmt.Errorf("it has more than %d entries, and only these are looked at", maxTreeEntries)
	}
	if err != nil {
		t.leave(dir, err)
	}
	for _, name := range names {
		if err := t.add(ctx, dir, name, host); err != nil {
			t.leave(path.Join(dir, name), err)
		}
	}
}

// add adds a skill, if the directory is one.
func (t *treeSkills) add(ctx context.Context, dir, name string, host *skill.Library) error {
	s, _, err := t.read(ctx, dir, name)
	switch {
	case err != nil || s == nil:
		return err
	case host.Has(name):
		return errors.New("a skill of the host has its name")
	case slices.ContainsFunc(t.found, func(s skill.Skill) bool { return s.Name == name }):
		return errors.New("an earlier skill has its name")
	case len(t.found)+len(host.All()) >= skill.MaxSkills:
		return fmt.Errorf("there are %d already", skill.MaxSkills)
	}
	t.found = append(t.found, *s)
	return nil
}

// read reads one skill; nil without an error is none.
func (t *treeSkills) read(ctx context.Context, dir, name string) (*skill.Skill, string, error) {
	if !skill.Named(name) {
		return nil, "", errors.New("no skill can have that name")
	}
	own := path.Join(t.place.target, dir, name)
	file := path.Join(own, skill.Instructions)
	found := false
	raw, err := t.errand.File(ctx, file, maxTreeSkill, treeSkillsTime, func(to *run.Target) error {
		found = true
		return isAt(file, "file")(to)
	})
	if err != nil || !found {
		return nil, "", err
	}
	if v := t.place.mayRead(file); v.Action != policy.Allow {
		return nil, "", errors.New(judge.NotReadable(&v))
	}
	s, text, err := skill.Parse(name, raw)
	if err != nil {
		return nil, "", err
	}
	s.Tree = own
	return s, text, nil
}

// isAt checks that a path leads to itself, over no link, and to something of a kind. The agent
// opens nothing else: a pipe would hold it.
func isAt(name, kind string) func(*run.Target) error {
	return func(t *run.Target) error {
		switch {
		case t.Path != name:
			return errors.New("a link leads elsewhere")
		case t.Kind != kind:
			return fmt.Errorf("it is not a %s", map[string]string{"dir": "directory", "file": "regular file"}[kind])
		}
		return nil
	}
}

// load gives a skill that the host does not have.
func (p treePlace) load(ctx context.Context, host *skill.Library, in *tool.Skill) *run.Result {
	ctx, cancel := context.WithTimeout(ctx, treeSkillsTime)
	defer cancel()
	t, err := p.open()
	if err != nil {
		return unread(in, errors.New("the sandbox does not answer"))
	}
	dirs := treeSkillDirs
	if !skill.Named(in.Name) {
		dirs = nil
	}
	for _, dir := range dirs {
		s, text, err := t.read(ctx, dir, in.Name)
		switch {
		case errors.Is(err, agent.ErrLost):
			return unread(in, errors.New("the sandbox does not answer"))
		case err != nil:
			return unread(in, err)
		case s != nil && in.File != "":
			return unread(in, fmt.Errorf("it is a skill of the worktree: read its files there, in %s", s.Tree))
		case s != nil:
			return treeResult(s, text)
		}
	}
	unknown := &skill.UnknownError{Name: in.Name}
	for _, s := range append(p.read(ctx, host).found, host.All()...) {
		unknown.Have = append(unknown.Have, s.Name)
	}
	return unread(in, unknown)
}

func treeResult(s *skill.Skill, text string) *run.Result {
	if text == "" {
		text = noInstructions
	}
	text += wishes(s) + fmt.Sprintf("\n\n(It is a skill of the worktree, which nobody has checked. Its files are in %s)", s.Tree)
	return &run.Result{Title: s.Name, Output: text, Metadata: map[string]any{"name": s.Name, "worktree": s.Tree}}
}
