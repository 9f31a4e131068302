package shell

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// read scans a whole text as the shell of that name reads it, in one of the
// directories d.
func (c *scanner) read(shell, text string, d dirs) {
	switch shell {
	case "bash", "rbash":
		c.posix = false
		c.script(text, d)
		return
	case "sh", "dash", "ash":
	default:
		c.opaque("%s reads scripts in its own way", shorten(shell))
	}
	// It may be bash, or know no more than POSIX: both readings are listed, and
	// they must be the same.
	if c.facts.twice++; c.facts.twice > maxTwice {
		c.opaque("it has more scripts than can be judged")
		return
	}
	bash, posix := c.apart(false), c.apart(true)
	bash.script(text, d)
	posix.script(text, d)
	for _, r := range []*Result{bash.out, posix.out} {
		if r.Opaque {
			c.unclear("%s", r.Why)
		}
	}
	if same := bash.out.lists(posix.out); !same {
		c.opaque("bash and %s read it differently", shorten(shell))
		c.add(posix.out)
	}
	c.add(bash.out)
}

// apart is a scanner for another reading of c's text, with a Result of its own.
func (c *scanner) apart(posix bool) *scanner {
	in := *c
	in.out, in.posix = &Result{}, posix
	return &in
}

// lists reports whether r and s list the same.
func (r *Result) lists(s *Result) bool {
	return slices.EqualFunc(r.Commands, s.Commands, Command.same) && slices.Equal(r.Writes, s.Writes) && slices.Equal(r.Paths, s.Paths)
}

// script scans a whole text in the language that c.posix says.
func (c *scanner) script(text string, d dirs) {
	if c.depth > maxDepth {
		c.opaque("it has scripts in scripts beyond what can be judged")
		return
	}
	if why, ok := readable(text); !ok {
		c.opaque("%s", why)
		return
	}
	c.src = text
	language := syntax.LangBash
	if c.posix {
		language = syntax.LangPOSIX
	}
	file, err := syntax.NewParser(syntax.Variant(language), syntax.KeepComments(true)).Parse(strings.NewReader(c.src), "")
	if err != nil {
		// bash runs the lines before the one that it cannot read.
		c.opaque("it cannot be parsed: %s", err)
		if file == nil {
			return
		}
	}
	c.comments(file)
	c.heredocLines, c.within = make(map[uint]bool), 0
	if mayLoop(c.src) && (travels(c.src) || strings.Contains(c.src, "$")) {
		c.loops = loopsOf(file)
	}
	c.lines(d, file.Stmts)
}

// comments checks that bash sees a comment wherever the parser saw one, and no
// other. Directly after a bracket or a quote that is up to what it closes: ")"
// may end a command or be in the middle of a word, and they do not always agree.
func (c *scanner) comments(file *syntax.File) {
	if !strings.Contains(c.src, "#") {
		return
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Comment:
			at := n.Hash.Offset()
			if at > 0 && !strings.ContainsRune(" \t\n;&|", rune(c.src[at-1])) || strings.HasSuffix(n.Text, "\\") || strings.Contains(n.Text, "\n") {
				c.opaque("it has a comment that bash may not take for one")
			}
		case *syntax.Word:
			for _, part := range n.Parts {
				if at := part.Pos().Offset(); at > 0 && at < uint(len(c.src)) && c.src[at] == '#' && c.src[at-1] == ')' {
					c.opaque("it has a # after a bracket, which bash may take for a comment")
				}
			}
		}
		return true
	})
}

// list scans statements that run one after the other, and says where the shell
// may be then.
func (c *scanner) list(d dirs, list []*syntax.Stmt) dirs {
	for _, s := range list {
		ok, bad := c.stmt(d, s)
		d = ok.or(bad)
	}
	return d
}

