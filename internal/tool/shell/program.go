package shell

import (
	"slices"
	"strings"
)

// Program is what a command runs that is named by a path: the program itself, and the script that a
// shell or an interpreter is given. Which files they are depends on the directory that the command
// runs in.
type Program struct {
	// Files are in the order of the command.
	Files []File
	// Places is how many directories it may run in.
	Places int

	around []string // the command in plain form before, between and behind the paths
}

// File is one path of a Program.
type File struct {
	// Word is the path as the command has it, without quotes; a "~" is written out.
	Word string
	// Names are the paths that it may be, absolute or relative to where the text starts: one for
	// each of the Program's Places, unless it is Moved.
	Names []string
	// Script: it is an argument. Then a name without a slash is a path too.
	Script bool
	// Moved: the command says itself which directory the path leads from, so that another Word is
	// never the same file.
	Moved bool

	pattern bool // Word has wildcards
}

// As is the command with paths in the place of its own, as one would write it.
func (p *Program) As(paths ...string) string {
	return p.join(paths, func(i int, path string) string {
		if p.Files[i].pattern || needsNoQuotes(path) {
			return path
		}
		return quoted(path)
	})
}

// Plain is As without quotes: another command may be written so.
func (p *Program) Plain(paths ...string) string {
	return p.join(paths, func(_ int, path string) string { return path })
}

func (p *Program) join(paths []string, write func(int, string) string) string {
	var b strings.Builder
	for i, path := range paths {
		b.WriteString(p.around[i])
		b.WriteString(write(i, path))
	}
	b.WriteString(p.around[len(paths)])
	return b.String()
}

// same reports whether p and q run the same files.
func (p *Program) same(q *Program) bool {
	return p.Places == q.Places && slices.EqualFunc(p.Files, q.Files, func(f, g File) bool { return slices.Equal(f.Names, g.Names) })
}

// InDirectory is a command that is run in dir.
func InDirectory(dir, command string) string { return "cd " + quoted(dir) + " && " + command }

// maxFiles bounds the words of a command that may be a file which it runs.
const maxFiles = 8

// fileAt is a word of a command that is, or may be, the path of a file which the command runs.
type fileAt struct {
	arg, from int // the index of the word, and where in its value the path begins
	dirs      dirs
	moved     bool
}

// program finds what k, which is in, runs, and where that may be; nil where no path names it. Where that
// is not known, the text is opaque.
func (c *scanner) program(k *call, in *interpreter) *Program {
	found, _ := files(c, k, in)
	if len(found) == 0 {
		return nil
	}
	if len(found) > maxFiles {
		c.opaque("which of its arguments %s runs, is not known", k.name)
		found = found[:maxFiles]
	}
	p := &Program{}
	b, next := c.scratch[:0], 0
	for _, at := range found {
		w := k.args[at.arg]
		f, known := c.fileOf(w, at)
		if !known {
			c.opaque("where %s is, is only known at run time", shorten(w.text))
			return nil
		}
		if !f.Moved {
			p.Places = max(p.Places, len(f.Names))
		}
		for ; next < at.arg; next++ {
			b = append(appendPlain(b, k.args[next], next == 0), ' ')
		}
		b = append(b, w.value[:at.from]...)
		p.Files, p.around, b = append(p.Files, f), append(p.around, string(b)), b[:0]
		next++
		if next < len(k.args) {
			b = append(b, ' ')
		}
		if at.arg > 0 {
			rest := w
			rest.value, rest.tilde = w.value[at.from:], w.tilde && at.from == 0
			c.resolve(at.dirs, w.text, rest, false) // as for a program, whatever it is called
		}
	}
	for ; next < len(k.args); next++ {
		if b = appendPlain(b, k.args[next], false); next+1 < len(k.args) {
			b = append(b, ' ')
		}
	}
	p.around = append(p.around, string(append(b, k.redir...)))
	c.scratch = b
	return p
}

// fileOf is the file of a word, as far as the text says it.
func (c *scanner) fileOf(w word, at fileAt) (f File, known bool) {
	name := w.value[at.from:]
	switch {
	case w.pattern && at.from == 0 && !strings.ContainsAny(w.text, "\\'\"{~$`"):
		name = w.text // the first file that matches is the script
	case !w.fixed:
		return File{}, false
	case at.from == 0:
		if name, known = c.literal(w); !known {
			return File{}, false
		}
	}
	f = File{Word: name, Names: at.dirs.names(name), Script: at.arg > 0, Moved: at.moved, pattern: w.pattern}
	if f.Names == nil && at.dirs.lost {
		f.Names = []string{name}
		c.opaque("which file %s is, depends on a directory that is only known at run time", shorten(w.text))
	}
	if slices.ContainsFunc(f.Names, returns) {
		c.opaque("which file %s is, depends on links", shorten(w.text))
	}
	return f, true
}

