package policy

import (
	"slices"

	"github.com/toold/toold/internal/tool"
	"github.com/toold/toold/internal/tool/run/readrule"
)

// ReadRules are the rules for reading files in the form in which tools in the sandbox
// keep to them where they show files that a call does not name. worktree is where it
// is mounted. For each path Judge says the same as Stack.Judge of a request to read it.
func (s *Stack) ReadRules(worktree string) *readrule.Rules {
	r := &readrule.Rules{
		Worktree: worktree, Headless: s.headless,
		List: readRules(s.list), Above: len(readRules(s.list[:s.above])), Saved: readRules(s.saved),
	}
	slices.Reverse(r.Saved) // of these the first that matches decides
	for i := range s.ceilings {
		if rules := readRules(s.ceilings[i].rules); len(rules) > 0 {
			r.Ceilings = append(r.Ceilings, rules)
		}
	}
	return r
}

func readRules(rules []*rule) []readrule.Rule {
	var out []readrule.Rule
	for _, r := range rules {
		if !r.names(tool.PermissionRead) {
			continue
		}
		v := readrule.Rule{Action: string(r.Action), Source: r.Source}
		for i := range r.path {
			v.Patterns = append(v.Patterns, r.path[i].String())
		}
		out = append(out, v)
	}
	return out
}