// stmt scans one statement. It says in which directories the shell may be if
// the statement succeeds, and if it fails.
func (c *scanner) stmt(d dirs, s *syntax.Stmt) (ok, bad dirs) {
	c.redirects(beside(d, s), s.Redirs)
	if s.Disown || s.Coprocess {
		c.opaque("it uses a coprocess")
	}
	if call, is := s.Cmd.(*syntax.CallExpr); is || s.Cmd == nil {
		ok, bad = c.call(d, s, call)
	} else if slices.ContainsFunc(s.Redirs, feeds) {
		old := c.piped
		c.piped = nil
		c.fed++
		ok, bad = c.compound(d, s)
		c.fed--
		c.piped = old
	} else {
		ok, bad = c.compound(d, s)
	}
	if len(s.Redirs) > 0 {
		bad = bad.or(d) // one that fails keeps it from running, also "exit"
	}
	if s.Background {
		return d, d
	}
	if s.Negated {
		ok, bad = bad, ok
	}
	return ok, bad
}

// beside is d without the variables that s sets: whether they have their values when
// redirections are expanded differs.
func beside(d dirs, s *syntax.Stmt) dirs {
	if call, is := s.Cmd.(*syntax.CallExpr); is && len(s.Redirs) > 0 {
		for _, a := range call.Assigns {
			if a.Name != nil {
				d = d.unset(a.Name.Value)
			}
		}
	}
	return d
}

// compound scans what is no simple command.
func (c *scanner) compound(d dirs, s *syntax.Stmt) (ok, bad dirs) {
	switch cmd := s.Cmd.(type) {
	case *syntax.BinaryCmd:
		return c.binary(d, cmd)
	case *syntax.Block:
		d = c.list(d, cmd.Stmts)
	case *syntax.Subshell:
		c.nested(cmd.Rparen, func() { c.list(d, cmd.Stmts) })
	case *syntax.IfClause:
		d = c.branches(d, cmd)
	case *syntax.WhileClause:
		d = c.loop(d, cmd, nil, cmd.Cond, cmd.Do)
	case *syntax.ForClause:
		d = c.forLoop(d, cmd)
	case *syntax.CaseClause:
		d = c.cases(d, cmd)
	case *syntax.TestClause:
		c.test(d, cmd.X)
	case *syntax.DeclClause:
		c.declaration(d, s, cmd)
		for _, a := range cmd.Args {
			if a.Name != nil {
				d = d.unset(a.Name.Value)
			}
		}
	case *syntax.TimeClause:
		if cmd.Stmt != nil {
			return c.stmt(d, cmd.Stmt)
		}
	case *syntax.ArithmCmd:
		c.arithmetic(d, cmd.X)
	case *syntax.FuncDecl:
		name := ""
		if cmd.Name != nil {
			name = cmd.Name.Value
		}
		c.opaque("it defines the function %s, which then runs instead of the command of that name", name)
		c.stmt(lostDirs, cmd.Body)
	case *syntax.LetClause:
		c.opaque("let evaluates the values of variables, which can run commands")
		for _, x := range cmd.Exprs {
			c.arithmetic(d, x)
		}
	case *syntax.CoprocClause:
		c.opaque("it uses a coprocess")
		c.stmt(d, cmd.Stmt)
	default:
		c.opaque("it has a command that is not known")
	}
	return d, d
}

// binary scans a && b, a || b and a | b. The sides of a pipe are subshells. A
// long chain is a tree that leans to the left, so that side is walked without
// recursion.
func (c *scanner) binary(d dirs, cmd *syntax.BinaryCmd) (ok, bad dirs) {
	chain := []*syntax.BinaryCmd{cmd}
	first := cmd.X
	for {
		b, is := first.Cmd.(*syntax.BinaryCmd)
		if !is || len(first.Redirs) > 0 || first.Negated || first.Background {
			break
		}
		chain = append(chain, b)
		first = b.X
	}
	ok, bad = c.stmt(d, first)
	old, lines := c.piped, piping(c, d, first, chain[len(chain)-1].Op)
	defer func() { c.piped = old }()
	for _, b := range slices.Backward(chain) {
		switch b.Op {
		case syntax.AndStmt:
			ok2, bad2 := c.stmt(ok, b.Y)
			ok, bad = ok2, bad.or(bad2)
		case syntax.OrStmt:
			ok2, bad2 := c.stmt(bad, b.Y)
			ok, bad = ok.or(ok2), bad2
		default:
			if _, is := b.Y.Cmd.(*syntax.TimeClause); is {
				c.opaque("time in a pipe is a program") // and a keyword elsewhere
			}
			if b.Op == syntax.PipeAll {
				c.facts.duplicate(2, 1)
			}
			c.fed++
			c.piped = lines
			c.stmt(d, b.Y)
			c.fed--
			if lines = nil; c.piped != nil && b.Op == syntax.Pipe {
				lines = filteredBy(c, d, c.piped, b.Y)
			}
			ok, bad = d, d
		}
	}
	return ok, bad
}

