package shell

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// effects judges what k does beyond being run: builtins that change the shell
// or evaluate their arguments, wrappers, paths. It says in which directories the
// shell may be afterwards.
func (c *scanner) effects(k *call) (ok, bad dirs) {
	name := k.name
	if why, is := evaluators[name]; is {
		c.opaque("%s %s", name, why)
		c.leadsAny(k.args[1:])
		c.pathArguments(k)
		if name == "eval" || name == "source" || name == "." || name == "trap" {
			c.facts.evaluated = true
			return lostDirs, lostDirs // what it runs may change the directory
		}
		return k.dirs, k.dirs
	}
	if slices.Contains(movers, name) && !k.args[0].bare {
		c.opaque("%s is written in an unusual way", name)
	}
	switch name {
	case "cd":
		return c.chdir(k), k.dirs
	case "pushd", "popd", "chdir":
		c.pathArguments(k)
		if c.astray {
			c.path(Path{Text: name}, false)
		}
		return lostDirs, k.dirs
	case "exit":
		if len(k.args) == 1 || len(k.args) == 2 && k.args[1].number() {
			return noDirs, noDirs
		}
	case "set":
		c.setOptions(k)
	case "test", "[":
		c.testCommand(k)
	case "printf":
		c.printf(k)
	case "wait", "jobs":
		for _, w := range k.args[1:] {
			if w.text != "$!" && (!w.fixed || strings.HasPrefix(w.value, "-")) {
				c.opaque("%s with options can set variables or run commands", name)
			}
		}
	case "find":
		c.find(k)
	default:
		if w, is := wrappers[name]; is && (!c.posix || name != "builtin") {
			return c.wrapped(k, name, w)
		}
		if shells[name] {
			c.shellScript(k, name)
		}
	}
	c.pathArguments(k)
	return k.dirs, k.dirs
}

// movers change the shell's directory; chdir is cd in dash.
var movers = []string{"cd", "pushd", "popd", "chdir"}

// evaluators are builtins whose arguments are code, names of variables to set
// (whose subscripts are code), or that change what later commands mean.
var evaluators = map[string]string{
	"eval":      "runs text that is made at run time",
	"source":    "runs a file in this shell",
	".":         "runs a file in this shell",
	"trap":      "runs commands later",
	"alias":     "changes what later commands are",
	"unalias":   "changes what later commands are",
	"enable":    "changes what later commands are",
	"hash":      "changes what later commands are",
	"shopt":     "changes how later commands are read",
	"read":      "sets variables, whose subscripts can run commands",
	"mapfile":   "sets variables and can run commands",
	"readarray": "sets variables and can run commands",
	"unset":     "evaluates subscripts, which can run commands",
	"let":       "evaluates the values of variables, which can run commands",
	"getopts":   "sets variables, whose subscripts can run commands",
	"bind":      "can run commands",
	"complete":  "can run commands",
	"compgen":   "can run commands",
	"compopt":   "can run commands",
	"fc":        "runs commands again",
	"history":   "changes what later commands are",
	"declare":   "sets variables, whose subscripts can run commands",
	"typeset":   "sets variables, whose subscripts can run commands",
	"local":     "sets variables, whose subscripts can run commands",
	"export":    "sets variables, whose subscripts can run commands",
	"readonly":  "sets variables, whose subscripts can run commands",
	"nameref":   "makes a variable stand for another",
	"coproc":    "uses a coprocess",
}

// declaration scans declare, export and the like, where the parser could read
// their arguments.
func (c *scanner) declaration(d dirs, s *syntax.Stmt, n *syntax.DeclClause) {
	start, end := n.Pos().Offset(), n.End().Offset()
	var short strings.Builder
	var also []string
	short.WriteString(n.Variant.Value)
	for _, a := range n.Args {
		plain := spelled(c, a)
		if !a.Naked || strings.Contains(plain, "=") {
			also = append(also, plain)
		}
		short.WriteByte(' ')
		short.WriteString(plain)
	}
	for _, r := range s.Redirs {
		from, to := redirPos(r), r.Word.End().Offset()
		start, end = min(start, from), max(end, to)
		short.WriteByte(' ')
		short.WriteString(c.slice(from, to))
	}
	text := c.slice(start, end)
	c.command(Command{Text: text, Also: strings.Join(also, "\x00")})
	if short.String() != text {
		c.command(Command{Text: short.String()})
	}
	if n.Variant.Value == "nameref" {
		c.opaque("nameref makes a variable stand for another")
	}
	exports := n.Variant.Value == "export"
	for _, a := range n.Args {
		switch {
		case a.Naked && a.Name == nil:
			c.words(d, a.Value)
			w := c.word(a.Value)
			c.leadsAny([]word{w})
			c.facts.astray = c.facts.astray || !harmlessDeclaration[w.value] // it may name another variable
			exports = exports || strings.Contains(w.value, "x")
			if !w.fixed || !harmlessDeclaration[w.value] {
				c.opaque("%s %s can make a variable that evaluates what it is set to", n.Variant.Value, shorten(w.text))
			}
			c.facts.arrays = c.facts.arrays || strings.ContainsAny(w.value, "aA")
		default:
			if a.Name != nil {
				c.leads(a.Name.Value)
			}
			c.assign(d, a, exports)
			if a.Value != nil && c.facts.list == "" && mayBeList(c.word(a.Value)) {
				c.facts.list = c.slice(a.Pos().Offset(), a.End().Offset())
			}
		}
	}
}

