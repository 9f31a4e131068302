package shell

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// resolve lists the path that w stands for, in each directory in which the shell
// may be.
func (c *scanner) resolve(d dirs, text string, w word, write bool) {
	if !write && w.isPipe() {
		return
	}
	name, known := c.literal(w)
	if !known {
		c.path(Path{Text: text}, write)
		return
	}
	whole := sure(name)
	if whole == "" {
		return // no file has this name
	}
	perhaps := len(whole) < len(name)
	names := d.names(whole)
	if names == nil && d.lost {
		c.path(Path{Text: text}, write)
	}
	for _, n := range names {
		to, exact, ok := place(n)
		switch {
		case !ok || write && strings.Contains(n, wild):
			c.path(Path{Text: text}, write)
		default:
			c.path(Path{Text: text, Name: to, Below: write && !exact, Perhaps: write && perhaps && path.IsAbs(to)}, write)
		}
	}
}

// literal is the path that a word names: itself, or for one with wildcards the
// directory below which all is that it can match.
func (c *scanner) literal(w word) (string, bool) {
	value := w.value
	if w.made {
		return value, true
	}
	if w.tilde {
		rest := strings.TrimPrefix(value, "~")
		if c.home == "" || rest != "" && rest[0] != '/' {
			return "", false // another user's home, or ~+ and ~-
		}
		value = c.home + rest
	} else if strings.HasPrefix(value, "~") {
		if prefix, _, _ := strings.Cut(w.text, "/"); strings.Contains(prefix, "{") {
			return "", false // lists come before homes
		}
		value = "./" + value
	}
	if w.fixed {
		return value, true
	}
	if !w.pattern || w.node == nil {
		return "", false
	}
	return belowPattern(value, w.text)
}

// belowPattern is the directory in which a word with wildcards begins to be a
// pattern. What follows must not lead out of it.
func belowPattern(value, text string) (string, bool) {
	i := strings.IndexAny(text, "*?[{")
	if i < 0 || strings.ContainsAny(text[i:], `\'"`) {
		return "", false
	}
	after := text[i:]
	if dotted.MatchString(text) {
		return "", false // some shells find ".." with it
	}
	for _, escape := range []string{"..", "{/", ",/", "{~", ",~"} {
		if strings.Contains(after, escape) {
			return "", false
		}
	}
	dir := value[:strings.LastIndexByte(value, '/')+1]
	if dir == "" {
		if strings.HasPrefix(after, "{") && strings.Contains(after, ",}") {
			return "", false
		}
		return ".", true
	}
	return dir, true
}

// dotted finds wildcards behind a dot that begins a name.
var dotted = regexp.MustCompile(`(^|/)\.(\*|\?|\[[^!^]|\[[!^][^.])`)

// pathArguments lists the arguments of k that name files: those that look like
// paths, and for programs that work on files also plain words.
func (c *scanner) pathArguments(k *call) {
	if len(k.args) == 0 || !k.args[0].fixed {
		return
	}
	name := systemName(k.args[0].value)
	if c.wide {
		widely(c, k, name)
		return
	}
	if speakers[name] {
		return
	}
	if strings.Contains(k.args[0].value, "/") && name == k.args[0].value {
		c.resolve(k.dirs, k.args[0].text, k.args[0], false) // the program itself
	}
	skip := takesPattern[name]
	plain := fileCommands[name]
	options := true
	for _, w := range madeArguments(c, k) {
		if options && w.fixed && w.value == "--" {
			options = false
			continue
		}
		if options && strings.HasPrefix(w.value, "-") && len(w.value) > 1 {
			c.optionPath(k, w)
			if takesPattern[name] && givesPattern(w.value) {
				// Then all operands are files, but for the pattern itself.
				skip = w.value == "-e" || w.value == "--regexp" || w.value == "--expression"
			}
			plain = plain && name != "find" // what follows are tests
			continue
		}
		if skip {
			skip = false
			continue
		}
		c.argumentPath(k, w, plain)
	}
}

// madeArguments are the arguments of k, as the shell makes them.
func madeArguments(c *scanner, k *call) []word {
	all := make([]word, 0, len(k.args)-1)
	for _, w := range k.args[1:] {
		all = append(all, fieldsOf(c, k.dirs, w)...)
	}
	return all
}

