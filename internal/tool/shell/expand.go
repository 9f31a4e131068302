package shell

import (
	"cmp"
	"regexp"
	"slices"
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
			c.nested(p.Rparen, func() { c.list(d, p.Stmts) })
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
		c.nested(s.Right, func() { c.list(d, s.Stmts) })
	}
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
		c.facts.wild = true
		c.assigned(name)
		if p.Exp.Word != nil {
			later(c, d, p.Exp.Word)
		}
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

// What programs print that only list names, or numbers. Those that print names as somebody has given them, such as
// find and ls, are not among them: a name may have a line break and a path behind it. Git quotes such names.

// printedBy is what a substitution may give, beside nothing.
func printedBy(c *scanner, d dirs, s *syntax.CmdSubst) values {
	if s.TempFile || s.ReplyVar || len(s.Stmts) != 1 {
		return nil
	}
	return linesOf(c, d, s.Stmts[0])
}

// linesOf are the lines that a statement may print.
func linesOf(c *scanner, d dirs, s *syntax.Stmt) values {
	if s.Background || s.Negated || s.Coprocess || slices.ContainsFunc(s.Redirs, func(r *syntax.Redirect) bool {
		return r.N == nil || r.N.Value != "2" || r.Word.Lit() != "/dev/null"
	}) {
		return nil
	}
	switch cmd := s.Cmd.(type) {
	case *syntax.CallExpr:
		if len(cmd.Assigns) == 0 {
			return prints(c, d, cmd.Args)
		}
	case *syntax.BinaryCmd:
		switch cmd.Op {
		case syntax.Pipe:
			return filteredBy(c, d, linesOf(c, d, cmd.X), cmd.Y)
		case syntax.AndStmt:
			to, is := cmd.X.Cmd.(*syntax.CallExpr)
			if is && len(to.Args) == 2 && to.Args[0].Lit() == "cd" && len(to.Assigns) == 0 {
				in, known := entered(c, d, c.word(to.Args[1]))
				if known {
					return linesOf(c, in, cmd.Y)
				}
			}
		}
	}
	return nil
}

// argument is one of a program whose output is known.
type argument struct {
	option string // "" for an operand
	values values
}

// argumentsOf are those of a program; nil where one is not known.
func argumentsOf(c *scanner, d dirs, list []*syntax.Word) []argument {
	all := make([]argument, 0, len(list))
	operands := false
	for _, n := range list {
		v := evaluate(c, d, n, asWord)
		if v == nil {
			return nil
		}
		v = v.each(func(s string) values {
			if strings.Contains(s, gap) {
				return nil
			}
			return values{sure(s)}
		})
		if v == nil {
			return nil
		}
		switch first := v[0]; {
		case !operands && len(v) == 1 && first == "--":
			operands = true
		case !operands && strings.HasPrefix(first, "-") && len(first) > 1:
			if len(v) > 1 || strings.ContainsAny(first, loose+startDir) {
				return nil
			}
			all = append(all, argument{option: first})
		default:
			all = append(all, argument{values: v})
		}
	}
	return all
}

// printer says what a program prints.
type printer struct {
	// options are those with which it prints no more than that.
	options *regexp.Regexp
	// lines are what it prints, of its operands.
	lines func(c *scanner, d dirs, args []argument) values
}

// constant has one answer without operands.
func constant(options string, v ...string) printer {
	return printer{regexp.MustCompile("^(" + options + ")$"), func(_ *scanner, _ dirs, args []argument) values {
		if len(operands(args)) > 0 {
			return nil
		}
		return v
	}}
}

func operands(args []argument) []values {
	var all []values
	for _, a := range args {
		if a.option == "" {
			all = append(all, a.values)
		}
	}
	return all
}

// has reports whether there is an option that is name, or has its letter.
func has(args []argument, name string) bool {
	return slices.ContainsFunc(args, func(a argument) bool {
		return a.option == name || len(name) == 2 && len(a.option) > 1 && a.option[1] != '-' && strings.Contains(a.option, name[1:])
	})
}