// piping are the lines that what stands behind a pipe reads from s, where something there looks at
// them.
func piping(c *scanner, d dirs, s *syntax.Stmt, op syntax.BinCmdOperator) values {
	if op != syntax.Pipe || c.facts.unknown || !strings.Contains(c.src, "read") && !strings.Contains(c.src, "xargs") {
		return nil
	}
	return inLines(linesOf(c, d, s))
}

func (c *scanner) branches(d dirs, cmd *syntax.IfClause) dirs {
	end := noDirs
	for ; cmd != nil; cmd = cmd.Else {
		yes, no := d, noDirs // of an else
		if n := len(cmd.Cond); n > 0 {
			yes, no = c.stmt(c.list(d, cmd.Cond[:n-1]), cmd.Cond[n-1])
		}
		end = end.or(c.list(yes, cmd.Then))
		d = no
	}
	return end.or(d)
}

// loop scans the parts of the loop n, each of whose rounds begins with what each makes of a place;
// nil makes nothing. What moves in a loop may be anywhere from its second round on, and what it
// sets may be anything.
func (c *scanner) loop(d dirs, n syntax.Node, each func(dirs) dirs, parts ...[]*syntax.Stmt) dirs {
	l := c.loops[n]
	if l.moves {
		d = d.elsewhere().unset("OLDPWD", startDir+pushed)
	}
	end := d // it may also run not at all
	if d = d.unset(slices.Collect(maps.Keys(l.sets))...); each != nil {
		d = each(d)
	}
	for _, list := range parts {
		d = c.list(d, list)
	}
	return d.or(end)
}

// mayLoop reports whether a text may have a loop that loopsOf looks for.
func mayLoop(text string) bool {
	return slices.ContainsFunc([]string{"for", "while", "until", "select"}, func(word string) bool { return strings.Contains(text, word) })
}

// loopFacts are what a loop may do.
type loopFacts struct {
	moves bool            // change the directory
	sets  map[string]bool // variables
}

// loopsOf are the loops of a file.
func loopsOf(file *syntax.File) map[syntax.Node]loopFacts {
	loops := make(map[syntax.Node]loopFacts)
	var open []syntax.Node // those that the walk is in; loops, subshells, and nil for others
	// inner has f note something of the loops around, from the innermost on, until one has it.
	inner := func(f func(*loopFacts) (has bool)) {
		for _, n := range slices.Backward(open) {
			if n == nil {
				continue
			}
			l, loop := loops[n]
			if !loop || f(&l) {
				return // what a subshell does stays in there
			}
			loops[n] = l
		}
	}
	sets := func(name string) {
		inner(func(l *loopFacts) bool {
			has := l.sets[name]
			if l.sets == nil {
				l.sets = make(map[string]bool)
			}
			l.sets[name] = true
			return has
		})
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case nil:
			open = open[:len(open)-1]
			return true
		case *syntax.WhileClause, *syntax.ForClause:
			loops[n] = loopFacts{}
			open = append(open, n)
			return true
		case *syntax.Subshell, *syntax.CmdSubst, *syntax.ProcSubst:
			open = append(open, n)
			return true
		case *syntax.WordIter:
			sets(n.Name.Value)
		case *syntax.Assign:
			if n.Name != nil {
				sets(n.Name.Value)
			}
		case *syntax.CallExpr:
			if moves(n) {
				inner(func(l *loopFacts) bool { has := l.moves; l.moves = true; return has })
			}
			if slices.ContainsFunc(n.Args, func(w *syntax.Word) bool { return w.Lit() == "read" }) {
				for _, w := range n.Args {
					sets(w.Lit())
				}
			}
		}
		open = append(open, nil)
		return true
	})
	return loops
}