// argumentPath lists an argument that is no option, if it names a file: plain
// words do for some programs.
func (c *scanner) argumentPath(k *call, w word, plain bool) {
	switch {
	case !plain && isSetting(w.text):
		c.valuePath(k, w)
	case plain || looksLikePath(w):
		c.resolve(k.dirs, w.text, w, false)
	}
}

// isSetting reports whether s is an argument such as of=FILE.
func isSetting(s string) bool {
	for i := range len(s) {
		switch b := s[i]; {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', b == '_':
		case i > 0 && ('0' <= b && b <= '9' || b == '.' || b == '-'):
		default:
			return i > 0 && b == '='
		}
	}
	return false
}

// optionPath lists the path in --option=path and -Ipath.
func (c *scanner) optionPath(k *call, w word) {
	if strings.Contains(w.text, "=") {
		c.valuePath(k, w)
		return
	}
	if strings.HasPrefix(w.value, "--") || !w.fixed && !strings.Contains(w.text, "/") {
		return
	}
	// The path may begin right after the letter of the option, or later.
	if i := strings.IndexAny(w.value, "/.~"); i >= 2 && strings.Contains(w.value, "/") {
		rest := w
		rest.value, rest.tilde = w.value[2:], false
		if i == 2 || w.value[i] == '/' {
			rest.value = w.value[i:]
		}
		c.resolve(k.dirs, w.text, rest, false)
	}
}

// valuePath lists the path after the first "=" of a word.
func (c *scanner) valuePath(k *call, w word) {
	_, text, _ := strings.Cut(w.text, "=")
	rest := w
	if _, value, found := strings.Cut(w.value, "="); found {
		rest.value, rest.tilde = value, !w.made && tildeHolds(text)
	} else {
		rest.fixed, rest.pattern = false, false
	}
	rest.text = text
	if strings.HasPrefix(w.value, "of=") || looksLikePath(rest) {
		c.resolve(k.dirs, w.text, rest, false)
	}
}

// looksLikePath reports whether an argument of an unknown program is taken for a
// path.
func looksLikePath(w word) bool {
	s := w.value
	if !w.fixed {
		s = strings.Trim(w.text, `"`)
	}
	if isURL(s) {
		return false
	}
	return strings.Contains(s, "/") || strings.HasPrefix(s, ".") || strings.HasPrefix(s, "~")
}

// isURL reports whether s is an address of the network, not of a file.
func isURL(s string) bool {
	scheme, _, found := strings.Cut(s, "://")
	if !found || scheme == "" || strings.EqualFold(scheme, "file") {
		return false
	}
	for i := range len(scheme) {
		if b := scheme[i]; (b < 'a' || b > 'z') && (b < 'A' || b > 'Z') && (b < '0' || b > '9') && b != '+' && b != '-' && b != '.' {
			return false
		}
	}
	return true
}

// givesPattern reports whether an option of grep, sed and the like gives the
// pattern or script, so that all operands are files.
func givesPattern(option string) bool {
	return strings.HasPrefix(option, "-e") || strings.HasPrefix(option, "-f") ||
		strings.HasPrefix(option, "--regexp") || strings.HasPrefix(option, "--expression") || strings.HasPrefix(option, "--file")
}

var (
	// speakers only print their arguments.
	speakers = setOf(
		"echo", "printf", ":", "true", "false", "exit", "return", "set", "kill", "sleep", "seq", "type", "which", "basename", "dirname",
		"expr", "wait", "jobs", "shift", "break", "continue", "umask", "ulimit", "id", "pgrep", "pkill", "killall", "tput", "yes",
	)

	// takesPattern have a pattern or a script as their first operand.
	takesPattern = setOf("grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack", "sed", "awk", "gawk", "mawk", "jq", "yq", "tr")

	// fileCommands take plain words for files.
	fileCommands = setOf(
		"cat", "tac", "head", "tail", "less", "more", "nl", "od", "xxd", "hexdump", "strings", "file", "stat", "wc", "md5sum",
		"sha1sum", "sha256sum", "sha512sum", "cksum", "sort", "uniq", "cut", "paste", "join", "comm", "diff", "cmp", "split",
		"ls", "dir", "vdir", "tree", "du", "cd", "chdir", "pushd", "cp", "mv", "rm", "rmdir", "mkdir", "ln", "touch", "tee", "install", "truncate",
		"chmod", "chown", "chgrp", "readlink", "realpath", "unlink", "link", "shred", "gzip", "gunzip", "bzip2", "xz", "zcat",
		"grep", "egrep", "fgrep", "zgrep", "rg", "sed", "awk", "gawk", "mawk", "jq", "find", "bat", "vi", "vim", "nano", "ed", "patch", "rsync", "scp",
	)
)

