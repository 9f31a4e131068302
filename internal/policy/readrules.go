package policy

import (
	"slices"

	"github.com/toold/toold/internal/tool/run/readrule"
)

// FileRules are the rules for a permission on files, to read or to edit, in the form in
// which tools in the sandbox keep to them where they show or change files that a call does
// not name. worktree is where it is mounted. For each path Judge says the same as
// Stack.Judge of a request for that permission.
func (s *Stack) FileRules(permission, worktree string) *readrule.Rules {
	of := func(rules []*rule) []readrule.Rule { return fileRules(permission, rules) }
	r := &readrule.Rules{
		Worktree: worktree, Headless: s.headless,
		List: of(s.list), Above: len(of(s.list[:s.above])), Saved: of(s.saved),
	}
	slices.Reverse(r.Saved) // of these the first that matches decides
	for i := range s.ceilings {
		if rules := of(s.ceilings[i].rules); len(rules) > 0 {
			r.Ceilings = append(r.Ceilings, rules)
		}
	}
	return r
}

func fileRules(permission string, rules []*rule) []readrule.Rule {
	var out []readrule.Rule
	for _, r := range rules {
		if !r.names(permission) {
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
