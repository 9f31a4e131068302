package shell

import (
	"slices"
	"strings"
)

// wrapper is how a program is called that runs another one.
type wrapper struct {
	// flags are one-letter options without a value, values those with one.
	flags, values string
	// long are long options without a value, longValues those with one. A value
	// after "=" needs no entry of its own.
	long, longValues []string
	// operands come before the command (timeout's duration).
	operands int
	// variables: NAME=value words come before the command.
	variables bool
	// shell: what it runs may be a builtin; others only find programs in PATH.
	shell bool
	// more: it adds arguments that the text does not show.
	more bool
	// moves are options after which relative paths are relative to elsewhere.
	moves []string
	// digits: an option may be a number by itself ("nice -5").
	digits bool
	// only: what it runs does what it would do by itself; unless: but not with an option.
	only, unless bool
}

// wrappers are the programs and builtins behind which a command is looked for.
// An option that is not here makes the text opaque: where the command begins is
// then not known.
var wrappers = map[string]wrapper{
	"env": {
		only: true, unless: true, flags: "i0v", values: "uC", variables: true, moves: []string{"-C", "--chdir"},
		long: []string{"--ignore-environment", "--null", "--debug"}, longValues: []string{"--unset", "--chdir"},
	},
	"timeout": {
		only: true, flags: "v", values: "ks", operands: 1,
		long: []string{"--foreground", "--preserve-status", "--verbose"}, longValues: []string{"--kill-after", "--signal"},
	},
	"nice":   {only: true, values: "n", longValues: []string{"--adjustment"}, digits: true},
	"nohup":  {only: true},
	"setsid": {only: true, flags: "cfw", long: []string{"--ctty", "--fork", "--wait"}},
	"stdbuf": {only: true, values: "ioe", longValues: []string{"--input", "--output", "--error"}},
	"ionice": {only: true, flags: "t", values: "cn", long: []string{"--ignore"}, longValues: []string{"--class", "--classdata"}},
	"time": {
		only: true, unless: true, flags: "pvqa", values: "fo", long: []string{"--portability", "--verbose", "--quiet", "--append"},
		longValues: []string{"--format", "--output"},
	},
	"sudo": {
		flags: "AbEHnPkS", values: "ugpCThrtDR", variables: true, moves: []string{"-D", "--chdir", "-R", "--chroot"},
		long:       []string{"--askpass", "--background", "--preserve-env", "--set-home", "--non-interactive", "--stdin"},
		longValues: []string{"--user", "--group", "--prompt", "--close-from", "--chdir", "--chroot"},
	},
	"doas": {flags: "n", values: "uC"},
	"xargs": {
		flags: "0rtpx", values: "adEILnPs", more: true,
		long:       []string{"--null", "--no-run-if-empty", "--verbose", "--interactive", "--exit", "--open-tty", "--max-lines", "--replace"},
		longValues: []string{"--arg-file", "--delimiter", "--max-args", "--max-procs", "--max-chars"},
	},
	"command": {only: true, unless: true, flags: "p", shell: true},
	"builtin": {only: true, shell: true},
	"exec":    {only: true, unless: true, flags: "cl", values: "a", shell: true},
	"busybox": {},
}

// onlyRuns reports whether all that k does is to run a command or a script that is in its text, as that would run
// by itself.
func (k *call) onlyRuns() bool {
	w, is := wrappers[k.name]
	switch {
	case k.more:
		return false
	case scripted[k.name]:
		return k.script() > 0
	case !is || !w.only:
		return false
	}
	rest, sets, _, why := w.command(k.args[1:])
	if w.unless {
		options := slices.DeleteFunc(slices.Clone(k.args[1:len(k.args)-len(rest)]), func(o word) bool { return o.value == "--" })
		if len(options) > len(sets) {
			return false
		}
	}
	return len(rest) > 0 && why == ""
}

// scripted are the shells whose language is known.
var scripted = setOf("bash", "sh", "dash", "ash")

// script is the number of the argument that is the script of k, a shell, which has no options but those that
// say how to read it; 0 where there is none.
func (k *call) script() int {
	for i, w := range k.args[1:] {
		switch {
		case !w.fixed || logsIn(w) || !isShellOption(w.value):
			return 0
		case strings.HasPrefix(w.value, "--") || !strings.Contains(w.value, "c"):
			continue
		}
		if i+2 >= len(k.args) || !k.args[i+2].fixed || strings.HasPrefix(k.args[i+2].value, "-") || strings.HasPrefix(k.args[i+2].value, "+") {
			return 0
		}
		return i + 2
	}
	return 0
}

