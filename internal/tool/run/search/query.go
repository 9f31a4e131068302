package search

import (
	"errors"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"

	"github.com/toold/toold/internal/tool/run/root"
)

// Options say how a pattern is meant.
type Options struct {
	Literal    bool // plain text and no regular expression
	IgnoreCase bool
	Multiline  bool // a match may span lines, and the dot matches line breaks
	// CRLF: a line may end with a carriage return, which nothing but $ matches. Only
	// without Multiline.
	CRLF bool
}

// Query is a compiled pattern. It is read only and may be shared.
type Query struct {
	prog *syntax.Prog
	// spans: a match may span lines.
	spans bool
	crlf  bool // a carriage return at the end of a line is none of its text
	// need finds where a match can be; nil when it can be anywhere.
	need *literals
	// plain: what need finds is a match.
	plain bool
}

// maxProg bounds a compiled pattern, in instructions. Searching takes time in
// proportion to it and to the text, at worst.
const maxProg = 100_000

// errSize is worded like ripgrep's, so that the caller gets the same advice.
var errSize = &SyntaxError{Msg: "Compiled regex exceeds size limit."}

var errNewline = &SyntaxError{Msg: "the literal '\"\\n\"' is not allowed in a regex\n\n" +
	"Consider enabling multiline mode.\nWhen multiline mode is enabled, new line characters can be matched."}

// bytes is about what q takes of the memory, and each of the machines of a search
// beside its states.
func (q *Query) bytes() int64 { return int64(len(q.prog.Inst)) * instBytes }

// instBytes is what an instruction takes, and what the machines of all workers have
// of it.
const instBytes = 40 + Workers*48

// Hold takes the memory of q, until scratch is released. The error says that there
// is none.
func (q *Query) Hold(scratch *root.Scratch) error {
	if !scratch.Take(q.bytes()) {
		return errors.New(noScratch)
	}
	return nil
}

// Compile reads a pattern. The error is a *SyntaxError.
func Compile(pattern string, o Options) (*Query, error) {
	newline := o.Literal && strings.Contains(pattern, "\n")
	flags := syntax.ClassNL | syntax.PerlX | syntax.UnicodeGroups
	if o.IgnoreCase {
		flags |= syntax.FoldCase
	}
	if o.Multiline {
		flags |= syntax.DotNL
	}
	if o.Literal {
		flags |= syntax.Literal
	} else {
		var err error
		if pattern, newline, err = translate(pattern, o.IgnoreCase); err != nil {
			return nil, err
		}
	}
	if newline && !o.Multiline {
		return nil, errNewline
	}
	re, err := syntax.Parse(pattern, flags)
	if err != nil {
		return nil, parseError(err)
	}
	q := &Query{spans: o.Multiline && spansLines(re), crlf: o.CRLF && !o.Multiline}
	if !q.spans {
		if err := withoutNewline(re, q.crlf); err != nil {
			return nil, err
		}
	}
	if instructions(re) > maxProg {
		return nil, errSize
	}
	re = re.Simplify()
	if q.prog, err = syntax.Compile(re); err != nil || len(q.prog.Inst) > maxProg {
		return nil, errSize
	}
	if set, ok := required(re); ok {
		q.need = newLiterals(set)
		q.plain = !q.spans && re.Op == syntax.OpLiteral && len(set) == 1 && set[0].whole
	}
	return q, nil
}

// instructions is about what re is compiled to. Compiled first and counted then, a
// pattern of some kilobytes takes more memory than there is.
func instructions(re *syntax.Regexp) int {
	n := 1
	for _, sub := range re.Sub {
		n += instructions(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		n += len(re.Rune)
	case syntax.OpRepeat:
		n = 1 + (n-1)*max(re.Min, re.Max, 1)
	}
	return n
}

// parseError words what Go's parser says of a translated pattern.
func parseError(err error) error {
	e, ok := errors.AsType[*syntax.Error](err)
	if !ok {
		return &SyntaxError{Msg: err.Error()}
	}
	switch e.Code {
	case syntax.ErrLarge, syntax.ErrInvalidRepeatSize, syntax.ErrNestingDepth:
		return errSize
	default:
		return &SyntaxError{Msg: e.Code.String()}
	}
}

// spansLines reports whether a match can have a line break in it, or depends on
// where the text begins and ends.
func spansLines(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpAnyChar, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText:
		return true
	case syntax.OpLiteral:
		return slices.Contains(re.Rune, '\n')
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 {
			if re.Rune[i] <= '\n' && '\n' <= re.Rune[i+1] {
				return true
			}
		}
	}
	return slices.ContainsFunc(re.Sub, spansLines)
}

