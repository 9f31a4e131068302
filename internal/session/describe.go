package session

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/agent"
	"github.com/toold/toold/internal/auth"
	"github.com/toold/toold/internal/call/errand"
	"github.com/toold/toold/internal/call/remark"
	"github.com/toold/toold/internal/environ"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/store"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// Toolbox describes tools as their sessions have them.
type Toolbox struct{ *roster }

// Tools implements server.Tools.
func (b *Toolbox) Tools(ctx context.Context, p auth.Principal, f client.ToolQuery) (*tool.Set, error) {
	has, facts, err := b.look(ctx, p, f)
	if err != nil {
		return nil, err
	}
	for i, d := range has.Tools {
		if has.Tools[i], err = d.Describe(facts); err != nil {
			return nil, b.internal("describe a tool", err)
		}
	}
	return has, nil
}

// Brief implements server.Tools.
func (b *Toolbox) Brief(ctx context.Context, p auth.Principal, session string) (string, error) {
	_, facts, err := b.look(ctx, p, client.ToolQuery{Session: session})
	if err != nil {
		return "", err
	}
	text, err := facts.Brief()
	if err != nil {
		return "", b.internal("describe a session", err)
	}
	return text, nil
}

// look gives the tools of a session or a profile, and what their descriptions say of the place.
func (b *Toolbox) look(ctx context.Context, p auth.Principal, f client.ToolQuery) (*tool.Set, tool.Facts, error) {
	f.Session = cmp.Or(f.Session, p.Session)
	var row *store.Session
	if f.Session != "" {
		var err error
		if row, err = b.rowOf(ctx, p, f.Session); err != nil {
			return nil, tool.Facts{}, err
		}
	}
	profile := f.Profile
	if row != nil {
		profile = cmp.Or(profile, row.Profile)
	}
	rules, err := b.court.RulesWithout(p.Tenant, cmp.Or(profile, policy.DefaultProfile), row)
	if err != nil {
		return nil, tool.Facts{}, err
	}
	set := b.settings.Load()
	has := rules.Set().Offered(f.Provider, f.Model, set.Restrictions)
	facts := tool.Facts{Tools: has.Names(), Timeout: set.BashTimeout, MaxTimeout: time.Duration(set.Limits.Wall)}
	skills, left := set.Skills.All(), set.Skills.Left()
	if row != nil && set.Worktrees.Skills {
		if s, err := b.find(p, row.ID); err == nil { // else it is over
			tree := s.treePlace().read(ctx, set.Skills)
			skills, left = slices.Concat(skills, tree.found), left+tree.left
		}
	}
	for _, s := range undenied(skills, rules) {
		facts.Skills = append(facts.Skills, tool.SkillFact{Name: s.Name, Description: s.Description, Tree: s.Tree})
	}
	facts.SkillsLeft = left
	if row != nil {
		facts.MaxTimeout = time.Duration(row.Limits.Wall)
		facts.Session = b.sessionFacts(ctx, p, row)
	}
	return has, facts, nil
}

// sessionFacts is what the tools of a session find. What only its sandbox knows is
// left out where that does not answer.
func (b *Toolbox) sessionFacts(ctx context.Context, p auth.Principal, row *store.Session) *tool.SessionFacts {
	w := row.Worktree
	f := &tool.SessionFacts{
		Worktree: run.SearchTitle(w.Target), ReadOnly: w.Mode == client.WorktreeRO,
		Shell:   run.SearchTitle(strings.Join(b.settings.Load().ShellOf(row), " ")),
		Network: "The network is: " + row.Network.Mode + ".",
	}
	switch row.Network.Mode {
	case client.NetworkRules:
		f.Network = "The network is open for what rules allow: a result says which host a rule has denied, and asking again does not help."
	case client.NetworkNone:
		f.Network = "There is no network: names do not resolve, and nothing can be downloaded."
	}
	if !f.ReadOnly {
		f.Writable = append(f.Writable, f.Worktree)
	}
	f.Writable = append(f.Writable, sandbox.Home, "/tmp")
	s, err := b.find(p, row.ID)
	if err == nil { // else it is over
		image := s.heldImage()
		f.Layer = image != nil && image.Root != nil
	}
	f.Limits = limitWords(row, f.Layer)
	if err != nil {
		return f
	}
	if ports := remark.PortWords(&row.Session, portsOf(s.judge.Rules(row.Profile).Stack())); ports != "" {
		f.Network += " No program can listen on " + ports + ", which the rules take."
	}
	f.Mounts = remark.KeptWords(s.judge.Kept(row.Profile))
	e, err := s.Errand()
	if err == nil {
		err = look{Errand: e, dirs: programDirs(b.settings.Load().Path, s.heldImage())}.around(ctx, row, f)
	}
	if err != nil {
		s.log.Warn("look for programs to name in descriptions", "error", err)
	}
	return f
}