// widely lists all that the arguments of k may name: every one is a path, but of programs that
// print theirs, and a wildcard is a search of its directory.
func widely(c *scanner, k *call, name string) {
	if strings.Contains(name, "/") {
		c.resolve(k.dirs, k.args[0].text, k.args[0], false) // the program itself
	}
	skip, options, text := takesPattern[name], true, false
	all := madeArguments(c, k)
	for i, w := range all {
		switch {
		case speakers[name], isTest(name) && !tested(all, i):
			searches(c, k.dirs, w)
		case options && w.fixed && w.value == "--":
			options = false
		case text:
			text = false
		case options && strings.HasPrefix(w.value, "-") && len(w.value) > 1:
			option, _, joined := strings.Cut(w.value, "=")
			if text = texts[name].MatchString(option); text {
				text = !joined
				continue
			}
			optionPaths(c, k, w)
			if follows[name].MatchString(w.value) {
				c.path(Path{Text: name + " " + w.text + " follows links"}, false)
			}
			if takesPattern[name] && givesPattern(w.value) {
				skip = w.value == "-e" || w.value == "--regexp" || w.value == "--expression"
			}
		case skip:
			skip = false
			searches(c, k.dirs, w)
		default:
			anyPaths(c, k, w)
		}
	}
}

// texts are the options, by program, whose value is text or a name of no file.
var texts = map[string]option{
	"git":  {regexp.MustCompile(`^(-[a-z]*m|--message|--author|--date|--grep|--pretty|--format|--trailer)$`)},
	"gh":   {regexp.MustCompile(`^(-t|--title|-b|--body|-l|--label)$`)},
	"curl": {regexp.MustCompile(`^(-H|--header|-A|--user-agent|-u|--user|-X|--request|-w|--write-out)$`)},
	"date": {regexp.MustCompile(`^(-d|--date)$`)},
}

// follows are the options, by program, with which it goes where links in a tree lead.
var follows = map[string]option{
	"find":  {regexp.MustCompile(`^-(L|H|follow|files0-from)`)},
	"grep":  {regexp.MustCompile(`^(-[a-zA-Z]*R|--dereference-recursive)`)},
	"rg":    {regexp.MustCompile(`^(-[a-z]*L|--follow)`)},
	"fd":    {regexp.MustCompile(`^(-[a-zA-Z]*L|--follow)`)},
	"cp":    {regexp.MustCompile(`^(-[a-zA-Z]*[LH]|--dereference)`)},
	"du":    {regexp.MustCompile(`^(-[a-zA-Z]*[LD]|--dereference)`)},
	"tar":   {regexp.MustCompile(`^(-[a-zA-Z]*h|--dereference)`)},
	"tree":  {regexp.MustCompile(`^-[a-zA-Z]*l`)},
	"rsync": {regexp.MustCompile(`^(-[a-zA-Z]*[LkK]|--copy-links|--copy-dirlinks)`)},
}

// option is a set of options; none is the empty one.
type option struct{ *regexp.Regexp }

// MatchString reports whether it has s.
func (o option) MatchString(s string) bool { return o.Regexp != nil && o.Regexp.MatchString(s) }

func isTest(name string) bool { return name == "test" || name == "[" }

// tested reports whether argument i of test is a file.
func tested(args []word, i int) bool {
	if i > 0 && args[i-1].fixed && fileTests[args[i-1].value] && !setOf("-n", "-z", "-t", "-a")[args[i-1].value] {
		return true
	}
	for _, j := range []int{i - 1, i + 1} {
		if j >= 0 && j < len(args) && (args[j].value == "-nt" || args[j].value == "-ot" || args[j].value == "-ef") {
			return true
		}
	}
	return false
}