// wrapped judges a wrapper and what it runs.
func (c *scanner) wrapped(k *call, name string, w wrapper) (ok, bad dirs) {
	here := k.dirs
	if name == "command" && len(k.args) > 1 && k.args[1].fixed && (k.args[1].value == "-v" || k.args[1].value == "-V") {
		return here, here // only says what the command is
	}
	if c.depth++; c.depth > maxDepth {
		c.opaque("it has wrappers of wrappers beyond what can be judged")
		c.depth--
		return lostDirs, lostDirs
	}
	defer func() { c.depth-- }()
	rest, sets, moved, why := w.command(k.args[1:])
	for _, a := range sets {
		variable, value, _ := strings.Cut(a.value, "=")
		c.passed(variable, value, a.fixed)
	}
	// Of one that only runs what it is given its own words are known: numbers, variables, and options.
	c.pathArguments(&call{args: k.args[:len(k.args)-len(rest)], dirs: k.dirs, told: w.only && why == "" && len(rest) > 0})
	if why != "" {
		c.opaque("%s: %s", name, why)
		return lostDirs, lostDirs
	}
	if len(rest) == 0 {
		if w.more {
			c.opaque("%s runs what it reads", name)
		}
		return here, here
	}
	in := &call{
		args: rest, end: k.end, dirs: k.dirs, redir: k.redir, more: k.more || w.more,
		assigns: k.assigns || w.variables, outer: k.sets, anew: k.anew || name == "exec", homeless: k.homeless,
	}
	if len(sets) > 0 {
		in.outer = slices.Grow(slices.Clip(in.outer), len(sets))
		for _, a := range sets {
			if value, known := unquoted(a.node.Parts); known {
				in.outer = append(in.outer, value)
			}
		}
		in.outer = judged(&c.findings, in.outer)
	}
	in.sets = in.outer
	c.renewed(in, name, w, k.args[1:len(k.args)-len(rest)])
	if moved {
		in.dirs = lostDirs
	}
	if w.more {
		text, known := w.placeholder(k.args[1 : len(k.args)-len(rest)])
		if !known {
			c.opaque("what %s replaces is only known at run time", name)
		}
		replace(in.args, text)
	}
	if in.more {
		c.extended(name, in)
	}
	ok, bad = c.run(in, c.slice(rest[0].start, k.end))
	if !w.shell || len(k.redir) > 0 && name == "exec" {
		return here, here
	}
	return ok, bad
}

// renewed judges what options of a wrapper, which is w, make of the environment and the name
// of the program in.
func (f *findings) renewed(in *call, name string, w wrapper, options []word) {
	if name == "sudo" || name == "doas" {
		in.homeless = true // HOME may be another user's
	}
	for i := 0; i < len(options); i++ {
		o, value := options[i], word{}
		if len(o.value) < 2 || o.value[0] != '-' {
			continue
		}
		if takes, _ := w.option(o.value); takes && i+1 < len(options) {
			i++
			value = options[i]
		}
		switch letters := o.value[1] != '-'; {
		case name == "exec" && letters && strings.ContainsAny(o.value, "al") && (o.value != "-a" || !value.fixed || value.value != in.args[0].value):
			f.opaque("exec %s gives the program another name, by which it may do something else", shorten(o.text))
		case name == "exec" && letters, // -c
			name == "env" && letters && strings.ContainsAny(o.value, "iu"),
			name == "env" && (strings.HasPrefix(o.value, "--ignore") || strings.HasPrefix(o.value, "--unset")):
			in.anew, in.homeless = true, true
		}
	}
}

// placeholder is the text that xargs, which is w, replaces in the words of its
// command, by its options; "" for none. It is not known where it is in a variable.
func (w wrapper) placeholder(options []word) (text string, known bool) {
	known = true
	for i := 0; i < len(options); i++ {
		o := options[i].value
		next := word{fixed: true}
		if takes, _ := w.option(o); takes && i+1 < len(options) {
			i++
			next = options[i]
		}
		if strings.HasPrefix(o, "--") {
			if name, value, joined := strings.Cut(o, "="); joined && name == "--replace" {
				text, known = value, true
			} else if o == "--replace" {
				text, known = "{}", true
			}
			continue
		}
		// Of letters together, the first with a value takes what follows.
		switch at := strings.IndexAny(o, w.values); {
		case at < 1 || o[at] != 'I':
		case at+1 < len(o):
			text, known = o[at+1:], true
		default:
			text, known = next.value, next.fixed
		}
	}
	return text, known
}

