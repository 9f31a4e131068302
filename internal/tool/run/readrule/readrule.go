// Package readrule says which files tools in the sandbox may show: the daemon's rules
// for "read" in the form in which they are sent there.
package readrule

import (
	"slices"
	"strings"

	"github.com/toold/toold/internal/tool/run/wildcard"
)

// Rules say which files tools may show besides the one that a call names: what
// the daemon's rules for "read" come to for any path. The daemon makes them for each
// call (see policy.Stack.ReadRules), in the setting read_rules of the tools that
// show many files. The zero value allows nothing.
type Rules struct {
	Worktree string `json:"worktree"` // paths below it match without it too
	// List decides by its last rule that matches; no match is an ask. Where that
	// rule's action is "", the last match of the first Above rules decides.
	List  []Rule `json:"list,omitempty"`
	Above int    `json:"above,omitempty"`
	// Ceilings are lists of which each can only make it stricter.
	Ceilings [][]Rule `json:"ceilings,omitempty"`
	Saved    []Rule   `json:"saved,omitempty"` // turn an ask into an allow
	// Headless names the profile in which an ask is a deny; "" = none.
	Headless string `json:"headless,omitempty"`
}

// Rule is one rule.
type Rule struct {
	Patterns []string `json:"patterns"` // of wildcard; one of them has to match
	Action   string   `json:"action,omitempty"`
	Source   string   `json:"source,omitempty"` // where it stands, for people

	globs []wildcard.Glob
}

// The actions of a Rule.
const (
	Allow = "allow"
	Ask   = "ask"
	Deny  = "deny"
)

// Compile comes once before Judge, which may then be called from any goroutine.
func (r *Rules) Compile() {
	for _, list := range append([][]Rule{r.List, r.Saved}, r.Ceilings...) {
		for i := range list {
			for _, p := range list[i].Patterns {
				list[i].globs = append(list[i].globs, wildcard.Compile(p))
			}
		}
	}
}

// Restrict reports whether there may be a file that must not be shown; names says
// that this is about names alone, which only a deny hides.
func (r *Rules) Restrict(names bool) bool {
	stricter := func(v Rule) bool {
		return v.Action != Allow && v.Action != "" && (!names || v.Action != Ask || r.Headless != "")
	}
	all := len(r.List) > 0 && r.List[0].Action == Allow && slices.Contains(r.List[0].Patterns, "*")
	return !all || slices.ContainsFunc(r.List, stricter) ||
		slices.ContainsFunc(r.Ceilings, func(c []Rule) bool { return slices.ContainsFunc(c, stricter) })
}

// Judge says whether the file at path, which is canonical, may be shown: allow, ask
// or deny, and which rule says so.
func (r *Rules) Judge(path string) (action, source string) {
	below, _ := strings.CutPrefix(path, strings.TrimSuffix(r.Worktree, "/")+"/")
	last := func(list []Rule) *Rule {
		for i := range slices.Backward(list) {
			for k := range list[i].globs {
				if g := &list[i].globs[k]; g.Match(path) || below != path && g.Match(below) {
					return &list[i]
				}
			}
		}
		return nil
	}
	rule := last(r.List)
	if rule != nil && rule.Action == "" {
		rule = last(r.List[:min(r.Above, len(r.List))])
	}
	action, source = Ask, "default"
	if rule != nil {
		action, source = rule.Action, rule.Source
	}
	for _, c := range r.Ceilings {
		if rule := last(c); rule != nil && strictness(rule.Action) > strictness(action) {
			action, source = rule.Action, rule.Source
		}
	}
	if action == Ask {
		if rule := last(r.Saved); rule != nil {
			return Allow, rule.Source
		}
	}
	if action == Ask && r.Headless != "" || strictness(action) == 2 {
		action = Deny
	}
	return action, source
}

func strictness(action string) int {
	switch action {
	case Allow:
		return 0
	case Ask:
		return 1
	}
	return 2
}