// printers are the programs whose output is known, by name; those of git with its kind.
var printers = map[string]printer{
	"whoami":   constant("", anyWord),
	"nproc":    constant("--all", anyWord),
	"hostname": constant("-s", anyWord),
	"arch":     constant("", anyWord),
	"uname":    constant("-[smrn]", anyWord),
	"id":       constant("-[ugn]+", anyWord),
	"pwd": {regexp.MustCompile(`^-[LP]$`), func(_ *scanner, d dirs, args []argument) values {
		return d.here()
	}},
	"seq": {regexp.MustCompile(`^$`), func(_ *scanner, _ dirs, args []argument) values {
		for _, v := range operands(args) {
			if slices.ContainsFunc(v, func(s string) bool { return s != anyWord && !digits(s) }) {
				return nil
			}
		}
		return values{anyWord}
	}},
	"date": {regexp.MustCompile(`^-[u]$`), func(_ *scanner, _ dirs, args []argument) values {
		if v := operands(args); len(v) == 1 && len(v[0]) == 1 && dateFormat.MatchString(v[0][0]) {
			return values{anyWord}
		}
		return nil
	}},
	"mktemp":       {regexp.MustCompile(`^(-[dqt]+|--directory|--quiet)$`), temporary},
	"basename":     {regexp.MustCompile(`^$`), baseNames},
	"dirname":      {regexp.MustCompile(`^$`), directories},
	"git ls-files": {regexp.MustCompile(`^-(m|o|c|-modified|-others|-cached|-exclude-standard)$`), tracked},
	"git diff": {regexp.MustCompile(`^-(-name-only|-cached|-staged|-diff-filter=\w+)$`), func(c *scanner, d dirs, args []argument) values {
		if !has(args, "--name-only") {
			return nil
		}
		return tracked(c, d, args)
	}},
	"git branch":   constant("--show-current", anyPath),
	"git describe": constant("--tags|--always|--abbrev=\\d+", anyPath),
	"git rev-parse": {regexp.MustCompile(`^--(short(=\d+)?|abbrev-ref)$`), func(c *scanner, d dirs, args []argument) values {
		v := operands(args)
		if len(v) != 1 || len(v[0]) != 1 || v[0][0] != "HEAD" {
			return nil
		}
		return values{anyPath}
	}},
	"go list": {regexp.MustCompile(`^$`), tracked},
	"wc":      constant("-[lwc]+", anyWord),
}

// dateFormat are formats of date without a slash in what they give.
var dateFormat = regexp.MustCompile(`^\+(%[YmdHMSsjyNFTu]|[A-Za-z0-9_:-])+$`)

// prints are the lines that a program prints that is called so.
func prints(c *scanner, d dirs, words []*syntax.Word) values {
	if len(words) == 0 {
		return nil
	}
	name, rest := words[0].Lit(), words[1:]
	if (name == "git" || name == "go") && len(rest) > 0 {
		name, rest = name+" "+rest[0].Lit(), rest[1:]
	}
	p, known := printers[name]
	args := argumentsOf(c, d, rest)
	if !known || args == nil {
		return nil
	}
	for _, a := range args {
		if a.option != "" && !p.options.MatchString(a.option) {
			return nil
		}
	}
	return p.lines(c, d, args)
}

// inLines is what each line has of what is printed. A name may be several lines.
func inLines(printed values) values {
	if slices.ContainsFunc(printed, func(s string) bool { return strings.ContainsAny(s, anyName+wild) }) {
		return nil
	}
	return printed
}

// filters are programs that print some of the lines that they read, by the options with which they
// do; grep has one operand more.
var filters = map[string]*regexp.Regexp{
	"head": regexp.MustCompile(`^-(\d+|n\d+)$`),
	"tail": regexp.MustCompile(`^-(\d+|n\d+)$`),
	"sort": regexp.MustCompile(`^-[urnVfhz]+$`),
	"uniq": regexp.MustCompile(`^$`),
	"tac":  regexp.MustCompile(`^$`),
	"grep": regexp.MustCompile(`^-[vEiFwxe]+$`),
}

