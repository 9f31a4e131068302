package judge

import (
	"encoding/json"
	"sync"

	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run/readrule"
)

// MayRead says whether answers of a session with this profile may show content of
// the file at path, which is absolute in the sandbox with all links resolved. The
// rules of "read" bind every tool that shows content. Nobody is asked, so only the
// action allow lets it be shown.
func (j *Judge) MayRead(profile, path string) policy.Verdict {
	worktree := j.row().Worktree.Target
	v, _ := j.Rules(profile).Judge([]policy.Request{{
		Permission: tool.PermissionRead, Pattern: path, Path: path, Relative: policy.RelativeTo(worktree, path),
	}})
	return v
}

// readRules are MayRead in the form in which they are given to tools, made once.
type readRules struct {
	once           sync.Once
	content, names json.RawMessage // nil: nothing is left out
	written        json.RawMessage // of content, and of what may be changed
}

// ShownTo gives the settings of tools that show content, or names, of files that
// their call does not name; nil where nothing is left out.
func (r *Rules) ShownTo(worktree string) (content, names json.RawMessage) {
	r.read.once.Do(func() {
		r.read.of(r.fileRules(tool.PermissionRead, worktree), r.fileRules(tool.PermissionEdit, worktree))
	})
	return r.read.content, r.read.names
}

// WrittenBy gives the settings of tools that change files which their call does not name,
// or make them of others; nil where they may have and change all.
func (r *Rules) WrittenBy(worktree string) json.RawMessage {
	_, _ = r.ShownTo(worktree)
	return r.read.written
}

// fileRules are the rules for a permission on files.
func (r *Rules) fileRules(permission, worktree string) *readrule.Rules {
	if r.err != nil {
		return &readrule.Rules{} // allows nothing
	}
	return r.stack.FileRules(permission, worktree)
}

func (s *readRules) of(read, edit *readrule.Rules) {
	text := func(rules map[string]*readrule.Rules) json.RawMessage {
		text, err := json.Marshal(rules)
		if err != nil {
			panic(err) // structs of strings and numbers
		}
		return text
	}
	if read.Restrict(false) {
		s.content = text(map[string]*readrule.Rules{"read_rules": read})
	}
	if read.Restrict(true) {
		s.names = s.content // which it restricts as well
	}
	if read.Restrict(false) || edit.Restrict(false) {
		s.written = text(map[string]*readrule.Rules{"read_rules": read, "edit_rules": edit})
	}
}

// NotReadable words why MayRead did not allow it, with the rule and its place.
func NotReadable(v *policy.Verdict) string {
	if v.Action == policy.Ask {
		return "reading it would need an approval" + Because(v)
	}
	return "reading it is denied" + Because(v)
}
