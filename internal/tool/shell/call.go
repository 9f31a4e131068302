package shell

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/toold/toold/internal/plain"
)

// call is a simple command while it is judged.
type call struct {
	args  []word // the name first; for wrapped commands, from theirs on
	name  string // what is run, of a program of the system without its directory; known once run has begun
	end   uint   // offset of the end of the text, redirections included
	dirs  dirs
	redir string // the redirections as they are written, " >x 2>&1"
	fed   bool   // it is given input, by a redirection
	// more: further arguments, which are not in the text, are added at run time.
	more bool
	// assigns: variables are set for it, by the shell or by env, other than prefixed.
	assigns bool
	// variables are those that are set for it, in front, with a blank behind each, where all are harmless.
	variables string
	// outer are the variables that what runs it is given, as one would write them; sets those together with its own.
	outer, sets []string
	// anew: its environment, or the number of shells in it, is not that of this shell.
	anew bool
	// code is the number of the argument that is a script which is scanned; 0 for none.
	code int
	// told: no words are files but those that look like paths or that options name.
	told bool
	// homeless: HOME may be another one, or none.
	homeless bool
}

// call scans a simple command: s with its redirections, n with its words (nil
// where there are redirections only).
func (c *scanner) call(d dirs, s *syntax.Stmt, n *syntax.CallExpr) (ok, bad dirs) {
	if n == nil {
		return d, d
	}
	for _, a := range n.Assigns {
		c.assign(d, a, len(n.Args) > 0)
	}
	if len(n.Args) == 0 {
		c.assignments(n)
		return d, d
	}
	k := &call{dirs: d, end: n.End().Offset(), args: make([]word, len(n.Args)), assigns: len(n.Assigns) > 0}
	if k.assigns && !slices.ContainsFunc(n.Assigns, func(a *syntax.Assign) bool { return !c.harmless(a) }) {
		k.assigns = false
		for _, a := range n.Assigns {
			k.variables += spelled(c, a) + " "
		}
	}
	if k.outer, k.sets = c.sets, c.sets; len(n.Assigns) > 0 {
		k.sets = slices.Grow(slices.Clip(k.sets), len(n.Assigns))
		for _, a := range n.Assigns {
			k.sets = append(k.sets, spelled(c, a))
		}
		k.sets = judged(&c.findings, k.sets)
	}
	for i, w := range n.Args {
		c.words(d, w)
		k.args[i] = c.word(w)
	}
	start := n.Pos().Offset()
	var redir strings.Builder
	for _, r := range s.Redirs {
		from, to := redirPos(r), r.Word.End().Offset()
		start, k.end = min(start, from), max(k.end, to)
		redir.WriteByte(' ')
		redir.WriteString(c.slice(from, to))
	}
	k.redir, k.fed = redir.String(), slices.ContainsFunc(s.Redirs, feeds)
	if k.fed && slices.ContainsFunc(k.args, func(w word) bool { return w.value == "exec" }) {
		c.facts.fed = true
	}
	return c.run(k, c.slice(start, k.end))
}

// redirPos is where a redirection begins.
func redirPos(r *syntax.Redirect) uint {
	if r.N != nil {
		return r.N.Pos().Offset()
	}
	return r.OpPos.Offset()
}

// run lists the command k, written as text, and what it runs in turn. It says
// where the shell may be then.
func (c *scanner) run(k *call, text string) (ok, bad dirs) {
	first := k.args[0]
	switch {
	case !first.fixed:
		c.command(Command{Text: text, Also: alsoSet(k.sets, c.plainForm(k.args, k.redir, text), nil)})
		c.opaque("the command's name %s is only known at run time", shorten(first.text))
		return lostDirs, lostDirs
	case !needsNoQuotes(first.value) && first.value != "[" || strings.ContainsAny(first.value[:1], "-%") || strings.Contains(first.value, "="):
		c.opaque("%s is an unusual name of a command", shorten(first.text))
	case syntax.IsKeyword(first.value) && first.bare:
		// Known to bash only at the beginning of a command; here it stands after
		// a redirection, an assignment or a wrapper.
		c.opaque("%s stands where no keyword is expected", first.value)
	}
	k.name = systemName(first.value)
	if strings.HasPrefix(k.name, "git ") {
		k.args, k.name = gitCommand(k.args, k.name), "git"
	}
	c.listed(k, text)
	return c.effects(k)
}

