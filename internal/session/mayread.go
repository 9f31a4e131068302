package session

import (
	"encoding/json"
	"maps"
	"sync"

	"github.com/toold/toold/internal/policy"
	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run"
	"github.com/toold/toold/internal/tool/run/readrule"
)

// mayRead says whether answers of a session with this profile may show content of
// the file at path, which is absolute in the sandbox with all links resolved. The
// rules of "read" bind every tool that shows content. Nobody is asked, so only the
// action allow lets it be shown.
func (s *Session) mayRead(profile, path string) policy.Verdict {
	s.mu.Lock()
	worktree := s.row.Worktree.Target
	s.mu.Unlock()
	v, _ := s.rulesFor(profile).judge([]policy.Request{{
		Permission: tool.PermissionRead, Pattern: path, Path: path, Relative: policy.RelativeTo(worktree, path),
	}})
	return v
}

// readRules are mayRead in the form in which they are given to tools, made once.
type readRules struct {
	once           sync.Once
	content, names json.RawMessage // nil: nothing is left out
}

// shownTo gives the settings of tools that show content, or names, of files that
// their call does not name.
func (r *ruleset) shownTo(worktree string) (content, names json.RawMessage) {
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

// notReadable words why mayRead did not allow it, with the rule and its place.
func notReadable(v *policy.Verdict) string {
	if v.Action == policy.Ask {
		return "reading it would need an approval" + because(v)
	}
	return "reading it is denied" + because(v)
}

// withoutUnreadable is a result as the session may see it: with what it quotes of the
// file that it is about, or without all content of that file where mayRead does not
// allow it. An approver was shown that content anyway; this is for the model.
func (s *Session) withoutUnreadable(c *call, r *run.Result) *run.Result {
	_, diff := r.Metadata["diff"]
	if r.Quote == "" && !diff {
		return r
	}
	v := *r
	v.Quote = ""
	read := policy.Verdict{Action: policy.Deny, Rule: "default", Reason: "it is not known which file it is"}
	if path, ok := r.Metadata["path"].(string); ok && path != "" {
		read = s.mayRead(c.profile, path)
	}
	if read.Action == policy.Allow {
		v.Output += r.Quote
		return &v
	}
	v.Output += "\n[content of the file is not shown: " + notReadable(&read) + "]"
	v.Metadata = maps.Clone(r.Metadata)
	delete(v.Metadata, "diff")
	v.Metadata["not_shown"] = notReadable(&read)
	return &v
}