// filtered is what a program prints that reads these lines.
func filtered(c *scanner, d dirs, lines values, words []*syntax.Word) values {
	if len(words) == 0 {
		return nil
	}
	name, args := words[0].Lit(), argumentsOf(c, d, words[1:])
	options, is := filters[name]
	if !is {
		if name == "wc" {
			return prints(c, d, words) // a number
		}
		return nil
	}
	files := 0
	if name == "grep" {
		files--
	}
	for i, a := range args {
		switch {
		case a.option == "" && i > 0 && args[i-1].option == "-n" && len(a.values) == 1 && digits(a.values[0]):
		case a.option == "":
			files++
		case a.option != "-n" && !options.MatchString(a.option):
			return nil
		}
	}
	if files > 0 || args == nil {
		return nil
	}
	return lines
}

// filteredBy is what s prints of the lines that it reads.
func filteredBy(c *scanner, d dirs, lines values, s *syntax.Stmt) values {
	if lines = inLines(lines); lines == nil {
		return nil
	}
	if filter, is := s.Cmd.(*syntax.CallExpr); is && len(filter.Assigns) == 0 && len(s.Redirs) == 0 {
		return filtered(c, d, lines, filter.Args)
	}
	return nil
}

// named are the names that a word stands for once its wildcards are expanded.
func named(s string) values {
	parts := strings.Split(s, "/")
	for i, part := range parts {
		switch {
		case !strings.Contains(part, wild):
		case strings.HasPrefix(part, "."):
			return nil
		default:
			parts[i] = anyName
		}
	}
	return values{strings.Join(parts, "/")}
}

// temporary is what mktemp makes.
func temporary(c *scanner, d dirs, args []argument) values {
	v := operands(args)
	in := valueOf(c, d, "TMPDIR")
	switch {
	case len(v) > 1:
		return nil
	case len(v) == 0:
		return in.then(values{"/tmp." + anyWord})
	}
	return v[0].each(func(s string) values {
		i := strings.LastIndex(s, "XXX")
		if i < 0 || strings.ContainsAny(s[i:], "/"+loose) || strings.ContainsAny(s, wild) {
			return nil
		}
		s = strings.TrimRight(s[:i], "X") + anyWord + strings.TrimLeft(s[i:], "X")
		if has(args, "-t") {
			return in.then(values{"/" + s})
		}
		return values{s}
	})
}

func baseNames(_ *scanner, _ dirs, args []argument) values {
	v := operands(args)
	if len(v) == 0 || len(v) > 2 {
		return nil
	}
	return v[0].each(named).each(func(s string) values {
		s = strings.TrimRight(s, "/")
		s = s[strings.LastIndexByte(s, '/')+1:]
		if s == "" || strings.ContainsAny(s, anyPath+startDir) {
			s = anyName
		}
		if len(v) == 1 {
			return values{s}
		}
		return v[1].each(func(suffix string) values {
			if strings.ContainsAny(suffix, loose+startDir) {
				return nil
			}
			return trimmed(s, syntax.RemSmallSuffix, word{value: suffix, text: suffix, fixed: true})
		})
	})
}

func directories(_ *scanner, _ dirs, args []argument) values {
	v := operands(args)
	if len(v) != 1 {
		return nil
	}
	return v[0].each(named).each(func(s string) values {
		switch at := strings.LastIndexByte(s, '/'); {
		case s == "", strings.HasSuffix(s, "/"), strings.HasSuffix(s, startDir):
			return nil
		case strings.HasSuffix(s, anyPath):
			return values{s, cmp.Or(strings.TrimSuffix(s[:at+1], "/"), ".")}
		case at < 0:
			return values{"."}
		case at == 0:
			return values{"/"}
		default:
			return values{s[:at]}
		}
	})
}

// tracked is what git and go list of what they know: below where they are.
func tracked(_ *scanner, _ dirs, args []argument) values {
	for _, v := range operands(args) {
		for _, s := range v {
			if strings.HasPrefix(s, "/") || strings.HasPrefix(s, ":") || strings.HasPrefix(s, startDir) || slices.Contains(strings.Split(s, "/"), "..") {
				return nil
			}
		}
	}
	return values{anyPath}
}
