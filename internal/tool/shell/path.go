package shell

import (
	"slices"
	"strings"
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
	if name == "" {
		return // no file has this name
	}
	names := d.names(name)
	if names == nil && d.lost {
		c.path(Path{Text: text}, write)
	}
	for _, n := range names {
		c.path(Path{Text: text, Name: n}, write)
	}
}

// literal is the path that a word names: itself, or for one with wildcards the
// directory below which all is that it can match.
func (c *scanner) literal(w word) (string, bool) {
	value := w.value
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

// pathArguments lists the arguments of k that name files: those that look like
// paths, and for programs that work on files also plain words.
func (c *scanner) pathArguments(k *call) {
	if len(k.args) == 0 || !k.args[0].fixed {
		return
	}
	name := systemName(k.args[0].value)
	if speakers[name] {
		return
	}
	if strings.Contains(k.args[0].value, "/") && name == k.args[0].value {
		c.resolve(k.dirs, k.args[0].text, k.args[0], false) // the program itself
	}
	skip := takesPattern[name]
	plain := fileCommands[name]
	options, table := true, fileOptions[name]
	for i, w := range k.args[1:] {
		if options && w.fixed && w.value == "--" {
			options = false
			continue
		}
		if options && strings.HasPrefix(w.value, "-") && len(w.value) > 1 {
			c.optionPath(k, w)
			if table != nil {
				optionFile(c, k, i+1, table)
			}
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

// argumentPath lists an argument that is no option, if it names a file: plain
// words do for some programs.
func (c *scanner) argumentPath(k *call, w word, plain bool) {
	switch {
	case !plain && isSetting(w.text):
		c.valuePath(k, w)
	case plain || looksLikePath(w):
		c.resolve(k.dirs, w.text, w, false)
	}
	within(c, k, w, 0, plain)
}

// within lists what is named within a value, the part of w from a byte of it on: behind a "@", as options and arguments of
// many programs have it, and in a URL. all: also what does not look like a path.
func within(c *scanner, k *call, w word, from int, all bool) {
	value := w.value[min(from, len(w.value)):]
	rest := word{text: w.text, fixed: w.fixed}
	if file, is := strings.CutPrefix(value, "@"); is && (file != "" || !w.fixed) {
		if rest.value = file; all || !w.fixed || looksLikePath(rest) {
			c.resolve(k.dirs, w.text, rest, false)
		}
	}
	if !strings.Contains(value, ":/") {
		return
	}
	if at := strings.Index(strings.ToLower(value), "file:/"); at >= 0 {
		// A program may read wildcards and escapes in it by itself.
		file := value[at+len("file:"):]
		if host, is := strings.CutPrefix(file, "//"); is {
			_, file, _ = strings.Cut(host, "/")
			file = "/" + file
		}
		rest.value, rest.fixed = file, w.fixed && !strings.ContainsAny(file, "%{}[]?#*")
		c.resolve(k.dirs, w.text, rest, false)
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
	if !w.fixed && !w.pattern {
		c.resolve(k.dirs, w.text, word{text: w.text}, false)
		return
	}
	// The path may begin right after the letter of the option, or later.
	if i := strings.IndexAny(w.value, "/.~"); i >= 2 && strings.Contains(w.value, "/") {
		rest := w
		rest.tilde = false
		rest.value = w.value[i:]
		c.resolve(k.dirs, w.text, rest, false)
		if i > 2 {
			rest.value = w.value[2:]
			c.resolve(k.dirs, w.text, rest, false)
		}
	}
}

// valuePath lists the path after the first "=" of a word.
func (c *scanner) valuePath(k *call, w word) {
	_, text, _ := strings.Cut(w.text, "=")
	rest := w
	if _, value, found := strings.Cut(w.value, "="); found {
		rest.value, rest.tilde = value, tildeHolds(text)
	} else {
		rest.fixed, rest.pattern = false, false
	}
	rest.text = text
	if strings.HasPrefix(w.value, "of=") || looksLikePath(rest) {
		c.resolve(k.dirs, w.text, rest, false)
	}
	if strings.HasPrefix(rest.value, "<") { // as curl has it
		rest.value = "@" + rest.value[1:]
	}
	within(c, k, rest, 0, false)
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

// givesPattern reports whether an option of grep, sed and the like may give the
// pattern or script, so that all operands are files, or says that there is none.
func givesPattern(option string) bool {
	name, _, _ := strings.Cut(option, "=")
	if !strings.HasPrefix(option, "--") {
		return strings.ContainsAny(name, "ef") // which letters have a value is another matter in each of them
	}
	return slices.ContainsFunc(givers, func(o string) bool { return len(name) > 2 && strings.HasPrefix(o, name) })
}

// givers are such options; they may be written shorter.
var givers = []string{"--regexp", "--expression", "--file", "--from-file", "--files"}

var (
	// speakers only print their arguments.
	speakers = setOf("echo", "printf", ":", "true", "false", "exit", "return", "set", "kill", "sleep", "seq", "type", "which")

	// takesPattern have a pattern or a script as their first operand.
	takesPattern = setOf("grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack", "sed", "awk", "gawk", "mawk", "jq", "yq", "tr")

	// fileCommands take plain words for files.
	fileCommands = setOf(
		"cat", "tac", "head", "tail", "less", "more", "nl", "od", "xxd", "hexdump", "strings", "file", "stat", "wc", "md5sum",
		"sha1sum", "sha256sum", "sha512sum", "cksum", "sort", "uniq", "cut", "paste", "join", "comm", "diff", "cmp", "split",
		"ls", "dir", "vdir", "tree", "du", "cd", "chdir", "pushd", "cp", "mv", "rm", "rmdir", "mkdir", "ln", "touch", "tee", "install", "truncate",
		"chmod", "chown", "chgrp", "readlink", "realpath", "unlink", "link", "shred", "gzip", "gunzip", "bzip2", "xz", "zcat",
		"grep", "egrep", "fgrep", "zgrep", "rg", "sed", "awk", "gawk", "mawk", "jq", "find", "bat", "vi", "vim", "nano", "ed", "patch", "rsync", "scp", "tar",
	)
)