// listed lists the command as it is written and, if that differs, in plain form.
func (c *scanner) listed(k *call, text string) {
	save, in := savePattern(k), interpreterOf(k.name)
	several := arities[k.name] > 1 // words say what kind of command it is
	if several {
		if i := unknownKind(k); i > 0 {
			c.opaque("which %s command it is, %s, is only known at run time", k.args[0].value, shorten(k.args[i].text))
		}
	}
	short := c.plainForm(k.args, k.redir, text)
	if destroys[strings.TrimSuffix(save, " *")] || save == "" && repeatable(k, in) {
		save = exactly(k, short)
	}
	dir, apart := k.dirs.only()
	apart = apart || k.fed || c.fed > 0
	written := Command{Text: text, Save: save, Wraps: k.onlyRuns(), Dir: dir, Apart: apart}
	if kind := strings.TrimSuffix(save, " *"); text != kind && !strings.HasPrefix(text, kind+" ") {
		written.Save = "" // the pattern would not match it
	}
	var also []string
	if several {
		also = c.otherReadings(k)
	}
	if git := gitProgram(k.name); git != "" {
		as := call{name: "git", args: gitCommand(k.args, git)} // wherever it is installed
		for _, n := range append([]int{0}, leadingOptions(&as)...) {
			also = append(also, c.plainForm(slices.Concat(as.args[:1], as.args[1+n:]), k.redir, ""))
		}
	}
	if declares[k.name] {
		for _, w := range k.args[1:] {
			if value, known := unquoted(w.node.Parts); known && isSetting(value) {
				also = append(also, value)
			}
		}
	}
	here := k.outer
	if k.variables != "" && len(k.sets) > 1 {
		here = k.sets
	}
	plain := alsoSet(here, short, also)
	var program *Program
	if in != nil || strings.IndexByte(k.name, '/') >= 0 {
		program = c.program(k, in)
	}
	if short != text {
		if written.Prefixed = k.variables != ""; written.Prefixed {
			if written.Text = k.variables + short; written.Text != text {
				also = append(also, text)
			}
		}
		for _, reading := range also {
			for _, v := range k.sets {
				also = append(also, v+" "+reading)
			}
		}
		written.Also = alsoSet(k.sets, short, also)
		c.command(written)
		written = Command{Text: short, Variables: k.variables, Save: save, Wraps: written.Wraps, Dir: dir, Apart: apart}
	}
	written.Also = plain
	written.Program = program
	c.command(written)
	for _, n := range leadingOptions(k) {
		rest := call{name: k.name, args: slices.Concat(k.args[:1], k.args[1+n:])}
		if i := slices.IndexFunc(k.args[1:1+n], func(w word) bool { return w.many }); i >= 0 {
			c.looseKind(k, k.args[1+i])
		} else if i := unknownKind(&rest); i > 0 {
			c.looseKind(k, rest.args[i])
		}
		text := c.plainForm(slices.Concat(k.args[:1], k.args[1+n:]), k.redir, text)
		c.command(Command{Text: text, Variables: k.variables, Also: alsoSet(k.sets, text, nil), Apart: true})
	}
}

// plainForm is the command as one would usually write it: one space between
// words, no quotes where none are needed, no assignments, redirections at the
// end, and the programs of the system by their names.
//
// Where that is written already, it is written itself.
func (c *scanner) plainForm(args []word, redirections, written string) string {
	b := c.scratch[:0]
	for i, w := range args {
		if i > 0 {
			b = append(b, ' ')
		}
		b = appendPlain(b, w, i == 0)
	}
	b = append(b, redirections...)
	c.scratch = b
	if string(b) == written {
		return written
	}
	return string(b)
}

