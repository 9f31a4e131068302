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
}

// ShownTo gives the settings of tools that show content, or names, of files that
// their call does not name; nil where nothing is left out.
func (r *Rules) ShownTo(worktree string) (content, names json.RawMessage) {
	r.read.once.Do(func() {
		rules := &readrule.Rules{} // allows nothing
		if r.err == nil {
			rules = r.stack.ReadRules(worktree)
		}
		text, err := json.Marshal(map[string]any{"read_rules": rules})
		if err != nil {
			panic(err) // a struct of strings and numbers
		}
		if rules.Restrict(false) {
			r.read.content = text
		}
		if rules.Restrict(true) {
			r.read.names = text
		}
	})
	return r.read.content, r.read.names
}

// NotReadable words why MayRead did not allow it, with the rule and its place.
func NotReadable(v *policy.Verdict) string {
	if v.Action == policy.Ask {
		return "reading it would need an approval" + Because(v)
	}
	return "reading it is denied" + Because(v)
}
