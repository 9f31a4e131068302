package policy

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/toold/toold/internal/tool/run/wildcard"
)

// Bounds of a pattern, so that no rules file can make judging slow.
const (
	maxPattern = 4096 // bytes
	maxStars   = 32
)

// checkPattern refuses what compile would have to be slow for.
func checkPattern(p string) error {
	switch {
	case p == "":
		return errors.New(`a pattern is empty: write "*" for everything`)
	case len(p) > maxPattern:
		return fmt.Errorf("a pattern has %d bytes; at most %d", len(p), maxPattern)
	case !utf8.ValidString(p) || strings.ContainsRune(p, 0):
		return errors.New("a pattern is text in UTF-8 without NUL bytes")
	}
	if n := strings.Count(p, "*"); n > maxStars {
		return fmt.Errorf("a pattern has %d times *; at most %d", n, maxStars)
	}
	for part := range strings.SplitSeq(p, "*") {
		if strings.Contains(part, "?") && utf8.RuneCountInString(part) > wildcard.MaxChunk {
			return fmt.Errorf("a pattern has more than %d characters with a ? among them and no * between", wildcard.MaxChunk)
		}
	}
	return nil
}

// pattern is one pattern of a rule: it matches what one of its globs does.
type pattern []wildcard.Glob

// compilePattern gives a pattern its meaning for texts: a trailing " *" makes
// the arguments optional, "**/" at the start also stands for nothing, and "~/"
// may be written out.
func compilePattern(p string) pattern { return compileGlobs(spellings(p)) }

// compilePathPattern is compilePattern for paths, which never begin with "~/"
// because they are resolved: a directory of that name must not be taken for the
// home directory.
func compilePathPattern(p string) pattern { return compileGlobs(endings(expandHome(p))) }

func compileGlobs(globs []string) pattern {
	out := make(pattern, len(globs))
	for i, g := range globs {
		out[i] = wildcard.Compile(g)
	}
	return out
}

// spellings are the globs that a pattern for texts stands for.
func spellings(p string) []string {
	all := endings(p)
	if e := expandHome(p); e != p {
		all = append(all, endings(e)...)
	}
	return all
}

// endings adds to p its forms without the parts that are optional.
func endings(p string) []string {
	all := []string{p}
	if short, ok := strings.CutSuffix(p, " *"); ok {
		all = append(all, short)
	}
	if top, ok := strings.CutPrefix(p, "**/"); ok {
		all = append(all, top)
		if short, ok := strings.CutSuffix(top, " *"); ok {
			all = append(all, short)
		}
	}
	return all
}

func expandHome(p string) string {
	for _, prefix := range []string{"~/", "$HOME/"} {
		if rest, ok := strings.CutPrefix(p, prefix); ok {
			return Home + "/" + rest
		}
	}
	return p
}

func (p pattern) match(text string) bool {
	for i := range p {
		if p[i].Match(text) {
			return true
		}
	}
	return false
}