// mayBeList reports whether a value, when it has been expanded, may begin with a
// "(": declare and its like then read it as the list of an array's elements, and
// expand it again.
func mayBeList(w word) bool {
	if w.value == "" {
		return !w.fixed
	}
	return w.value[0] == '('
}

// harmlessDeclaration are options that give a variable no power.
var harmlessDeclaration = setOf("-r", "-x", "-a", "-A", "-g", "-rx", "-xr", "-p", "-gx", "-ra", "-ga", "-gA", "-gr", "--")

// chdir is where cd leads to.
func (c *scanner) chdir(k *call) dirs {
	args := k.args[1:]
	for len(args) > 0 && args[0].fixed && (args[0].value == "--" || args[0].value == "-L") {
		args = args[1:]
	}
	if len(args) == 0 {
		if c.home == "" {
			c.path(Path{Text: "cd"}, false)
		}
		return dirsOf(c.home)
	}
	if len(args) > 1 || k.more {
		c.resolve(k.dirs, args[0].text, word{text: args[0].text}, false)
		return lostDirs
	}
	w := args[0]
	c.resolve(k.dirs, w.text, w, false)
	to, known := c.literal(w)
	if c.astray && !path.IsAbs(to) {
		c.path(Path{Text: w.text}, false)
		return lostDirs
	}
	if !known || w.pattern || strings.HasPrefix(to, "-") || to == "" {
		return lostDirs
	}
	return k.dirs.enter(to, c.workdir != "")
}

// dirsOf is a known absolute place.
func dirsOf(dir string) dirs {
	if dir == "" {
		return lostDirs
	}
	return dirs{list: []string{dir}}
}

// setOptions judges set: options that stop a script early or name parameters.
func (f *findings) setOptions(k *call) {
	for i := 1; i < len(k.args); i++ {
		w := k.args[i]
		switch {
		case w.fixed && w.value == "--":
			return
		case w.fixed && len(w.value) > 1 && (w.value[0] == '-' || w.value[0] == '+') && strings.Trim(w.value[1:], "eufCho") == "":
			if strings.HasSuffix(w.value, "o") {
				i++
				if i >= len(k.args) || !harmlessOption[k.args[i].value] {
					f.opaque("set -o changes how later commands are read")
				}
			} else if strings.Contains(w.value, "o") {
				f.opaque("set %s is not known", shorten(w.text))
			}
		case w.fixed && w.value != "" && w.value[0] != '-' && w.value[0] != '+':
			return
		default:
			f.opaque("set %s can change how later commands are read", shorten(w.text))
		}
	}
}

var harmlessOption = setOf("pipefail", "errexit", "nounset", "noglob", "noclobber")

// testCommand judges test and [: which of the arguments are operators depends on
// how many there are, so their number must be known, and the operators too.
func (f *findings) testCommand(k *call) {
	args := k.args[1:]
	if k.args[0].value != "test" && len(args) > 0 {
		args = args[:len(args)-1] // "]"
	}
	for _, w := range args {
		if w.many || k.more {
			f.opaque("test cannot be judged with %s, which may be several words", shorten(w.text))
			return
		}
	}
	if len(args) > 1 && args[0].fixed && args[0].value == "!" {
		args = args[1:]
	}
	switch {
	case len(args) <= 1:
		return
	case len(args) == 2 && args[0].fixed && fileTests[args[0].value]:
		return
	case len(args) == 3 && args[1].fixed && stringTests[args[1].value]:
		return
	case len(args) == 3 && args[1].fixed && numberTests[args[1].value] && args[0].number() && args[2].number():
		return
	}
	f.opaque("test evaluates subscripts and numbers, which can run commands")
}

var (
	fileTests   = setOf("-a", "-b", "-c", "-d", "-e", "-f", "-g", "-h", "-k", "-n", "-p", "-r", "-s", "-t", "-u", "-w", "-x", "-z", "-G", "-L", "-N", "-O", "-S")
	stringTests = setOf("=", "==", "!=", "<", ">", "-nt", "-ot", "-ef")
	numberTests = setOf("-eq", "-ne", "-lt", "-le", "-gt", "-ge")
)

// printf judges printf: -v and %n set a variable, whose subscript is evaluated.
func (f *findings) printf(k *call) {
	args := k.args[1:]
	if len(args) > 0 && args[0].fixed && args[0].value == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return
	}
	format := args[0]
	if !format.fixed || strings.HasPrefix(format.value, "-") || setsVariable(format.value) {
		f.leadsAny(args)
		f.opaque("printf can set a variable, whose subscript can run commands")
	}
}

// setsVariable reports whether a format of printf has a %n.
func setsVariable(format string) bool {
	for {
		_, rest, found := strings.Cut(format, "%")
		if !found {
			return false
		}
		rest = strings.TrimLeft(rest, "-+ #0'123456789.*hljztL")
		if strings.HasPrefix(rest, "n") {
			return true
		}
		if rest != "" {
			rest = rest[1:]
		}
		format = rest
	}
}