// withoutNewline takes the line break out of what re matches, and if crlf the carriage
// return.
func withoutNewline(re *syntax.Regexp, crlf bool) error {
	switch re.Op {
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		re.Op = syntax.OpAnyCharNotNL
		if crlf {
			re.Op, re.Rune = syntax.OpCharClass, runeSet{0, unicode.MaxRune}.minus(runeSet{'\n', '\n'}).minus(runeSet{'\r', '\r'})
		}
	case syntax.OpLiteral:
		if slices.Contains(re.Rune, '\n') {
			return errNewline
		}
	case syntax.OpCharClass:
		set := runeSet(re.Rune)
		if len(set) == 2 && set[0] == '\n' && set[1] == '\n' {
			return errNewline
		}
		set = set.minus(runeSet{'\n', '\n'})
		if crlf {
			set = set.minus(runeSet{'\r', '\r'})
		}
		re.Rune = set
	}
	for _, sub := range re.Sub {
		if err := withoutNewline(sub, crlf); err != nil {
			return err
		}
	}
	return nil
}

// need is one text of which a match must hold at least one.
type need struct {
	text  string // folded: in lower case, and ASCII
	fold  bool
	whole bool // the match is no more than it
}

const (
	// maxNeeds bounds how many texts are looked for at once.
	maxNeeds = 16
	// maxFolded bounds a text that is looked for in either case, in bytes: it is
	// compared from its beginning wherever it may be.
	maxFolded = 64
)

// required finds texts of which every match of re must hold at least one.
func required(re *syntax.Regexp) ([]need, bool) {
	switch re.Op {
	case syntax.OpLiteral:
		return literalNeed(re)
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpConcat:
		var best []need
		for _, sub := range re.Sub {
			if set, ok := required(sub); ok && worth(set) > worth(best) {
				best = set
			}
		}
		return partOf(best), best != nil
	case syntax.OpAlternate:
		var all []need
		for _, sub := range re.Sub {
			set, ok := required(sub)
			if all = append(all, set...); !ok || len(all) > maxNeeds {
				return nil, false
			}
		}
		return partOf(all), true
	}
	return nil, false
}

func partOf(set []need) []need {
	for i := range set {
		set[i].whole = false
	}
	return set
}

// worth is how much a set helps: by its shortest text, which hits most.
func worth(set []need) int {
	if len(set) == 0 {
		return -1
	}
	short := len(set[0].text)
	for _, n := range set {
		short = min(short, len(n.text))
	}
	return short*maxNeeds - len(set)
}

// literalNeed takes of a text that may be in either case the longest part that is
// ASCII and has no other forms than these two: K and S do, beyond ASCII.
func literalNeed(re *syntax.Regexp) ([]need, bool) {
	if re.Flags&syntax.FoldCase == 0 {
		return []need{{text: string(re.Rune), whole: true}}, len(re.Rune) > 0
	}
	best, from := "", 0
	for i := 0; i <= len(re.Rune); i++ {
		if i < len(re.Rune) && foldsInASCII(re.Rune[i]) {
			continue
		}
		if i-from > len(best) {
			best = strings.ToLower(string(re.Rune[from:i]))
		}
		from = i + 1
	}
	best = best[:min(len(best), maxFolded)] // ASCII
	return []need{{text: best, fold: true, whole: len(best) == len(re.Rune)}}, best != ""
}

func foldsInASCII(r rune) bool {
	if r > unicode.MaxASCII {
		return false
	}
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		if f > unicode.MaxASCII {
			return false
		}
	}
	return true
}
