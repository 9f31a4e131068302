package policy

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/tomltext"
)

// Bounds of rules that come from those who are judged.
const (
	maxCeilingText = 64 << 10 // bytes
	maxProblems    = 20       // that are listed
	// maxCeilingDepth is that of permission.NAME.PATTERN.reason, and one more.
	maxCeilingDepth = 5
)

// MaxRules is how many rules a session may bring, and how many a worktree may have.
const MaxRules = 200

// CheckRules makes rules of those that came with a session's creation. name
// stands for them in messages, as in "session rule 2". The error lists every
// problem.
func CheckRules(name string, rules []client.RuleOf) ([]Rule, error) {
	if len(rules) > MaxRules {
		return nil, fmt.Errorf("there are %d %s rules; at most %d", len(rules), name, MaxRules)
	}
	var errs []error
	out := make([]Rule, len(rules))
	for i, r := range rules {
		source := fmt.Sprintf("%s rule %d", name, i+1)
		out[i] = Rule{Permission: r.Permission, Pattern: r.Pattern, Action: Action(r.Action), Source: source}
		for _, err := range append([]error{checkPermission(r.Permission)}, checkRule(&out[i])...) {
			if err != nil && len(errs) < maxProblems {
				errs = append(errs, fmt.Errorf("%s: %w", source, err))
			}
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return out, nil
}

// ParseCeiling reads a worktree's rules file (.toold/policy.toml): [permission]
// and [[rule]] only, everything else is an error. The text is hostile; what it
// may cost is bounded before it is read.
func ParseCeiling(name string, text []byte) ([]Rule, error) {
	var bad string
	switch {
	case len(text) > maxCeilingText:
		bad = fmt.Sprintf("has %d bytes; at most %d", len(text), maxCeilingText)
	case !utf8.Valid(text):
		bad = "is not text in UTF-8"
	}
	if bad != "" {
		return nil, tomltext.Join([]tomltext.Problem{{Source: name, Message: bad}})
	}
	doc, err := tomltext.ParseShallow(name, text, maxCeilingDepth)
	if err != nil {
		return nil, err
	}
	p := newParser(doc)
	p.narrow, p.set.base = true, nil
	p.document()
	if problems := tomltext.Sort(p.problems); len(problems) > maxProblems {
		first := problems[maxProblems]
		first.Message = fmt.Sprintf("and %d more problems from here on", len(problems)-maxProblems)
		return nil, &tomltext.Error{Problems: append(problems[:maxProblems], first)}
	} else if len(problems) > 0 {
		return nil, &tomltext.Error{Problems: problems}
	}
	rules := make([]Rule, len(p.set.base))
	for i, r := range p.set.base {
		rules[i] = r.Rule
	}
	return rules, nil
}
