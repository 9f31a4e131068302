package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// words looks for commands and traps in the expansions of words.
func (c *scanner) words(d dirs, list ...*syntax.Word) {
	for _, w := range list {
		if w != nil {
			c.parts(d, w.Parts, false)
		}
	}
}

// parts is words for the parts of a word. quoted: they stand in double quotes or
// in a here-document.
func (c *scanner) parts(d dirs, list []syntax.WordPart, quoted bool) {
	for _, part := range list {
		switch p := part.(type) {
		case *syntax.Lit:
		case *syntax.SglQuoted:
		case *syntax.DblQuoted:
			if p.Dollar {
				c.opaque(`$"…" is translated and expanded again`)
			}
			c.parts(d, p.Parts, true)
		case *syntax.ParamExp:
			c.param(d, p, quoted)
		case *syntax.CmdSubst:
			c.substitution(d, p)
		case *syntax.ProcSubst:
			c.fed++ // of >( )
			substitution(c, p.Rparen, func() { c.list(d, p.Stmts) })
			c.fed--
		case *syntax.ArithmExp:
			c.arithmetic(d, p.X)
		case *syntax.ExtGlob:
			// Without extglob, which is off, bash reads "!(a)" as a command.
			c.opaque("it has an extended pattern, which bash may read as commands")
		default:
			c.opaque("it has an expansion that is not known")
		}
	}
}

// substitution scans the commands of $( ) or ` `.
func (c *scanner) substitution(d dirs, s *syntax.CmdSubst) {
	switch {
	case s.TempFile || s.ReplyVar:
		c.opaque("${ …; } is not the same in all versions of bash")
	case s.Backquotes:
		// bash takes all up to the next backquote and parses that by itself.
		raw := c.slice(s.Left.Offset()+1, s.Right.Offset())
		if strings.ContainsAny(raw, "\\`") || strings.Contains(raw, "<<") {
			c.opaque("it has quotes inside of backquotes")
			return
		}
		c.inner().script(raw, d)
	default:
		substitution(c, s.Right, func() { c.list(d, s.Stmts) })
	}
}

// substitution is c.nested for what bash writes anew before it runs it.
func substitution(c *scanner, end syntax.Pos, f func()) {
	if c.whole > 0 {
		c.nested(end, f)
		return
	}
	c.whole = end.Offset()
	c.nested(end, f)
	c.whole = 0
}

// nested runs f for what ends at end, within which its here-documents must end
// too. What is nested deeper than people nest is not looked at: each level has
// the text of all those below it.
func (c *scanner) nested(end syntax.Pos, f func()) {
	if c.level >= maxLevels {
		c.opaque("it nests more than can be judged")
		return
	}
	old := c.within
	c.within = end.Offset()
	c.level++
	f()
	c.level--
	c.within = old
}

// param judges an expansion of a parameter.
func (c *scanner) param(d dirs, p *syntax.ParamExp, quoted bool) {
	name := ""
	if p.Param != nil {
		name = p.Param.Value
	}
	if p.Excl {
		c.opaque("${!%s} expands what the variable's value names", name)
	}
	if p.Flags != nil || p.NestedParam != nil || p.Width || p.IsSet || len(p.Modifiers) > 0 {
		c.opaque("it has an expansion that is not known")
	}
	c.facts.arrays = c.facts.arrays || p.Index != nil
	if p.Index != nil && !c.fixedIndex(p.Index) {
		c.opaque("the subscript of %s is evaluated, and what is evaluated can run commands", name)
		c.arithmetic(d, p.Index)
	}
	if p.Slice != nil {
		c.arithmetic(d, p.Slice.Offset)
		c.arithmetic(d, p.Slice.Length)
	}
	if p.Repl != nil {
		c.operand(d, p.Repl.Orig, quoted)
		c.operand(d, p.Repl.With, quoted)
	}
	if p.Exp != nil {
		c.expansion(d, p, name, quoted)
	}
}

// expansion judges the operator of an expansion and its operand.
func (c *scanner) expansion(d dirs, p *syntax.ParamExp, name string, quoted bool) {
	switch p.Exp.Op {
	case syntax.OtherParamOps:
		if op := p.Exp.Word.Lit(); op != "Q" && op != "U" && op != "u" && op != "L" && op != "E" {
			c.opaque("${%s@%s} can run commands that the variable's value has", name, op)
		}
		return
	case syntax.AssignUnset, syntax.AssignUnsetOrNull:
		c.assigned(name)
	}
	c.operand(d, p.Exp.Word, quoted)
}

// operand judges the word of an expansion. Where the expansion stands in double
// quotes, bash and the parser do not agree on what a quote in it means; the
// parser also takes a process substitution there for text.
func (c *scanner) operand(d dirs, w *syntax.Word, quoted bool) {
	if w == nil {
		return
	}
	if text := c.slice(w.Pos().Offset(), w.End().Offset()); strings.Contains(text, "<(") || strings.Contains(text, ">(") {
		c.opaque("it has a process substitution in an expansion")
	}
	if quoted {
		for _, part := range w.Parts {
			switch part.(type) {
			case *syntax.SglQuoted, *syntax.DblQuoted:
				c.opaque("it has quotes in an expansion in quotes")
			}
		}
	}
	c.parts(d, w.Parts, quoted)
}

// fixedIndex reports whether a subscript is a number or stands for all.
func (c *scanner) fixedIndex(x syntax.ArithmExpr) bool {
	w, ok := x.(*syntax.Word)
	if !ok {
		return false
	}
	lit := w.Lit()
	return lit == "@" || lit == "*" || digits(lit)
}

// arithmetic judges an expression. A name in it stands for the value of a
// variable, which is evaluated in turn, subscripts and their substitutions
// included; only numbers are what they are.
func (c *scanner) arithmetic(d dirs, x syntax.ArithmExpr) {
	switch x := x.(type) {
	case nil:
	case *syntax.Word:
		if x == nil {
			return
		}
		if !digits(x.Lit()) && !c.word(x).number() {
			c.opaque("arithmetic evaluates the values of variables, which can run commands")
			c.leads(c.slice(x.Pos().Offset(), x.End().Offset()))
		}
		c.words(d, x)
	case *syntax.BinaryArithm:
		c.arithmetic(d, x.X)
		c.arithmetic(d, x.Y)
	case *syntax.UnaryArithm:
		c.arithmetic(d, x.X)
	case *syntax.ParenArithm:
		c.arithmetic(d, x.X)
	default:
		c.opaque("it has an expression that is not known")
	}
}
