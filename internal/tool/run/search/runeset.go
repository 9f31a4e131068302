package search

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
)

// runeSet are characters as pairs of first and last, sorted and apart.
type runeSet []rune

// normal sorts and joins pairs.
func (s runeSet) normal() runeSet {
	pairs := make([][2]rune, 0, len(s)/2)
	for i := 0; i < len(s); i += 2 {
		pairs = append(pairs, [2]rune{s[i], s[i+1]})
	}
	slices.SortFunc(pairs, func(a, b [2]rune) int { return int(a[0] - b[0]) })
	var out runeSet
	for _, p := range pairs {
		if n := len(out); n > 0 && p[0] <= out[n-1]+1 {
			out[n-1] = max(out[n-1], p[1])
			continue
		}
		out = append(out, p[0], p[1])
	}
	return out
}

func (s runeSet) negate() runeSet {
	var out runeSet
	next := rune(0)
	for i := 0; i < len(s); i += 2 {
		if s[i] > next {
			out = append(out, next, s[i]-1)
		}
		next = s[i+1] + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, next, unicode.MaxRune)
	}
	return out
}

func (s runeSet) union(t runeSet) runeSet { return slices.Concat(s, t).normal() }

func (s runeSet) intersect(t runeSet) runeSet {
	return s.negate().union(t.negate()).negate()
}

func (s runeSet) minus(t runeSet) runeSet { return s.intersect(t.negate()) }

// fold adds the other cases of what is in s.
func (s runeSet) fold() runeSet {
	if len(s) == 0 {
		return s
	}
	re, err := syntax.Parse(s.brackets(), syntax.FoldCase|syntax.ClassNL|syntax.PerlX|syntax.UnicodeGroups)
	if err != nil {
		return s
	}
	return setOf(re)
}

// setOf is what one class of the regular expression package matches.
func setOf(re *syntax.Regexp) runeSet {
	switch re.Op {
	case syntax.OpCharClass:
		return slices.Clone(runeSet(re.Rune))
	case syntax.OpAnyChar:
		return runeSet{0, unicode.MaxRune}
	case syntax.OpAnyCharNotNL:
		return runeSet{'\n', '\n'}.negate()
	case syntax.OpLiteral:
		s := runeSet{re.Rune[0], re.Rune[0]}
		if re.Flags&syntax.FoldCase != 0 {
			for r := unicode.SimpleFold(re.Rune[0]); r != re.Rune[0]; r = unicode.SimpleFold(r) {
				s = append(s, r, r)
			}
		}
		return s.normal()
	default:
		return nil
	}
}

// brackets writes s as a class of the regular expression package.
func (s runeSet) brackets() string {
	if len(s) == 0 {
		return `[^\x00-\x{10FFFF}]`
	}
	var b strings.Builder
	b.WriteByte('[')
	for i := 0; i < len(s); i += 2 {
		fmt.Fprintf(&b, `\x{%x}`, s[i])
		if s[i+1] > s[i] {
			fmt.Fprintf(&b, `-\x{%x}`, s[i+1])
		}
	}
	b.WriteByte(']')
	return b.String()
}

// classSet is the set of a class written in the syntax of the regular expression
// package.
func classSet(class string) (runeSet, error) {
	re, err := syntax.Parse(class, syntax.ClassNL|syntax.PerlX|syntax.UnicodeGroups)
	if err != nil {
		return nil, err
	}
	return setOf(re), nil
}

// The Perl classes as they are in Unicode. What is in \w besides letters, marks,
// digits, connecting punctuation and the two joiners are letters in circles and
// squares.
const (
	wordClass = `\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9}` +
		`\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}`
	digitClass = `\p{Nd}`
	spaceClass = `\t-\r\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}`
)

// perlClass is what goes between the brackets for \d, \s and \w.
func perlClass(letter byte) string {
	switch letter | 0x20 {
	case 'd':
		return digitClass
	case 's':
		return spaceClass
	default:
		return wordClass
	}
}

// isWord reports whether \w matches r.
func isWord(r rune) bool {
	if r < 0x80 {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_'
	}
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc) ||
		r == 0x200c || r == 0x200d || r >= 0x24b6 && r <= 0x24e9 ||
		r >= 0x1f130 && r <= 0x1f149 || r >= 0x1f150 && r <= 0x1f169 || r >= 0x1f170 && r <= 0x1f189
}