// replace makes the words that have text in them known at run time only.
func replace(args []word, text string) {
	if text == "" {
		return
	}
	for i := range args {
		if before, _, found := strings.Cut(args[i].value, text); found {
			args[i].value, args[i].fixed, args[i].pattern, args[i].bare = before, false, false, false
		}
	}
}

// extended judges a command that gets arguments which the text does not show:
// no such arguments may be code, or name another command.
func (c *scanner) extended(name string, k *call) {
	if !k.args[0].fixed {
		return // opaque already
	}
	k.name = systemName(k.args[0].value)
	inner := k.name
	_, wraps := wrappers[inner]
	_, open := files(c, k, interpreterOf(inner))
	if wraps || open || openKind(k) || shells[inner] || inner == "find" || inner == "test" || inner == "[" || inner == "printf" {
		c.opaque("%s gives %s arguments that are not in the text", name, inner)
	}
}

// command is the part of args at which the wrapped command begins. sets: the
// NAME=value words before it. moved: it runs elsewhere.
func (w wrapper) command(args []word) (rest, sets []word, moved bool, why string) {
	operands := w.operands
	options := true
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case w.variables && !a.fixed && !a.many && strings.Contains(a.value, "="):
			sets, options = append(sets, a), false
		case !a.fixed && options && operands > 0:
			return nil, sets, moved, "where its command begins is only known at run time"
		case !a.fixed && options:
			return args[i:], sets, moved, ""
		case !a.fixed:
			if operands == 0 {
				return args[i:], sets, moved, ""
			}
			if operands--; a.many {
				return nil, sets, moved, "where its command begins is only known at run time"
			}
		case options && a.value == "--":
			options = false
		case options && len(a.value) > 1 && a.value[0] == '-':
			takes, known := w.option(a.value)
			if !known {
				return nil, sets, moved, "its option " + shorten(a.text) + " is not known here"
			}
			moved = moved || slices.ContainsFunc(w.moves, func(m string) bool { return strings.HasPrefix(a.value, m) })
			if takes {
				if i++; i < len(args) && args[i].many {
					return nil, sets, moved, "where its command begins is only known at run time"
				}
			}
		case operands > 0:
			operands--
			options = false
		case w.variables && strings.Contains(a.value, "="):
			sets, options = append(sets, a), false
		default:
			return args[i:], sets, moved, ""
		}
	}
	return nil, sets, moved, ""
}

// option reports whether an option is known and takes the next word as its
// value.
func (w wrapper) option(o string) (takes, known bool) {
	if strings.HasPrefix(o, "--") {
		name, _, joined := strings.Cut(o, "=")
		switch {
		case slices.Contains(w.longValues, name):
			return !joined, true
		case slices.Contains(w.long, name):
			return false, true
		}
		return false, false
	}
	if w.digits && digits(o[1:]) {
		return false, true
	}
	for i := 1; i < len(o); i++ {
		switch {
		case strings.IndexByte(w.flags, o[i]) >= 0:
		case strings.IndexByte(w.values, o[i]) >= 0:
			return i == len(o)-1, true
		default:
			return false, false
		}
	}
	return false, true
}