// limitWords lists the limits that a program may run into. root says that it may write to / too.
func limitWords(row *store.Session, root bool) (all []string) {
	l := &row.Limits
	add := func(set bool, format string, v any) {
		if set {
			all = append(all, fmt.Sprintf(format, v))
		}
	}
	add(l.CPUs == 1, "%v CPU", l.CPUs)
	add(l.CPUs > 0 && l.CPUs != 1, "%v CPUs", l.CPUs)
	add(l.Memory > 0, "%v of memory for all programs together", l.Memory)
	add(l.PIDs > 0, "%d processes and threads", l.PIDs)
	all = append(all, remark.Sizes(row, root)...)
	add(l.FileSize > 0, "%v for one file", l.FileSize)
	add(l.OpenFiles > 0, "%d open files of one program", l.OpenFiles)
	add(l.Output > 0, "%v of output of one command", l.Output)
	add(l.Calls == 1, "%d call at once", l.Calls)
	add(l.Calls > 1, "%d calls at once", l.Calls)
	instances, _ := remark.Instances(&row.Session, os.DirFS("/"))
	add(instances > 0, "%d inotify instances, which programs that watch files take", instances)
	return all
}

// usualPrograms are those that descriptions speak of, there or not.
var usualPrograms = []string{
	"git", "make", "cmake", "gcc", "clang", "go", "rustc", "cargo", "python3", "pip3", "uv", "node", "npm", "pnpm", "yarn", "bun", "deno",
	"java", "javac", "mvn", "gradle", "ruby", "bundle", "php", "composer", "perl", "dotnet", "rg", "jq", "curl", "patch", "unzip", "sqlite3",
}

// maxAbove bounds the directories above a worktree in which a repository is looked for.
const maxAbove = 8

// lookTime bounds the look into a sandbox for descriptions.
const lookTime = 2 * time.Second

// look asks an agent what there is in its sandbox.
type look struct {
	errand.Errand
	dirs []string // that have programs
}

// around asks the agent which programs there are, and about the repository.
func (l look) around(ctx context.Context, row *store.Session, f *tool.SessionFacts) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	repository := path.Join(row.Worktree.Target, ".git")
	paths := []string{repository}
	for dir := row.Worktree.Target; dir != "/" && len(paths) < maxAbove; {
		dir = path.Dir(dir)
		paths = append(paths, path.Join(dir, ".git"))
	}
	above := paths[1:]
	for _, dir := range l.dirs {
		for _, name := range usualPrograms {
			paths = append(paths, path.Join(dir, name))
		}
	}
	kinds, err := l.kindsOf(ctx, paths)
	if err != nil {
		return err
	}
	switch kinds[repository] {
	case "dir":
		f.Git = "It is a git repository."
		if row.Worktree.Identity == nil && !f.ReadOnly {
			f.Git += " Beside what its own configuration says, nobody is named as author of commits: where `git commit` says so, use `git -c user.name=NAME -c user.email=EMAIL commit`."
		}
	case "":
		f.Git = "It is not a git repository."
		if slices.ContainsFunc(above, func(p string) bool { return kinds[p] == "dir" }) {
			f.Git = "It is a part of a git repository, which is read-only and has its other files elsewhere: `git status .`, `git diff .`."
		}
	default: // a linked worktree, or a submodule
		f.Git = "Its git repository is elsewhere: git may not find it, and does not change it. Where it finds none, work without it, and say so: who made the session can give it a clone."
	}
	_, own := row.Request.Env["PATH"]
	for _, name := range usualPrograms {
		there := slices.ContainsFunc(l.dirs, func(dir string) bool { return kinds[path.Join(dir, name)] == "file" })
		switch {
		case there:
			f.Programs = append(f.Programs, name)
		case !own: // else they may be where nobody has looked
			f.Missing = append(f.Missing, name)
		}
	}
	return nil
}

// programDirs are the directories of PATH, as far as the daemon knows it: the values
// of a session's own environment are not kept.
func programDirs(list string, image *sandbox.HeldImage) []string {
	if image != nil {
		list = environ.OfImage(image.Env)["PATH"]
	}
	const most = 16 // an image may say anything
	dirs := slices.Compact(strings.Split(environ.AbsolutePath(list), ":"))
	return dirs[:min(len(dirs), most)]
}

// kindsOf says what paths lead to, "" where that is nothing or not known.
func (l look) kindsOf(ctx context.Context, paths []string) (map[string]string, error) {
	kinds := make(map[string]string, len(paths))
	job := run.CommandJob("true", 0)
	for some := range slices.Chunk(paths, run.MaxPaths) {
		prep, err := l.Conn.Prepare(ctx, agent.Request{
			CallID: l.NewID(), Tool: job.Tool, Input: job.Input,
			TimeoutMillis: lookTime.Milliseconds(), Paths: some,
		})
		if err != nil {
			return nil, err
		}
		for _, t := range prep.Targets {
			if t.Exists {
				kinds[t.Asked] = t.Kind
			}
		}
	}
	return kinds, nil
}
