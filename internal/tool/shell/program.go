package shell

import (
	"slices"
	"strings"
)

// Program is a program that is named by its path, or the script that a shell or an
// interpreter is given: which file it is depends on the directory that the command runs in.
type Program struct {
	// Word is the path as the command has it, without quotes; a "~" is written out.
	Word string
	// Names are the paths that it may be, absolute or relative to where the command starts:
	// one for each directory that the shell may be in.
	Names []string
	// Script: it is an argument. Then a name without a slash is a path too.
	Script bool

	head, tail string // the command in plain form, before and behind the path
}

// As is the command with path in the place of its program, as one would write it.
func (p *Program) As(path string) string {
	if !needsNoQuotes(path) {
		path = quoted(path)
	}
	return p.Plain(path)
}

// Plain is As without quotes: another command may be written so.
func (p *Program) Plain(path string) string { return p.head + path + p.tail }

// InDirectory is a command that is run in dir.
func InDirectory(dir, command string) string { return "cd " + quoted(dir) + " && " + command }

// scriptReaders are the programs whose first operand is a script, beside shells, with the letters of
// the options after which it is none: the script is an argument then, or a module.
var scriptReaders = map[string]string{
	".": "", "source": "", "python": "cm", "python2": "cm", "python3": "cm", "node": "ep", "nodejs": "ep",
	"perl": "eE", "ruby": "e", "php": "rBRE", "lua": "e", "tclsh": "",
}

// program finds the program of k, and where it may be; nil where its name is no path. Where that
// is not known, the text is opaque.
func (c *scanner) program(k *call) *Program {
	i := programAt(k)
	if i < 0 {
		return nil
	}
	w := k.args[i]
	name, known := c.literal(w)
	if !known {
		c.opaque("where %s is, is only known at run time", shorten(w.text))
		return nil
	}
	p := &Program{Word: name, Names: k.dirs.names(name), Script: i > 0}
	if p.Names == nil && k.dirs.lost {
		p.Names = []string{name} // as good as any
		c.opaque("which file %s is, depends on a directory that is only known at run time", shorten(w.text))
	}
	if slices.ContainsFunc(p.Names, returns) {
		c.opaque("which file %s is, depends on links", shorten(w.text))
	}
	b := c.scratch[:0]
	for j, a := range k.args[:i] {
		b = append(appendPlain(b, a, j == 0), ' ')
	}
	p.head = string(b)
	b = b[:0]
	for _, a := range k.args[i+1:] {
		b = appendPlain(append(b, ' '), a, false)
	}
	p.tail = string(append(b, k.redir...))
	c.scratch = b
	if i > 0 {
		c.resolve(k.dirs, w.text, w, false) // as for a program, whatever it is called
	}
	return p
}

// programAt is the index of the argument of k that is a program's path; -1 for none.
func programAt(k *call) int {
	if strings.IndexByte(k.name, '/') >= 0 {
		return 0
	}
	inline, reads := scriptReaders[k.name]
	shell := shells[k.name]
	switch {
	case shell:
		inline = "c"
	case !reads:
		return -1
	}
	for i, w := range k.args[1:] {
		switch option := len(w.value) > 1 && (w.value[0] == '-' || w.value[0] == '+' && shell); {
		case !w.fixed, w.value == "-":
			return -1 // a shell's is opaque
		case !option:
			return i + 1
		case w.value == "--":
		case w.value[1] != '-' && strings.ContainsAny(w.value[1:], inline), w.value == "--eval", w.value == "--print":
			return -1
		}
	}
	return -1
}
