package shell

import (
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
			c.opaque("%s", r.Why)
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
	c.heredocLines, c.within, c.whole = make(map[uint]bool), 0, 0
	if travels(c.src) && mayLoop(c.src) {
		c.moving = movingLoops(file)
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
	c.redirects(d, s.Redirs)
	if s.Disown || s.Coprocess {
		c.opaque("it uses a coprocess")
	}
	if call, is := s.Cmd.(*syntax.CallExpr); is || s.Cmd == nil {
		ok, bad = c.call(d, s, call)
	} else if slices.ContainsFunc(s.Redirs, feeds) {
		c.fed++
		ok, bad = c.compound(d, s)
		c.fed--
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
		d = c.loop(d, cmd, cmd.Cond, cmd.Do)
	case *syntax.ForClause:
		d = c.forLoop(d, cmd)
	case *syntax.CaseClause:
		d = c.cases(d, cmd)
	case *syntax.TestClause:
		c.test(d, cmd.X)
	case *syntax.DeclClause:
		c.declaration(d, s, cmd)
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
			c.stmt(d, b.Y)
			c.fed--
			ok, bad = d, d
		}
	}
	return ok, bad
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

// loop scans the parts of the loop n. What moves in a loop may be anywhere from
// its second round on.
func (c *scanner) loop(d dirs, n syntax.Node, parts ...[]*syntax.Stmt) dirs {
	if c.moving[n] {
		d = lostDirs
	}
	end := d // it may also run not at all
	for _, list := range parts {
		d = c.list(d, list)
	}
	return d.or(end)
}

// mayLoop reports whether a text may have a loop that movingLoops looks for.
func mayLoop(text string) bool {
	return slices.ContainsFunc([]string{"for", "while", "until", "select"}, func(word string) bool { return strings.Contains(text, word) })
}

// movingLoops are the loops of a file that have a command which changes the
// directory.
func movingLoops(file *syntax.File) map[syntax.Node]bool {
	moving := make(map[syntax.Node]bool)
	var open []syntax.Node // those that the walk is in; loops, and nil for others
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case nil:
			open = open[:len(open)-1]
			return true
		case *syntax.WhileClause, *syntax.ForClause:
			open = append(open, n)
			return true
		case *syntax.CallExpr:
			if moves(n) {
				// Those around a loop that is known are known too.
				for i := len(open) - 1; i >= 0 && !moving[open[i]]; i-- {
					if open[i] != nil {
						moving[open[i]] = true
					}
				}
			}
		}
		open = append(open, nil)
		return true
	})
	return moving
}

// moves reports whether a command changes the directory. One that does and is
// spelled in another way is opaque.
func moves(call *syntax.CallExpr) bool {
	return slices.ContainsFunc(call.Args, func(w *syntax.Word) bool {
		return slices.Contains(movers, w.Lit())
	})
}

func (c *scanner) forLoop(d dirs, cmd *syntax.ForClause) dirs {
	switch l := cmd.Loop.(type) {
	case *syntax.WordIter:
		c.words(d, l.Items...)
		for _, item := range l.Items {
			listing(c, d, c.word(item))
		}
		c.assigned(l.Name.Value)
	case *syntax.CStyleLoop:
		c.arithmetic(d, l.Init)
		c.arithmetic(d, l.Cond)
		c.arithmetic(d, l.Post)
	}
	if cmd.Select {
		c.opaque("select sets a variable to what it reads")
	}
	return c.loop(d, cmd, cmd.Do)
}

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