// moves reports whether a command changes the directory. One that does and is
// spelled in another way is opaque.
func moves(call *syntax.CallExpr) bool {
	return slices.ContainsFunc(call.Args, func(w *syntax.Word) bool {
		return slices.Contains(movers, w.Lit())
	})
}

func (c *scanner) forLoop(d dirs, cmd *syntax.ForClause) dirs {
	var each func(dirs) dirs
	switch l := cmd.Loop.(type) {
	case *syntax.WordIter:
		c.words(d, l.Items...)
		c.assigned(l.Name.Value)
		v := itemsOf(c, d, l)
		each = func(d dirs) dirs { return d.set(l.Name.Value, v) }
	case *syntax.CStyleLoop:
		c.arithmetic(d, l.Init)
		c.arithmetic(d, l.Cond)
		c.arithmetic(d, l.Post)
	}
	if cmd.Select {
		c.opaque("select sets a variable to what it reads")
	}
	return c.loop(d, cmd, each, cmd.Do)
}

// itemsOf are what the variable of a loop gets.
func itemsOf(c *scanner, d dirs, l *syntax.WordIter) values {
	for _, n := range l.Items {
		searches(c, d, c.word(n))
		later(c, d, n)
	}
	if c.facts.unknown || len(l.Items) == 0 {
		return nil
	}
	all := values{}
	for _, n := range l.Items {
		v := evaluate(c, d, n, asWord)
		if numbers.MatchString(n.Lit()) {
			v = values{anyWord}
		}
		all = all.or(v.each(func(s string) values {
			fields := values{}
			for f := range strings.SplitSeq(s, gap) {
				fields = fields.or(named(f)...)
			}
			return fields
		})...)
		if v == nil || all == nil {
			return nil
		}
	}
	return all
}

// numbers are lists of numbers in braces.
var numbers = regexp.MustCompile(`^\{\d+\.\.\d+\}$`)

func (c *scanner) cases(d dirs, cmd *syntax.CaseClause) dirs {
	c.words(d, cmd.Word)
	end := d
	for _, item := range cmd.Items {
		c.words(d, item.Patterns...)
		// ";&" goes on with the next list.
		end = end.or(c.list(end, item.Stmts))
	}
	return end
}

// test judges [[ ]].
func (c *scanner) test(d dirs, x syntax.TestExpr) {
	switch x := x.(type) {
	case *syntax.Word:
		c.words(d, x)
	case *syntax.ParenTest:
		c.test(d, x.X)
	case *syntax.UnaryTest:
		if x.Op == syntax.TsVarSet || x.Op == syntax.TsRefVar {
			c.opaque("%s evaluates subscripts, which can run commands", x.Op)
		}
		c.test(d, x.X)
	case *syntax.BinaryTest:
		c.binaryTest(d, x)
	default:
		c.opaque("it has a test that is not known")
	}
}

func (c *scanner) binaryTest(d dirs, x *syntax.BinaryTest) {
	switch {
	case numeric(x.Op):
		for _, side := range []syntax.TestExpr{x.X, x.Y} {
			if w, ok := side.(*syntax.Word); !ok || !c.word(w).number() {
				c.opaque("%s evaluates the values of variables, which can run commands", x.Op)
			}
		}
	case x.Op == syntax.TsReMatch:
		c.opaque("=~ has quoting rules of its own")
	}
	c.test(d, x.X)
	c.test(d, x.Y)
}

// numeric reports whether a test evaluates both of its sides.
func numeric(op syntax.BinTestOperator) bool {
	switch op {
	case syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr:
		return true
	}
	return false
}
