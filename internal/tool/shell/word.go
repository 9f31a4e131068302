package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// word is a word of a command, as far as its text decides what bash makes of it.
type word struct {
	node       *syntax.Word
	text       string // as it is written
	start, end uint   // offsets of text
	// value is the word without quotes and escapes, up to the first thing that
	// is only known at run time; with fixed it is the whole word.
	value string
	fixed bool
	// pattern: from the end of value on, the word has wildcards or braces that
	// are not quoted, and no other expansion.
	pattern bool
	// many: it may become more than one word, or none.
	many bool
	// bare: neither quotes nor escapes nor expansions were used.
	bare bool
	// tilde: it begins with a "~" that stands for a home directory.
	tilde bool
}

// tildeHolds reports whether a word that is written so begins with a home directory: nothing
// up to its first slash is quoted, escaped or expanded, or the "~" is one as any other.
func tildeHolds(text string) bool {
	prefix, _, _ := strings.Cut(text, "/")
	return strings.HasPrefix(prefix, "~") && !strings.ContainsAny(prefix, "\\'\"$`*?[{")
}

// word reads a word of c's text.
func (c *scanner) word(n *syntax.Word) word {
	w := word{node: n, start: n.Pos().Offset(), end: n.End().Offset(), fixed: true, bare: true}
	w.text = c.slice(w.start, w.end)
	if lit := n.Lit(); lit != "" && !strings.ContainsAny(lit, "\\*?[{~") {
		w.value = lit
		return w
	}
	b := wordBuilder{class: strings.Contains(w.text, "]"), braces: strings.Contains(w.text, ",") || strings.Contains(w.text, "..")}
	for _, part := range n.Parts {
		b.part(part, false)
		if b.dynamic {
			break
		}
	}
	// A later part can still split the word, or make it vanish.
	for _, part := range n.Parts {
		lit, isLit := part.(*syntax.Lit)
		b.splits = b.splits || splits(part) || isLit && b.dynamic && strings.ContainsAny(lit.Value, "*?[{")
	}
	w.value, w.fixed, w.bare, w.tilde = b.text.String(), !b.dynamic && !b.special, !b.quoted && !b.dynamic, tildeHolds(w.text)
	w.pattern = b.special && !b.dynamic
	w.many = b.splits || b.special
	if b.special {
		w.value = w.value[:b.specialAt]
	}
	return w
}

// slice is part of the text; offsets that are none of it make the text opaque.
func (c *scanner) slice(from, to uint) string {
	if from > to || to > uint(len(c.src)) {
		c.opaque("it cannot be taken apart")
		return ""
	}
	return c.src[from:to]
}

// wordBuilder puts a word's value together.
type wordBuilder struct {
	// class and braces: a "[" may begin a set of characters, a "{" a list.
	class, braces bool

	text      strings.Builder
	dynamic   bool // the rest is only known at run time
	special   bool // has a wildcard or brace that is not quoted
	specialAt int
	quoted    bool
	splits    bool
}

func (b *wordBuilder) part(part syntax.WordPart, inQuotes bool) {
	switch p := part.(type) {
	case *syntax.Lit:
		if inQuotes {
			b.quotedLit(p.Value)
		} else {
			b.lit(p.Value)
		}
	case *syntax.SglQuoted:
		b.quoted = true
		if p.Dollar {
			b.dynamic = true // its escapes are not read here
			return
		}
		b.text.WriteString(p.Value)
	case *syntax.DblQuoted:
		b.quoted = true
		if p.Dollar {
			b.dynamic = true
			return
		}
		for _, inner := range p.Parts {
			if b.part(inner, true); b.dynamic {
				return
			}
		}
	default:
		b.dynamic = true
	}
}

// lit takes text that stands outside of quotes.
func (b *wordBuilder) lit(s string) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			b.quoted = true
			if i++; i < len(s) {
				b.text.WriteByte(s[i])
			}
			continue
		case '*', '?', '[', '{':
			if !b.special && (s[i] != '[' || b.class) && (s[i] != '{' || b.braces) {
				b.special, b.specialAt = true, b.text.Len()
			}
		}
		b.text.WriteByte(s[i])
	}
}

// quotedLit takes text that stands in double quotes.
func (b *wordBuilder) quotedLit(s string) {
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			switch s[i+1] {
			case '$', '`', '"', '\\':
				i++
			}
		}
		b.text.WriteByte(s[i])
	}
}

// splits reports whether a part may become several words, or none.
func splits(part syntax.WordPart) bool {
	switch p := part.(type) {
	case *syntax.Lit, *syntax.SglQuoted:
		return false
	case *syntax.DblQuoted:
		for _, inner := range p.Parts {
			if pe, ok := inner.(*syntax.ParamExp); ok && listParam(pe) {
				return true
			}
		}
		return false
	case *syntax.ParamExp:
		return !countParam(p)
	}
	return true
}

// listParam reports whether p becomes several words even in double quotes.
func listParam(p *syntax.ParamExp) bool {
	return p.Param == nil || p.Param.Value == "@" || p.Index != nil || p.Excl || p.Names != 0
}

// countParam reports whether p is a number that the shell itself has made, which
// is one word also without quotes.
func countParam(p *syntax.ParamExp) bool {
	if p.Param == nil || p.Excl || p.Index != nil || p.Slice != nil || p.Repl != nil || p.Exp != nil {
		return false
	}
	if p.Length {
		return true
	}
	switch p.Param.Value {
	case "?", "#", "$":
		return true
	}
	return false
}

// number reports whether w is a decimal number, or a parameter that always is.
func (w word) number() bool {
	if w.fixed {
		return digits(strings.TrimPrefix(w.value, "-"))
	}
	if len(w.node.Parts) != 1 {
		return false
	}
	part := w.node.Parts[0]
	if q, ok := part.(*syntax.DblQuoted); ok && len(q.Parts) == 1 {
		part = q.Parts[0]
	}
	p, ok := part.(*syntax.ParamExp)
	return ok && countParam(p)
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// isPipe reports whether the word is <(COMMANDS) and nothing else: a pipe that the shell
// makes, whose commands are looked at by themselves.
func (w word) isPipe() bool {
	if w.node == nil || len(w.node.Parts) != 1 {
		return false
	}
	s, ok := w.node.Parts[0].(*syntax.ProcSubst)
	return ok && s.Op == syntax.CmdIn
}