// optionPaths lists what an option may name: behind its "=", or behind its letter.
func optionPaths(c *scanner, k *call, w word) {
	if !w.fixed {
		c.resolve(k.dirs, w.text, word{text: w.text}, false)
		return
	}
	switch _, value, joined := strings.Cut(w.value, "="); {
	case joined:
		pieces(c, k, w, value)
	case !strings.HasPrefix(w.value, "--") && len(w.value) > 2:
		pieces(c, k, w, w.value[2:])
		if i := strings.IndexByte(w.value, '/'); i > 2 {
			pieces(c, k, w, w.value[i:])
		}
	}
}

// anyPaths lists what an argument that is no option may name.
func anyPaths(c *scanner, k *call, w word) {
	switch {
	case isURL(w.value):
	case !w.fixed || w.tilde:
		c.resolve(k.dirs, w.text, w, false)
	default:
		pieces(c, k, w, w.value)
		if !w.made && isSetting(w.text) {
			c.valuePath(k, w) // "~" is a home there
		}
	}
}

// signs part names in an argument.
const signs = "=:,@ \t\n"

// pieces lists a value, and what stands in it behind signs that part names. Of a text with blanks,
// only what is plainly a path in it.
func pieces(c *scanner, k *call, w word, value string) {
	name := word{text: w.text, value: value, fixed: true, made: true}
	if at := strings.Index(value, startDir); at < 0 || !strings.ContainsAny(value, signs) || strings.HasPrefix(value[at:], startDir+"/") {
		c.resolve(k.dirs, w.text, name, false)
	}
	blank := strings.ContainsAny(value, " \t\n")
	for piece := range strings.FieldsFuncSeq(value, func(r rune) bool { return strings.ContainsRune(signs, r) }) {
		if piece != value && (!blank || strings.HasPrefix(piece, "/") || strings.Contains(piece, startDir)) {
			name.value = piece
			c.resolve(k.dirs, w.text, name, false)
		}
	}
}

// searches lists the directories of wildcards in w.
func searches(c *scanner, d dirs, w word) {
	if !c.wide {
		return
	}
	for _, f := range fieldsOf(c, d, w) {
		switch {
		case f.pattern, f.made && strings.Contains(f.value, wild), !f.fixed && !f.pattern && f.node != nil && globs(f.node):
			c.resolve(d, f.text, f, false)
		}
	}
}

// later lists the directories of wildcards in what a variable gets, which are expanded where that stands
// without quotes.
func later(c *scanner, d dirs, n *syntax.Word) {
	if text := c.slice(n.Pos().Offset(), n.End().Offset()); !c.wide || !strings.ContainsAny(text, "*?[") {
		return
	}
	v := evaluate(c, d, n, asValue)
	if v == nil {
		c.resolve(d, c.slice(n.Pos().Offset(), n.End().Offset()), word{}, false)
	}
	for _, s := range parted(v, asWord) {
		for f := range strings.SplitSeq(sure(s), gap) {
			if strings.Contains(f, wild) {
				c.resolve(d, shown(f), word{value: f, made: true}, false)
			}
		}
	}
}

// globs reports whether a word has a wildcard that is not quoted.
func globs(n *syntax.Word) bool {
	for _, part := range n.Parts {
		if lit, is := part.(*syntax.Lit); is && strings.ContainsAny(lit.Value, "*?[") {
			return true
		}
	}
	return false
}

// addedPaths lists what a wrapper adds to a command that the text does not show: what it reads.
func addedPaths(c *scanner, k, in *call, name string) {
	if !c.wide || speakers[in.name] {
		return
	}
	parts := func(s string) bool { return strings.ContainsAny(s, given) } // as the shell does
	if c.piped == nil || k.fed || name != "xargs" || slices.ContainsFunc(c.piped, parts) {
		c.path(Path{Text: "what " + name + " gives " + shorten(in.args[0].text)}, false)
		return
	}
	for _, s := range c.piped {
		c.resolve(in.dirs, shown(s), word{text: shown(s), value: s, fixed: true, made: true}, false)
	}
}
