package run

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/bmatcuk/doublestar/v4"
)

// maxExpansions is how many plain patterns the alternatives of one glob may
// stand for. Each is matched by itself, so a row of {a,b}{a,b}… would cost
// twice as much with every pair.
const maxExpansions = 256

// selector picks files by a glob, with the meaning it has on ripgrep's command
// line and in .gitignore: without a slash it is matched against the name alone,
// with one against the path below the directory that is searched.
type selector struct {
	pattern  string
	nameOnly bool
	negated  bool
}

// newSelector reads a glob; base is the canonical directory that is searched,
// which an absolute glob may begin with. The error is worded for the caller.
func newSelector(pattern, base string) (*selector, error) {
	s := &selector{pattern: pattern}
	s.pattern, s.negated = strings.CutPrefix(s.pattern, "!")
	if below, ok := strings.CutPrefix(s.pattern, strings.TrimSuffix(base, "/")+"/"); ok && path.IsAbs(s.pattern) {
		s.pattern = "/" + below
	}
	s.pattern = strings.TrimPrefix(s.pattern, "./")
	s.nameOnly = !strings.Contains(s.pattern, "/")
	s.pattern = strings.TrimPrefix(s.pattern, "/")
	if strings.HasSuffix(s.pattern, "/") {
		s.pattern += "**"
	}
	if s.pattern == "" || !doublestar.ValidatePattern(s.pattern) {
		return nil, Errorf(CodeInvalidInput, "%q is not a valid glob: see that every [ and { is closed; "+
			"put a backslash before characters that are meant as such", pattern)
	}
	if slices.Contains(strings.Split(s.pattern, "/"), "..") {
		return nil, Errorf(CodeInvalidInput, "%q goes up with .., which no path below the searched directory does: set path to the directory that is meant", pattern)
	}
	if list := listed(s.pattern); list != nil {
		return nil, Errorf(CodeInvalidInput, "%q is one glob, with a comma in it: write {%s} for several", pattern, strings.Join(list, ","))
	}
	if expansions(s.pattern) > maxExpansions {
		return nil, Errorf(CodeInvalidInput, "the glob %q has alternatives for more than %d patterns; split it up",
			pattern, maxExpansions)
	}
	return s, nil
}

// listed are the globs of a pattern that looks like a list of them, such as
// "*.ts, *.js"; nil = it does not.
func listed(pattern string) []string {
	var list []string
	depth, from := 0, 0
	for i, r := range pattern + "," {
		switch {
		case r == '{', r == '[':
			depth++
		case r == '}', r == ']':
			depth--
		case r == ',' && depth == 0:
			list = append(list, strings.TrimSpace(pattern[from:i]))
			from = i + 1
		}
	}
	// Names may have commas; two parts with a star are no name.
	if len(list) < 2 || slices.ContainsFunc(list, func(s string) bool { return !strings.Contains(s, "*") }) {
		return nil
	}
	return list
}

// expansions is at least the number of plain patterns that the alternatives in
// pattern stand for.
func expansions(pattern string) int {
	total := 1
	var open []int // alternatives of each group that is open
	for _, r := range pattern {
		switch {
		case r == '{':
			open = append(open, 1)
		case r == ',' && len(open) > 0:
			open[len(open)-1]++
		case r == '}' && len(open) > 0:
			total *= open[len(open)-1]
			open = open[:len(open)-1]
		}
		if total > maxExpansions {
			return total
		}
	}
	return total
}

// match reports whether the selector picks the file at rel, a path below the
// directory that is searched.
func (s *selector) match(rel string) bool {
	if s.nameOnly {
		rel = path.Base(rel)
	}
	return doublestar.MatchUnvalidated(s.pattern, rel) != s.negated
}

// plainGlob is what ripgrep's globs and ours surely take in the same way.
var plainGlob = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[\w.*?+@~ -]*(\{[\w.*?+@~ -]+(,[\w.*?+@~ -]+)*\}[\w.*?+@~ -]*)*$`)
})

// typeGlob is a glob on names alone that matches all files that s can pick, for
// ripgrep to look at no others; "" when there is none. It is given as a file
// type because, other than --glob, a type does not bring back what .gitignore
// excludes.
func (s *selector) typeGlob() string {
	if s.negated {
		return ""
	}
	name := path.Base(s.pattern)
	if strings.Contains(name, "**") || !plainGlob().MatchString(name) {
		return ""
	}
	return name
}
