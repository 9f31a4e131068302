// Package readrule says which files tools in the sandbox may show: it is the form in
// which the daemon sends them its rules for "read".
package readrule

import (
	"bytes"
	"slices"
	"strings"

	"github.com/toold/toold/internal/tool/run/wildcard"
)

// Rules say which files tools may show besides the one that a call names: what
// the daemon's rules for "read" come to for any path. The daemon makes them for each
// call (see policy.Stack.FileRules), in the setting read_rules of the tools that
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

	// parts are such that each path that Judge does not allow has one of them in one
	// of its names; one that is empty says that it may be any path.
	parts []part
}

// part is a text, in the two forms in which it is looked for.
type part struct {
	text  string
	bytes []byte
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

// Compile comes once before Judge and MayHide, which may then be called from any
// goroutine.
func (r *Rules) Compile() {
	for _, list := range append([][]Rule{r.List, r.Saved}, r.Ceilings...) {
		for i := range list {
			for _, p := range list[i].Patterns {
				g := wildcard.Compile(p)
				list[i].globs = append(list[i].globs, g)
				if list[i].Action != Allow {
					r.parts = append(r.parts, part{g.Part(), []byte(g.Part())})
				}
			}
		}
	}
	if !r.allowsAll() {
		r.parts = []part{{}}
	}
	// One that holds another says no more than that.
	slices.SortFunc(r.parts, func(a, b part) int { return len(a.text) - len(b.text) })
	var few []part
	for _, p := range r.parts {
		if !slices.ContainsFunc(few, func(f part) bool { return strings.Contains(p.text, f.text) }) {
			few = append(few, p)
		}
	}
	r.parts = few
}

// allowsAll reports whether what no other rule is about is allowed.
func (r *Rules) allowsAll() bool {
	return len(r.List) > 0 && r.List[0].Action == Allow && slices.Contains(r.List[0].Patterns, "*")
}

// MayHide reports whether Judge may say anything but allow of the file name in dir, a
// canonical path. It costs a fraction of Judge, and is false of nearly all files.
func (r *Rules) MayHide(dir string, name []byte) bool {
	for _, p := range r.parts {
		if bytes.Contains(name, p.bytes) || strings.Contains(dir, p.text) {
			return true
		}
	}
	return false
}

// Restrict reports whether there may be a file that must not be shown; names says
// that this is about names alone, which only a deny hides.
func (r *Rules) Restrict(names bool) bool {
	stricter := func(v Rule) bool {
		return v.Action != Allow && v.Action != "" && (!names || v.Action != Ask || r.Headless != "")
	}
	return !r.allowsAll() || slices.ContainsFunc(r.List, stricter) ||
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
		if rule := last(c); rule != nil && Strictness(rule.Action) > Strictness(action) {
			action, source = rule.Action, rule.Source
		}
	}
	if action == Ask {
		if rule := last(r.Saved); rule != nil {
			return Allow, rule.Source
		}
	}
	if action == Ask && r.Headless != "" || Strictness(action) == 2 {
		action = Deny
	}
	return action, source
}

// Strictness orders actions. What is none of them is taken for the strictest.
func Strictness[A ~string](action A) int {
	switch action {
	case Allow:
		return 0
	case Ask:
		return 1
	}
	return 2
}
