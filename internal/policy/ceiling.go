package policy

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/toold/toold/client"
	"github.com/toold/toold/internal/tomltext"
)

// Bounds of rules that come from those who are judged.
const (
	maxCeilingText = 64 << 10 // bytes
	maxCeiling     = 200      // rules
	maxCeilingKeys = 2000     // lines with a key, brackets included
	maxProblems    = 20       // that are listed
)

// CheckRules makes rules of those that came with a session's creation. name
// stands for them in messages, as in "session rule 2". The error lists every
// problem.
func CheckRules(name string, rules []client.RuleOf) ([]Rule, error) {
	if len(rules) > maxCeiling {
		return nil, fmt.Errorf("there are %d %s rules; at most %d", len(rules), name, maxCeiling)
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
	if err := checkText(name, text); err != nil {
		return nil, err
	}
	doc, err := tomltext.Parse(name, text)
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

// checkText bounds a text before anything reads it: keys and brackets are what a
// parser's time and memory grow with.
func checkText(name string, text []byte) error {
	refuse := func(format string, args ...any) error {
		return tomltext.Join([]tomltext.Problem{{Source: name, Message: fmt.Sprintf(format, args...)}})
	}
	if len(text) > maxCeilingText {
		return refuse("has %d bytes; at most %d", len(text), maxCeilingText)
	}
	if !utf8.Valid(text) {
		return refuse("is not text in UTF-8")
	}
	keys := 0
	for _, b := range text {
		if strings.IndexByte("=[{.", b) >= 0 {
			keys++
		}
	}
	if keys > maxCeilingKeys*4 {
		return refuse("has too many keys, tables and dots (%d)", keys)
	}
	return nil
}