// shells are those whose -c takes a script that is scanned.
var shells = setOf("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "rbash")

// shellScript scans the script of "sh -c script".
func (c *scanner) shellScript(k *call, name string) {
	if strings.HasSuffix(name, "bash") {
		c.facts.bashes = append(c.facts.bashes, c.scope)
	}
	if k.anew && strings.HasSuffix(name, "bash") {
		// Without SHLVL it takes itself for the first shell of a connection.
		c.opaque("%s may run its start-up file first, in an environment that is not this shell's", name)
	}
	for i := 1; i < len(k.args); i++ {
		w := k.args[i]
		if logsIn(w) {
			c.opaque("%s %s runs start-up files first, which the home directory may have", name, shorten(w.text))
		}
		switch {
		case !w.fixed:
			c.opaque("what %s runs is only known at run time", name)
			return
		case w.value != "-" && !strings.HasPrefix(w.value, "-") && !strings.HasPrefix(w.value, "+"):
			return // a file, which is the shell's affair
		case !c.shellOption(name, w):
			return
		case w.value != "-" && strings.Contains(w.value, "c") && w.value[1] != '-': // +c as well
			c.scriptArgument(k, name, i+1)
			return
		}
	}
	c.opaque("what %s runs is read from its input", name)
}

// logsIn reports whether an argument, if it is an option, makes a shell a login shell: +l does too.
func logsIn(w word) bool {
	letters := strings.HasPrefix(w.value, "-") && !strings.HasPrefix(w.value, "--") || strings.HasPrefix(w.value, "+")
	return w.value == "--login" || letters && strings.Contains(w.value, "l")
}

// shellOption reports whether an option of a shell is known, and makes no
// difference to how the shell reads.
func (f *findings) shellOption(name string, w word) bool {
	if isShellOption(w.value) {
		return true
	}
	f.opaque("%s: its option %s is not known here", name, shorten(w.text))
	return false
}

func isShellOption(o string) bool {
	switch o {
	case "--login", "--norc", "--noprofile", "--posix":
		return true
	}
	return len(o) > 1 && (o[0] == '-' || o[0] == '+') && o[1] != '-' && strings.Trim(o[1:], "celuxv") == ""
}

// scriptArgument scans the script that is argument i, or the first one after it
// that is no option.
func (c *scanner) scriptArgument(k *call, name string, i int) {
	if i >= len(k.args) {
		if k.more {
			c.opaque("what %s runs is only known at run time", name)
		}
		return
	}
	w := k.args[i]
	if !w.fixed || strings.HasPrefix(w.value, "-") || strings.HasPrefix(w.value, "+") {
		c.opaque("the script of %s -c is only known at run time", name)
		if k.more { // parts of it are, which the text may give to any program
			c.path(Path{Text: k.args[0].text + " …", Weak: true}, false)
		}
		return
	}
	in := c.inner()
	in.sets = k.sets
	if k.homeless {
		in.home = ""
	}
	before := len(c.out.Commands)
	k.code = i
	in.read(name, w.value, k.dirs)
	if len(c.out.Commands) == before {
		c.opaque("%s", whyNothing) // as a text of its own would be
	}
}

// findRuns are the actions of find that run commands, write or delete.
var findRuns = []string{"-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls"}

// find judges find. Its actions are ordinary words, so all of its words must be
// known.
func (c *scanner) find(k *call) {
	if k.more {
		c.opaque("find gets arguments that are not in the text")
	}
	for i := 1; i < len(k.args); i++ {
		w := k.args[i]
		switch {
		case !w.fixed && !w.pattern:
			c.opaque("find has the argument %s, which may be an action", shorten(w.text))
		case w.pattern:
			if slices.ContainsFunc(findRuns, func(name string) bool { return mayBecome(w.text, name) }) {
				c.opaque("find has the argument %s, which files of the right names make an action", shorten(w.text))
			}
		case slices.Contains(findRuns, w.value):
			c.opaque("find %s runs commands, writes or deletes", w.value)
			if strings.HasPrefix(w.value, "-exec") || strings.HasPrefix(w.value, "-ok") {
				i = c.findAction(k, i+1)
			}
		}
	}
}

// findAction lists the command that begins at argument i of find, and says at
// which argument it ends.
func (c *scanner) findAction(k *call, i int) (end int) {
	for end = i; end < len(k.args); end++ {
		if v := k.args[end].value; v == ";" || v == "+" {
			break
		}
	}
	if end == i || c.depth >= maxDepth {
		return end
	}
	last := k.args[end-1].end
	in := &call{args: k.args[i:end], end: last, dirs: k.dirs, more: true, outer: k.sets, sets: k.sets, anew: k.anew, homeless: k.homeless}
	if strings.HasSuffix(k.args[i-1].value, "dir") {
		in.dirs = lostDirs // it runs where each file is
	}
	c.depth++
	c.run(in, c.slice(in.args[0].start, last))
	c.depth--
	return end
}

// mayBecome reports whether a word with wildcards or braces may turn into name.
// It says yes too often: a set and a list stand for any text.
func mayBecome(pattern, name string) bool {
	if strings.ContainsAny(pattern, `'"\`) {
		return true
	}
	head, tail := pattern, pattern
	if i := strings.IndexAny(pattern, "*?[{"); i >= 0 {
		head = pattern[:i]
	}
	if i := strings.LastIndexAny(pattern, "*?]}"); i >= 0 {
		tail = pattern[i+1:]
	}
	return strings.HasPrefix(name, head) && strings.HasSuffix(name, tail)
}
