package search

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// rule is one line of an ignore file.
type rule struct {
	glob    *glob
	keep    bool // the line begins with "!"
	dirOnly bool // it ends with "/"
}

// rules are those of one ignore file; the last one that matches decides.
type rules []rule

// verdict is what rules say of a path.
type verdict uint8

const (
	silent verdict = iota
	ignored
	kept
)

// ruleBytes is what a rule takes besides its glob, roughly.
const ruleBytes = 160

// parseRules reads an ignore file. Lines that are no globs are passed over, and
// what follows a line that is not UTF-8 is lost, as it is for ripgrep. spend takes
// the memory of each rule; false ends the reading.
func parseRules(text string, spend func(bytes int) bool) rules {
	var out rules
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if !utf8.ValidString(line) {
			break
		}
		r, ok := parseRule(line)
		if !ok {
			continue
		}
		if !spend(ruleBytes + r.glob.bytes()) {
			break
		}
		out = append(out, r)
	}
	return out
}

func parseRule(line string) (rule, bool) {
	if strings.HasPrefix(line, "#") {
		return rule{}, false
	}
	if !strings.HasSuffix(line, `\ `) {
		line = strings.TrimRightFunc(line, unicode.IsSpace)
	}
	if line == "" {
		return rule{}, false
	}
	var r rule
	anchored := false
	if strings.HasPrefix(line, `\!`) || strings.HasPrefix(line, `\#`) {
		line = line[1:]
	} else {
		line, r.keep = strings.CutPrefix(line, "!")
		line, anchored = strings.CutPrefix(line, "/")
	}
	line, r.dirOnly = strings.CutSuffix(line, "/")
	if !anchored && !strings.Contains(line, "/") && line != "**" {
		line = "**/" + line
	}
	if strings.HasSuffix(line, "/**") {
		line += "/*" // what is in the directory, not the directory
	}
	var err error
	r.glob, err = compileGlob(line)
	return r, err == nil
}

// judge says what the rules say of path, which is relative to their directory.
func (rs rules) judge(m *globber, path string, dir bool) verdict {
	for i := len(rs) - 1; i >= 0; i-- {
		r := &rs[i]
		if r.dirOnly && !dir || !m.match(r.glob, path) {
			continue
		}
		if r.keep {
			return kept
		}
		return ignored
	}
	return silent
}
