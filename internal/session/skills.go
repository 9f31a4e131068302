package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/toold/toold/internal/call/local"
	"github.com/toold/toold/internal/judge"
	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/sandbox"
	"github.com/toold/toold/internal/skill"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
)

// skills are the skills of the host and of the worktree, as they are now, for the calls of a
// session.
type skills struct {
	host func() (l *skill.Library, trees bool)
	tree treePlace
}

// tools are the tools that read them.
func (k skills) tools() []local.Tool { return []local.Tool{local.Of(nil, k.load)} }

// warnOfSkills says to people what is not offered.
func warnOfSkills(log *slog.Logger, l *skill.Library) {
	for _, p := range l.Problems() {
		log.Warn("a skill cannot be used", "why", p, "all", l.Left())
	}
}

// undenied are the skills that rules do not deny.
func undenied(skills []skill.Skill, rules *judge.Rules) (all []skill.Skill) {
	for _, s := range skills {
		if v, _ := rules.Judge([]policy.Request{{Permission: tool.PermissionSkill, Pattern: s.Name}}); v.Action != policy.Deny {
			all = append(all, s)
		}
	}
	return all
}

// skillMounts are the skills with scripts that rules do not deny, for the sandbox of a session.
// One that has gone is not there.
func skillMounts(l *skill.Library, rules *judge.Rules) (all []sandbox.Mount) {
	for _, s := range undenied(l.All(), rules) {
		if !s.Scripts {
			continue
		}
		dir, err := l.Dir(s.Name)
		if err != nil {
			continue
		}
		m := sandbox.Mount{Source: dir, Target: s.Place()}
		if st, err := dir.Stat(); err == nil {
			if st, ok := st.Sys().(*syscall.Stat_t); ok {
				m.UID, m.GID = st.Uid, st.Gid
			}
		}
		all = append(all, m)
	}
	return all
}

func (k skills) load(ctx context.Context, in *tool.Skill, _ *local.Out) (*run.Result, error) {
	l, trees := k.host()
	if trees && !l.Has(in.Name) {
		return k.tree.load(ctx, l, in), nil
	}
	if in.File != "" {
		return skillFile(l, in), nil
	}
	s, text, files, cut, err := l.Text(in.Name)
	if err != nil {
		return unread(in, err), nil
	}
	var b strings.Builder
	b.WriteString(text)
	b.WriteString(wishes(s))
	if len(files) > 0 {
		b.WriteString("\n\n(Files of the skill, to be given as `file`:")
		for _, f := range files {
			fmt.Fprintf(&b, "\n%q", f)
		}
		if cut {
			b.WriteString("\nand more")
		}
		b.WriteByte(')')
	}
	if s.Scripts {
		fmt.Fprintf(&b, "\n\n(It is at %s, read-only, in sandboxes that were made since toold has it: run its scripts there)", s.Place())
	}
	if b.Len() == 0 {
		b.WriteString(noInstructions)
	}
	return &run.Result{Title: s.Name, Output: b.String(), Metadata: map[string]any{"name": s.Name, "files": len(files)}}, nil
}

const noInstructions = "The skill has no instructions."

// wishes says which tools a skill would like to use; "" where it names none.
func wishes(s *skill.Skill) string {
	if s.Allowed == "" {
		return ""
	}
	return fmt.Sprintf("\n\n(It is made for these tools, and does not allow them: %s)", s.Allowed)
}

// skillFile gives one file.
func skillFile(l *skill.Library, in *tool.Skill) *run.Result {
	text, err := l.File(in.Name, in.File)
	switch {
	case err != nil:
		return unread(in, err)
	case !utf8.Valid(text):
		return unread(in, errors.New("it is not text"))
	}
	r := &run.Result{Title: in.Name + ": " + in.File, Output: string(text), Metadata: map[string]any{"name": in.Name, "bytes": len(text)}}
	if len(text) == 0 {
		r.Output = "The file is empty."
	}
	return r
}

// unread says to a model why it gets nothing. Paths of the host are not its business.
func unread(in *tool.Skill, err error) *run.Result {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	text := fmt.Sprintf("the skill %q cannot be read: %v", in.Name, err)
	if in.File != "" {
		text = fmt.Sprintf("file %q of the skill %q cannot be read: %v; without file the skill lists its files", in.File, in.Name, err)
	}
	if unknown, ok := errors.AsType[*skill.UnknownError](err); ok {
		text = unknown.Error()
	}
	return &run.Result{Title: in.Name, Output: text, IsError: true}
}