// appendPlain appends a word in plain form to b.
func appendPlain(b []byte, w word, first bool) []byte {
	text := w.text
	if !w.bare && w.fixed && (needsNoQuotes(w.value) || first && w.value == "[") {
		text = w.value
	}
	if first {
		text = systemName(text)
	}
	return append(b, text...)
}

// systemName is the name of a program that is given by its path in one of the
// directories where systems have their programs.
func systemName(name string) string {
	if !strings.HasPrefix(name, "/") {
		return name
	}
	switch dir, base := path.Split(path.Clean(name)); dir {
	case "/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/usr/local/sbin/":
		return base
	case "/usr/lib/git-core/", "/usr/libexec/git-core/", "/usr/local/libexec/git-core/", "/lib/git-core/":
		return cmp.Or(gitProgram(name), base)
	}
	return name
}

// gitProgram is what a program of git's own is called, such as "git push", that is named by a path: those are
// together in a directory called git-core. It is "" for others.
func gitProgram(name string) string {
	dir, base := path.Split(path.Clean(name))
	if path.Base(dir) != "git-core" || !needsNoQuotes(base) {
		return ""
	}
	if kind := strings.TrimPrefix(base, "git-"); kind != base && kind != "" {
		return "git " + kind
	}
	if base == "git" {
		return base
	}
	return ""
}

// gitCommand are the words of a command that begins with a program of git's own, with git called by its name, as
// gitProgram gives it.
func gitCommand(args []word, name string) []word {
	all := make([]word, 0, len(args)+1)
	for part := range strings.FieldsSeq(name) {
		w := args[0]
		w.text, w.value, w.bare = part, part, true
		all = append(all, w)
	}
	return append(all, args[1:]...)
}

func needsNoQuotes(s string) bool {
	for i := range len(s) {
		switch b := s[i]; {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', strings.IndexByte("_./:=@%+,-", b) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// assign judges an assignment. passed: programs get the variable.
func (c *scanner) assign(d dirs, a *syntax.Assign, passed bool) {
	if a.Name == nil || !syntax.ValidName(a.Name.Value) {
		// The parser takes some words for assignments that bash takes for commands.
		c.opaque("it may set a variable, or run a command of that name")
	} else if value, known := c.value(a); passed {
		c.passed(a.Name.Value, value, known)
	} else if name := a.Name.Value; steers(name) && (!known || !Harmless(name, value)) {
		c.assigned(name)
	}
	c.facts.arrays = c.facts.arrays || a.Index != nil || a.Array != nil
	if a.Index != nil {
		c.subscript(d, a.Index)
	}
	if a.Value != nil {
		c.words(d, a.Value)
	}
	if a.Array != nil {
		for _, e := range a.Array.Elems {
			if e.Index != nil {
				c.subscript(d, e.Index)
			}
			if e.Value != nil {
				c.words(d, e.Value)
				listing(c, d, c.word(e.Value))
			}
		}
	}
}

func (c *scanner) subscript(d dirs, x syntax.ArithmExpr) {
	if !c.fixedIndex(x) {
		c.opaque("subscripts are evaluated, and what is evaluated can run commands")
		c.arithmetic(d, x)
	}
}

// assignments lists assignments that stand alone and set what may be variables
// of the environment: with them, a later command is another one than its text
// says.
func (c *scanner) assignments(n *syntax.CallExpr) {
	for _, a := range n.Assigns {
		if a.Name == nil || private(a.Name.Value) {
			continue
		}
		text := c.slice(a.Pos().Offset(), a.End().Offset())
		cmd := Command{Text: text}
		if plain := spelled(c, a); plain != text {
			cmd.Also = plain
		}
		c.command(cmd)
	}
}

// shorten is text for a message.
func shorten(text string) string {
	return Visible(plain.Cut(text, 40))
}