// files are the words of k, which is in, that are, or may be, paths of files which it runs. open: words that are
// added to k can be such.
func files(c *scanner, k *call, in *interpreter) (all []fileAt, open bool) {
	f := finder{args: k.args, workdir: c.workdir, dirs: k.dirs, next: 1}
	if strings.IndexByte(k.name, '/') >= 0 {
		f.found = append(f.found, fileAt{dirs: k.dirs})
	}
	for in != nil {
		in = f.given(in)
	}
	if f.unclear != "" {
		c.opaque("what %s loads by %s, is only known at run time", k.name, shorten(f.unclear))
	}
	return f.found, f.open
}

// finder is one files.
type finder struct {
	args    []word
	workdir string
	next    int // the argument to look at
	found   []fileAt
	pending []fileAt // directories that paths behind them lead from
	dirs    dirs
	moved   bool
	open    bool
	unclear string // an option that may load any file; "" for none
}

func (f *finder) add(arg, from int) {
	f.found = append(append(f.found, f.pending...), fileAt{arg, from, f.dirs, f.moved})
	f.pending = nil
}

// option takes the value of an option of in, which is that of an argument from a byte of it on.
func (f *finder) option(in *interpreter, m meaning, arg, from int) {
	w := f.args[arg]
	value := w.value[min(from, len(w.value)):]
	switch {
	case m == loads && isSetting(value):
		f.option(in, m, arg, from+strings.IndexByte(value, '=')+1)
	case m == loads && (w.fixed || w.pattern && from == 0):
		f.add(arg, from)
	case m == loads:
		f.unclear = w.text
	case m == leads && w.fixed:
		f.pending = append(f.pending, fileAt{arg, from, f.dirs, f.moved})
		f.dirs, f.moved = f.dirs.enter(value, f.workdir != ""), true
	case m == leads:
		f.dirs, f.moved = lostDirs, true
	case m == valued && w.fixed && isCode(value) && (!in.named || in.namesFile(value)):
		f.add(arg, from) // it may be a file that is run as well
	}
}

// given finds the files that in is given, from the next argument on, and gives the interpreter that
// in runs; nil for none.
func (f *finder) given(in *interpreter) *interpreter {
	options, behind := true, !in.only
	unsure := false // the word before may have this one as its value
	loose := false  // it is not known how many words there are before
	given := false  // the text that is run
	for args := f.args; f.next < len(args) && len(f.found) <= maxFiles; f.next++ {
		w := args[f.next]
		sure, name := !unsure && !loose, w.value
		if w.pattern {
			name = w.text
		}
		switch {
		case options && len(w.value) > 1 && (w.value[0] == '-' || w.value[0] == '+' && in.plus):
			m, from := f.meaningOf(in, w)
			switch {
			case w.value == "--" && w.fixed:
				options, unsure = false, false
				continue
			case m == last && !loose:
				return nil
			case m < valued && from == 0, from == 0 && f.next+1 == len(args):
				loose, unsure = loose || w.many, m == unknown
				continue
			case from == 0:
				f.next++
				loose = loose || args[f.next].many
			}
			given = given || m == inline && !loose || in.text && (m == first || m == loads)
			f.option(in, m, f.next, from)
			unsure = false
			continue
		case given && !in.text:
			return nil
		case !w.fixed && !w.pattern:
			if sure && !w.many {
				if !in.text {
					return nil // the file is only known at run time, wherever that is
				}
				given = true
			}
			loose, unsure = loose || w.many, false
			continue
		case w.value == "-" && sure && !in.text:
			return nil
		case in.words[w.value] && (!behind || !in.only):
			behind, unsure = true, false
			continue
		case in.runs && behind && isSetting(w.value):
			continue // a variable
		case in.runs && behind:
			command := systemName(name)
			if command == name && in.namesFile(name) {
				f.add(f.next, 0)
			}
			if inner := interpreterOf(command); inner != nil && w.fixed {
				f.next++
				return inner
			}
		case in.lists && strings.HasPrefix(name, "@"):
			f.add(f.next, 1)
			continue
		case behind && (!in.text || !sure) && (!in.looks || in.namesFile(name)):
			f.add(f.next, 0)
		}
		if sure {
			if !in.text {
				return nil
			}
			given = true
		}
		unsure = false
	}
	f.open = !given
	return nil
}

// meaningOf is what a word of in means that begins as an option does, and where its value begins in it; 0 for nowhere.
func (f *finder) meaningOf(in *interpreter, w word) (m meaning, from int) {
	option := w.value
	if option[0] == '+' {
		option = "-" + option[1:]
	}
	m, from = in.option(option)
	switch {
	case m == unclear, !w.fixed && m == loads:
		f.unclear = w.text
		return unknown, 0
	case !w.fixed && m == leads:
		f.dirs, f.moved = lostDirs, true
	}
	if !w.fixed {
		return unknown, 0
	}
	return m, from
}
